package sources

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
)

var future = syscall.Timespec{Sec: 1 << 40}

// TestContentsLieInOrder: large files and small ones, each whole, with its time and mode.
func TestContentsLieInOrder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const size = 8 << 20
	o := &Options{FD: memfd(t, size), Off: 128, Max: size, Cwd: dir, Since: future}
	var want bytes.Buffer
	when := time.Unix(1234567890, 987654321)
	for i, n := range []int{10, 0, bufSize - bufFree - 1, 1, bufSize, bufSize + 1, 3 * bufSize, 77, bufFree, bufFree} {
		name := string(rune('a'+i)) + ".h"
		text := strings.Repeat(string(rune('a'+i)), n)
		write(t, name, text)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
		o.Names = append(o.Names, name)
		want.WriteString(text)
	}
	if err := os.Chmod("b.h", 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, p.Len)
	if _, err := syscall.Pread(o.FD, got, int64(o.Off)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes differ from the %d wanted", len(got), want.Len())
	}
	for i, f := range p.Files {
		if f.Name != o.Names[i] || f.MTime != when.UnixNano() || f.Exec != (f.Name == "b.h") || f.Same != 0 {
			t.Errorf("file %d is %+v", i, f)
		}
	}
}

// TestOneFileUnderSeveralNames: it travels once; spelled otherwise it is the same name.
func TestOneFileUnderSeveralNames(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	write(t, "d/a.h", "int a;")
	for _, name := range []string{"b.h", "d/c.h"} {
		if err := os.Link("d/a.h", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("d/a.h", "link.h"); err != nil {
		t.Fatal(err)
	}
	o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future,
		Names: []string{"x.c", "d/a.h", "b.h", "./d/a.h", "d/../d/a.h", filepath.Join(dir, "d/a.h"), "d/c.h", "./b.h", "d//c.h", "link.h"}}
	p, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(p); got != "d/a.h=6 b.h=0 d/c.h=0" || p.Files[2].Same != 2 || p.Files[3].Same != 2 || p.Len != 12 {
		t.Errorf("packs %s: %+v", got, p.Files)
	}
	if want := (unit.Link{Name: dir + "/link.h", Target: dir + "/d/a.h"}); len(p.Links) != 1 || p.Links[0] != want {
		t.Errorf("links %+v, want %+v", p.Links, want)
	}
	if len(p.Dirs) != 1 || p.Dirs[0] != "d/../d/" {
		t.Errorf("ways that must exist: %q", p.Dirs)
	}
}

// TestLinksInTheWay: "link/../z.h" is no name of z.h, and only with the link can the tree
// show both.
func TestLinksInTheWay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	write(t, "far/away/y.h", "int y;")
	write(t, "far/z.h", "int z;")
	if err := os.Symlink("far/away", "link"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"link/y.h": 1, "far/away/../z.h": 0, "link/../z.h": 1, "../" + filepath.Base(dir) + "/far/z.h": 0} {
		o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: []string{"x.c", name}}
		p, err := Make(o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := len(p.Links); got != want {
			t.Errorf("%s: links %+v", name, p.Links)
		}
		if want == 1 && (p.Links[0].Name != filepath.Join(dir, "link") || p.Links[0].Target != filepath.Join(dir, "far/away")) {
			t.Errorf("%s: links %+v", name, p.Links)
		}
	}
}

// TestSecondNameBehindALink: "link/../v.h" looks like v.h, and is another name of the same
// file in another directory. The tree needs both.
func TestSecondNameBehindALink(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	write(t, "v.h", "int v;")
	if err := errors.Join(os.MkdirAll("z/y", 0o777), os.Link("v.h", "z/v.h"), os.Symlink("z/y", "link")); err != nil {
		t.Fatal(err)
	}
	p, err := Make(&Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: []string{"x.c", "v.h", "link/../v.h"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Files) != 3 || p.Files[2].Name != "link/../v.h" || p.Files[2].Same != 2 {
		t.Errorf("packs %+v", p.Files)
	}
}

// TestPipeIsLeftAlone: whoever writes to a pipe waits for the compiler, whose header it is.
func TestPipeIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	if err := syscall.Mkfifo("pipe.h", 0o666); err != nil {
		t.Fatal(err)
	}
	// Whoever waits in open(2) for a reader is seen by no other means than by being let through. This one has been, and
	// what it has written shows whether another has read it.
	fd, err := syscall.Open("pipe.h", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	const text = "#define X 1\n"
	if _, err := syscall.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe.h", "link.h"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe.h", "link.h"} {
		o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: []string{"x.c", name}}
		if _, err := Make(o); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v, want %v", name, err, ErrFile)
		}
	}
	b := make([]byte, 100)
	if n, err := syscall.Read(fd, b); string(b[:max(n, 0)]) != text {
		t.Errorf("the pipe has %q left, %v; want %q", b[:max(n, 0)], err, text)
	}
}

// TestPrecompiledHeaders: those that gcc may find are told, also in an earlier directory than the header's.
func TestPrecompiledHeaders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	write(t, "x.h", "int x;")
	write(t, "x.h.gch", "gpch")
	write(t, "d1/y.h.gch", "gpch")
	write(t, "d2/y.h", "int y;")
	o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: []string{"x.c", "x.h", "d2/y.h"}, Dirs: []string{"d1", "d2"}}
	p, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"x.h.gch", "d1/y.h.gch"}; !slices.Equal(p.Images, want) {
		t.Errorf("precompiled headers %v, want %v", p.Images, want)
	}
}

// TestWhatCannotBePacked: nothing that is not there, not a file, new, or too large.
func TestWhatCannotBePacked(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.c", "int x;")
	write(t, "x.h", "int x;")
	write(t, "pch.h.gch", "gpch")
	write(t, "dir.h", "int x;")
	write(t, "dir.h.gch/one", "gpch") // gcc tries all files of it
	write(t, "big.h", strings.Repeat("x", 2<<20))
	if err := syscall.Mkfifo("pipe.h", 0o666); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"x.h": nil, "none.h": ErrFile, ".": ErrFile, "pipe.h": ErrFile, "pch.h.gch": ErrPCH, "dir.h": ErrPCH, "big.h": ErrTooBig,
	} {
		o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: []string{"x.c", name}}
		if _, err := Make(o); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat("x.c", &st); err != nil {
		t.Fatal(err)
	}
	before := syscall.NsecToTimespec(st.Ctim.Nano() - 1)
	for since, want := range map[syscall.Timespec]error{st.Ctim: nil, before: ErrChanged} {
		o := &Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: since, Names: []string{"x.c"}}
		if _, err := Make(o); !errors.Is(err, want) {
			t.Errorf("list begun %v, file changed %v: %v, want %v", since, st.Ctim, err, want)
		}
	}
}
