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

// TestPathIsLookedAtEachTime: programs that appear first on PATH count at once, even if PATH names
// directories relative to the working directory.
func TestPathIsLookedAtEachTime(t *testing.T) {
	gcc := look(t, "gcc")
	if as := printed(t, gcc, "-print-prog-name=as"); as != "as" {
		t.Skipf("gcc runs %s", as)
	}
	real := look(t, "as")
	for _, c := range []struct{ name, path, dir string }{
		{"absolute", "/:CWD/in-front:/usr/bin:/bin", "in-front"},
		{"relative", "in-front:/usr/bin:/bin", "in-front"},
		{"dot", ".:/usr/bin:/bin", "."},
		{"empty", ":/usr/bin:/bin", "."},
	} {
		t.Run(c.name, func(t *testing.T) {
			cwd := t.TempDir()
			env := Env{Path: strings.ReplaceAll(c.path, "CWD", cwd), Cwd: cwd}
			var cache Cache
			id := func() any {
				t.Helper()
				tc, err := cache.IdentifyIn(t.Context(), gcc, env)
				if err != nil {
					t.Fatal(err)
				}
				return tc.ID
			}
			usual := id()
			if err := os.MkdirAll(filepath.Join(cwd, c.dir), 0o755); err != nil {
				t.Fatal(err)
			}
			as := filepath.Join(cwd, c.dir, "as")
			if err := os.WriteFile(as, []byte("#!/bin/sh\nexec "+real+" \"$@\"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if id() != usual {
				t.Error("a file that cannot be run makes another compiler")
			}
			if err := os.Chmod(as, 0o755); err != nil {
				t.Fatal(err)
			}
			if id() == usual {
				t.Error("an assembler that is new on PATH is not noticed")
			}
			if err := os.Remove(as); err != nil {
				t.Fatal(err)
			}
			if id() != usual {
				t.Error("an assembler that is gone from PATH still counts")
			}
		})
	}
}

// TestClangPrefersPrograms: clang runs an assembler whose name begins with the target before
// one that is only called as.
func TestClangPrefersPrograms(t *testing.T) {
	clang := look(t, "clang")
	dir := t.TempDir()
	var c Cache
	id := func() Toolchain {
		t.Helper()
		tc, err := c.IdentifyIn(t.Context(), clang, Env{Path: dir + ":/usr/bin:/bin"})
		if err != nil {
			t.Fatal(err)
		}
		return tc
	}
	usual := id()
	write(t, filepath.Join(dir, usual.Target+"-as"), "#!/bin/sh\nexec as \"$@\"\n")
	if printed(t, "env", "PATH="+dir+":/usr/bin:/bin", clang, "-print-prog-name=as") == printed(t, clang, "-print-prog-name=as") {
		t.Skip("this clang does not")
	}
	if id().ID == usual.ID {
		t.Error("its assembler that is new on PATH is not noticed")
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
