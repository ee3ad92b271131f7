package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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
