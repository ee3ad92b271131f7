package caches

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// resultsDir returns a directory that is on a disk, and settings of a daemon that keeps results there.
func resultsDir(t *testing.T) (dir, settings string) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "rdistcc-caches-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	var fs unix.Statfs_t
	if err := unix.Statfs(base, &fs); err != nil {
		t.Fatal(err)
	}
	if free := fs.Bavail; free < fs.Blocks/10+1<<30/uint64(fs.Bsize) {
		t.Skip("daemons leave a tenth of a disk free, and no more than that is free on /var/tmp")
	}
	dir = filepath.Join(base, "results")
	return dir, fmt.Sprintf("store: {results-dir: %s, results-disk: 128MiB}\n", dir)
}

// TestFarmTierOnDisk: what a host had compiled is read from it after its daemon was stopped, and after it was killed.
// Results that were made since are there as well, and nothing is compiled twice.
func TestFarmTierOnDisk(t *testing.T) {
	dir, settings := resultsDir(t)
	s := startWith(t, "cache: {farm: true}\n", settings)
	for i, end := range []func() error{
		func() error { return nil },
		func() error { return s.Daemons[0].Stop() },
		func() error { s.Daemons[0].Kill(); return nil },
	} {
		file := fmt.Sprintf("f%d.c", i)
		s.write(file, fmt.Sprintf("int f%d(int x) { return x; }\n", i))
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := s.StartDaemonAgain(s.ctx, 0); err != nil {
				t.Fatal(err)
			}
			s.forget()
		}
		for k := range i {
			s.compiles("cached:farm", "gcc", "-O2", "-c", fmt.Sprintf("f%d.c", k))
		}
		s.compiles("remote", "gcc", "-O2", "-c", file)
		if n := s.jobs(); n != 1 {
			t.Errorf("%v compiles after the restart, want 1", n)
		}
		s.wait("the result to be written", func() bool { return s.metric(s.Daemons[0], "rdistccd_results_entries") == float64(i+1) })
		if n := s.metric(s.Daemons[0], "rdistccd_results_disk_bytes"); n == 0 {
			t.Error("nothing is on the disk")
		}
	}

	// Somebody cuts the file short. The daemon lives, the manager keeps its connection, and what is no longer there is
	// compiled.
	files, err := filepath.Glob(filepath.Join(dir, "*.shelf"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	s.forget()
	s.compiles("cached:farm", "gcc", "-O2", "-c", "f0.c")
	ended := s.metric(s.Daemons[0], "rdistccd_connections_ended_total")
	if err := os.Truncate(files[0], 4096); err != nil {
		t.Fatal(err)
	}
	s.compiles("remote", "gcc", "-O2", "-c", "f1.c")
	s.write("after.c", "int after;\n")
	s.compiles("remote", "gcc", "-c", "after.c")
	if n := s.metric(s.Daemons[0], "rdistccd_connections_ended_total"); n != ended || !s.Daemons[0].Running() {
		t.Errorf("%v connections have ended, were %v", n, ended)
	}
	if _, err := os.Stat(files[0]); err == nil { // removed when the tenant connects again
		s.forget()
		s.compiles("remote", "gcc", "-c", "after.c")
		if _, err := os.Stat(files[0]); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		s.forget()
		s.compiles("cached:farm", "gcc", "-c", "after.c")
	}
}
