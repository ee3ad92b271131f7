package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
)

// TestLateCompiler: a compiler that cannot tell about itself at first, on a machine
// that has just started, is looked at again soon; one that never can, at leisure.
func TestLateCompiler(t *testing.T) {
	var path string
	ts := startServer(t, func(o *Options) {
		path = filepath.Join(o.Dirs[0], "gcc-13")
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	due := func() time.Duration {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return time.Until(ts.nextScan)
	}
	if got := due(); got > retryTime {
		t.Errorf("looked at again in %v, want %v", got, retryTime)
	}
	ts.mu.Lock()
	ts.nextScan = time.Now().Add(rescanTime) // as the tick that begins a scan does
	ts.mu.Unlock()
	if err := ts.Rescan(t.Context()); err != nil {
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
	if got := names(list); !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
	list = list[:0]
	for i := range 2 * job.MaxNames {
		list = append(list, toolchain.Toolchain{Family: "gcc", Version: fmt.Sprint(i)})
	}
	if got := names(list); len(got) != job.MaxNames {
		t.Errorf("%d names, want %d", len(got), job.MaxNames)
	}
}
