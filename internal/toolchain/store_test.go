package toolchain

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStore: the next run of the program asks no compiler that is as it was.
func TestStore(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	gcc := fakeGCC(t, dir, "gcc")
	file := filepath.Join(state, "compilers")
	next := func() Toolchain {
		t.Helper()
		return identifyOK(t, &Cache{File: file}, gcc)
	}
	first := next()
	again := next()
	if n := runs(t, dir); n != 1 {
		t.Errorf("the driver was asked %d times", n)
	}
	if !again.Equal(first) || again.Version != first.Version || again.Family != first.Family || !slices.Equal(again.Files, first.Files) {
		t.Errorf("remembered %+v, was %+v", again, first)
	}
	write(t, filepath.Join(dir, "cc1"), "another")
	changed := next()
	if changed.ID == first.ID {
		t.Error("a change between two runs was not seen")
	}
	if names, err := os.ReadDir(state); err != nil || len(names) != 1 {
		t.Errorf("left in the directory: %v, %v", names, err)
	}

	// What another user may have written does not count.
	asked := runs(t, dir)
	for _, spoil := range []func() error{
		func() error { return os.Chmod(file, 0o666) },
		func() error { return os.Chmod(state, 0o777) },
		func() error { return os.WriteFile(file, []byte("{"), 0o600) },
		func() error { return errors.Join(os.Rename(file, file+"x"), os.Symlink(file+"x", file)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if next().ID != changed.ID {
			t.Error("another ID")
		}
		if n := runs(t, dir); n != asked+1 {
			t.Errorf("the driver was asked %d times, want %d", n, asked+1)
		}
		if err := os.Chmod(state, 0o700); err != nil {
			t.Fatal(err)
		}
		next() // one that may not be read was replaced, unless nothing could be written
		asked = runs(t, dir)
	}
}
