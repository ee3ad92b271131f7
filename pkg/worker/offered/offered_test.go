package offered

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// TestLateCompiler: a compiler that gives no sensible answer at first, on a machine that has just started, is
// soon asked again; one that never does, only with every scan.
func TestLateCompiler(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gcc-13"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := New(Options{
		Log: slog.New(slog.DiscardHandler), Dirs: func() []string { return []string{dir} },
		Show: func([]toolchain.Toolchain) {}, Changed: func(bool, bool) {}, Rescue: func() {},
	})
	defer k.Close()
	due := func() time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		return time.Until(k.next)
	}
	if err := k.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := due(); got > retryTime {
		t.Errorf("looked at again in %v, want %v", got, retryTime)
	}
	if !k.Due(time.Now().Add(time.Hour)) { // as the tick that begins a scan does
		t.Error("an hour later it is not time to look again")
	}
	if err := k.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := due(); got <= retryTime {
		t.Errorf("the same failure again: looked at in %v, want %v", got, rescanTime)
	}
}

func TestNamesOfCompilers(t *testing.T) {
	list := []toolchain.Toolchain{
		{Family: "gcc", Version: "13.2.0", Exec: "/usr/bin/g++"}, {Family: "gcc", Version: "13.2.0", Exec: "/usr/bin/gcc"},
		{Family: "clang", Version: "16.0.6"}, {Family: "gcc", Version: strings.Repeat("9", 2*job.MaxVersion)},
	}
	want := []string{"clang 16.0.6", "gcc 13.2.0", "gcc " + strings.Repeat("9", job.MaxVersion-4)}
	if got := Names(list); !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
	list = list[:0]
	for i := range 2 * job.MaxNames {
		list = append(list, toolchain.Toolchain{Family: "gcc", Version: fmt.Sprint(i)})
	}
	if got := Names(list); len(got) != job.MaxNames {
		t.Errorf("%d names, want %d", len(got), job.MaxNames)
	}
}
