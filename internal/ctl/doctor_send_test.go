package ctl

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

// TestRoomForACompiler: doctor says that a compiler fits exactly if a daemon with as much room takes it. Names cost room as well.
func TestRoomForACompiler(t *testing.T) {
	path, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	tc := toolchain.Toolchain{ID: unit.ToolchainID{1}, Exec: path, Path: path, Family: "gcc", Version: "12.2.0", Target: "x86_64-linux-gnu", Major: 12, Files: []string{path}}
	tool := &localTool{tc, []string{"gcc"}, []*packing{{tc: tc}}}
	p, err := tool.packing[0].pack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, contents := p.Contents()
	fits := map[bool]int{}
	for more := int64(-100); more < 1<<20; more += 1000 {
		s, err := received.Open(received.Options{Dir: t.TempDir(), Quota: 2 * (int64(contents) + more), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		about := &parcel.About{Room: s.Room("alice"), Machine: p.Needs.Machine, Kernel: "99"}
		_, _, err = s.Offer("alice", p.Append(nil))
		if err != nil && !errors.Is(err, received.ErrQuota) {
			t.Fatal(err)
		}
		why := new(doctor).unsendable(t.Context(), tool, about)
		if why == "" != (err == nil) || why != "" && !strings.Contains(why, "the host has room for") {
			t.Errorf("with room for %d bytes more than the contents have, doctor says %q and the daemon %v", more, why, err)
		}
		fits[err == nil]++
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if fits[true] > 3 {
			break
		}
	}
	if fits[true] == 0 || fits[false] == 0 {
		t.Errorf("%v", fits)
	}
}
