package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPathChoosesTheAssembler: gcc runs the first "as" on PATH, so it is another
// compiler with another one there; other directories change nothing.
func TestPathChoosesTheAssembler(t *testing.T) {
	gcc := look(t, "gcc")
	if as := printed(t, gcc, "-print-prog-name=as"); as != "as" {
		t.Skipf("gcc runs %s", as)
	}
	own, empty := t.TempDir(), t.TempDir()
	copyFile(t, look(t, "as"), filepath.Join(own, "as"))
	var c Cache
	in := func(path string) Toolchain {
		t.Helper()
		tc, err := c.IdentifyIn(t.Context(), gcc, Env{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return tc
	}
	usual := identifyOK(t, &c, gcc)
	if in(empty+"::.:/usr/bin:/bin").ID != usual.ID {
		t.Error("a directory with nothing in it makes another compiler")
	}
	before := len(c.entries)
	in("/nowhere:/usr/bin")
	if len(c.entries) != before {
		t.Error("it was asked again for a directory that does not count")
	}
	mine := in(own + ":/usr/bin")
	if mine.ID != usual.ID || !strings.Contains(strings.Join(mine.Files, "\n"), own+"/as") {
		t.Error("a copy of the assembler is not taken, or makes another compiler")
	}
	addByte(t, filepath.Join(own, "as"))
	if in(own+":/usr/bin").ID == usual.ID {
		t.Error("another assembler on PATH gives the same ID")
	}
}

// TestLibraryPath: LD_LIBRARY_PATH can put another library under a compiler.
func TestLibraryPath(t *testing.T) {
	gcc := look(t, "gcc")
	var c Cache
	usual := identifyOK(t, &c, gcc)
	var lib string
	for _, f := range usual.Files {
		if strings.HasPrefix(filepath.Base(f), "libmpfr.so") {
			lib = f
		}
	}
	if lib == "" {
		t.Skip("gcc loads no libmpfr")
	}
	dir := t.TempDir()
	if err := os.Symlink(lib, filepath.Join(dir, filepath.Base(lib))); err != nil {
		t.Fatal(err)
	}
	id := func() Toolchain {
		t.Helper()
		tc, err := c.IdentifyIn(t.Context(), gcc, Env{Libraries: dir})
		if err != nil {
			t.Fatal(err)
		}
		return tc
	}
	if id().ID != usual.ID {
		t.Error("the same library by another name makes another compiler")
	}
	if err := os.Remove(filepath.Join(dir, filepath.Base(lib))); err != nil {
		t.Fatal(err)
	}
	copyFile(t, lib, filepath.Join(dir, filepath.Base(lib)))
	addByte(t, filepath.Join(dir, filepath.Base(lib)))
	if id().ID == usual.ID {
		t.Error("another library gives the same ID")
	}
}
