package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTree makes a tree that ends with the test.
func newTree(t testing.TB, s Spec) *Tree {
	t.Helper()
	tr, err := New(t.Context(), s)
	if errors.Is(err, ErrNoRight) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// runIn runs a command, and returns what it wrote to its standard output and error.
func runIn(t testing.TB, tr *Tree, dir string, argv ...string) (Outcome, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := tr.Start(&Command{
		Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Dir: dir,
		Stdin: int(in.Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd()),
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return o, string(b)
}

func null(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// content reads a file of the tree.
func content(t testing.TB, tr *Tree, name string) string {
	t.Helper()
	f, err := tr.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f.FD)
	b := make([]byte, f.Size)
	if _, err := unix.Pread(f.FD, b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var when = time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC).UnixNano()

func TestCompilersInATree(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			tr := newTree(t, Spec{Files: toolchain(t, cc)})
			file := toolchain(t, cc)[0]
			must(t, tr.Write("/home/nobody/x/../h/a.h", []byte("#define N 3\n"), when, false))
			must(t, tr.Write("/home/nobody/src/a.c", []byte("#include \"../x/../h/a.h\"\nint f(void) { return N; }\n"), when, false))
			must(t, tr.Write("/usr/include/stdc-predef.h", nil, when, false))
			must(t, tr.Mkdirs("/home/nobody/out"))
			o, out := runIn(t, tr, "/home/nobody/out", file, "-g", "-c", "../src/a.c", "-o", "a.o")
			if o.Exit != 0 || o.Signal != 0 || out != "" {
				t.Fatalf("got %+v, %q", o, out)
			}
			if got := content(t, tr, "/home/nobody/out/a.o"); len(got) < 500 || got[:4] != "\x7fELF" {
				t.Errorf("got an object of %d bytes", len(got))
			}
			must(t, tr.Clean())
			if _, err := tr.Open("/home/nobody/out/a.o"); !errors.Is(err, unix.ENOENT) {
				t.Errorf("after Clean: got %v, want ENOENT", err)
			}
			o, out = runIn(t, tr, "/", file, "-c", "none.c")
			if o.Exit != 1 || out == "" {
				t.Errorf("got %+v, %q; want exit 1 and a message", o, out)
			}
		})
	}
}
