package privatetree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNames writes files under odd names, and looks from inside where they are.
func TestNames(t *testing.T) {
	tr := shell(t, "cat")
	must(t, tr.Symlink("/real/dir", "/home/u/link")) // to what is made later
	must(t, tr.Symlink("../rel", "/home/u/up"))
	for i, test := range []struct{ name, at string }{
		{"/a.c", "/a.c"},
		{"//x//y/./b.c", "/x/y/b.c"},
		{"/home/u/build/../src/c.c", "/home/u/src/c.c"},
		{"/home/u/build/deep/../../src/d.c", "/home/u/src/d.c"},
		{"/../../e.c", "/e.c"},
		{"/home/u/link/sub/f.c", "/real/dir/sub/f.c"},
		{"/home/u/link/../g.c", "/real/g.c"},
		{"/home/u/up/h.c", "/home/rel/h.c"},
		{"/with space/new\nline/\xff.c", "/with space/new\nline/\xff.c"},
		{"/-c/-o", "/-c/-o"},
	} {
		text := strings.Repeat("x", i)
		must(t, tr.Write(test.name, []byte(text), when, false))
		if got := content(t, tr, test.at); got != text {
			t.Errorf("%s: got %q, want %q", test.name, got, text)
		}
		if o, out := runIn(t, tr, "/", "/bin/sh", "-c", `cat "$0"`, test.name); o.Exit != 0 || out != text {
			t.Errorf("%s: %+v, %q", test.name, o, out)
		}
	}
	for _, dir := range []string{"/home/u/build/deep", "/x/y"} {
		if o, out := runIn(t, tr, dir, "/bin/sh", "-c", "pwd"); o.Exit != 0 || out != dir+"\n" {
			t.Errorf("%s: %+v, %q", dir, o, out)
		}
	}
	for _, name := range []string{"", "a.c", "/", "/x/", "/x/.", "/x/..", "./a.c"} {
		if err := tr.Write(name, nil, when, false); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", name, err)
		}
	}
	if err := tr.Mkdirs("rel"); err == nil {
		t.Error("a relative directory was made")
	}
	must(t, tr.Symlink("loop", "/loop"))
	if err := tr.Mkdirs("/loop/x"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a loop: got %v, want ELOOP", err)
	}
	must(t, tr.Clean())
}

func TestTimesAndModes(t *testing.T) {
	tr := shell(t, "stat")
	must(t, tr.Write("/w/plain", []byte("x"), when, false))
	must(t, tr.Write("/w/old", nil, -1_500_000_000, false))
	must(t, tr.Write("/w/exec", []byte("#!/bin/sh\necho ran\n"), when, true))
	must(t, tr.Hardlink("/w/plain", "/w2/same"))
	must(t, tr.Hardlink("/w/plain", "/w/../w/plain"))
	_, out := runIn(t, tr, "/w", "/bin/sh", "-c", "TZ=UTC stat -c '%A %y %h' plain old exec; ./exec 2>/dev/null || echo not run; [ plain -ef /w2/same ] && echo same")
	want := `-rw-r--r-- 2001-02-03 04:05:06.000000789 +0000 2
-rw-r--r-- 1969-12-31 23:59:58.500000000 +0000 1
-rwxr-xr-x 2001-02-03 04:05:06.000000789 +0000 1
not run
same
`
	if out != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
	if f, err := tr.Open("/w/exec"); err != nil || !f.Exec || f.Size != 19 {
		t.Errorf("exec: got %+v, %v", f, err)
	} else {
		unix.Close(f.FD)
	}
}

// hostFiles makes a directory with a toolchain of sorts.
func hostFiles(t *testing.T) (dir string, files []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, text := range map[string]string{"lib/gcc/12/cc1": "cc1", "lib/gcc/12/plugin/p.so": "plugin", "share/l/m.mo": "words", "share/l/sub/n.mo": "more"} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	must(t, os.Symlink("../alt/cc", filepath.Join(dir, "bin/cc")))
	must(t, os.Symlink("alternatives", filepath.Join(dir, "alt")))
	must(t, os.Mkdir(filepath.Join(dir, "alternatives"), 0o755))
	must(t, os.Symlink(dir+"/bin/../lib/gcc/12/cc1", filepath.Join(dir, "alternatives/cc")))
	must(t, os.Symlink("../../lib/gcc", filepath.Join(dir, "share/l/out")))
	return dir, []string{dir + "/bin/cc", dir + "/share/l/out/12/plugin/p.so"}
}

func TestShownNames(t *testing.T) {
	dir, files := hostFiles(t)
	files = append(files, programs(t, "/bin/sh", "cat", "readlink")...)
	tr := newTree(t, Spec{Files: files, Dirs: []string{dir + "/bin/../share", dir + "/share/l"}})
	_, out := runIn(t, tr, dir, "/bin/sh", "-c", `
cat bin/cc; echo; readlink bin/cc alt alternatives/cc; cat share/l/out/12/plugin/p.so lib/gcc/12/plugin/p.so; echo; cat share/l/sub/n.mo; echo; echo *; echo share/l/*`)
	want := "cc1\n../alt/cc\nalternatives\n" + dir + "/bin/../lib/gcc/12/cc1\npluginplugin\nmore\nalt alternatives bin lib share\nshare/l/m.mo share/l/out share/l/sub\n"
	if out != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
	for _, name := range []string{"bin/cc", "lib/gcc/12/cc1", "share/l/m.mo", "share/l/sub/new"} {
		if o, out := runIn(t, tr, dir, "/bin/sh", "-c", `echo x >"$0"`, name); o.Exit == 0 || !strings.Contains(out, "Read-only") {
			t.Errorf("write to %s: %+v, %q", name, o, out)
		}
	}
	must(t, tr.Clean())
}

func TestWhatCannotBeShown(t *testing.T) {
	dir, _ := hostFiles(t)
	newTree(t, Spec{}) // or skip
	must(t, os.Symlink("loop", dir+"/loop"))
	for _, test := range []struct {
		spec Spec
		want error
	}{
		{Spec{Files: []string{dir + "/none"}}, fs.ErrNotExist},
		{Spec{Files: []string{dir + "/lib"}}, unix.EISDIR},
		{Spec{Files: []string{dir + "/loop"}}, unix.ELOOP},
		{Spec{Files: []string{dir + "/bin/cc/x"}}, unix.ENOTDIR},
		{Spec{Dirs: []string{dir + "/bin/cc"}}, unix.ENOTDIR},
		{Spec{Files: []string{"bin/cc"}}, nil},
		{Spec{Dirs: []string{"/"}}, nil},
		{Spec{Files: []string{"/dev/tty"}}, nil},
	} {
		tr, err := New(t.Context(), test.spec)
		if err == nil {
			t.Errorf("%+v: no error", test.spec)
			tr.Close()
		} else if test.want != nil && !errors.Is(err, test.want) || errors.Is(err, ErrNoRight) {
			t.Errorf("%+v: got %v, want %v", test.spec, err, test.want)
		}
	}
}

func TestTakenNames(t *testing.T) {
	dir, files := hostFiles(t)
	files = append(files, programs(t, "/bin/sh", "cat")...)
	tr := newTree(t, Spec{Files: files, Dirs: []string{dir + "/share"}})
	for _, test := range []struct {
		name, text string
		want       error
	}{
		{"/lib/gcc/12/cc1", "cc1", nil},
		{"/lib/gcc/12/cc1", "cc2", ErrTaken},
		{"/lib/gcc/12/cc1", "longer", ErrTaken},
		{"/bin/cc", "cc1", nil},
		{"/bin/cc", "", ErrTaken},
		{"/share/l/m.mo", "words", nil},
		{"/share/l/m.mo", "wurds", ErrTaken},
		{"/share/l/new", "", ErrTaken},
		{"/share/l/new/sub/file", "", ErrTaken},
		{"/lib/gcc/12/cc1/file", "", ErrTaken},
		{"/lib/gcc/12", "", ErrTaken},
		{"/lib/gcc/12/include/stddef.h", "header", nil},
	} {
		if err := tr.Write(dir+test.name, []byte(test.text), when, false); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
	for _, name := range []string{"/proc/self/root/x", "/proc/x", "/dev/null", "/proc/sys/kernel/core_pattern"} {
		if err := tr.Write(name, []byte("x"), when, false); !errors.Is(err, ErrTaken) {
			t.Errorf("%s: got %v, want ErrTaken", name, err)
		}
	}
	must(t, tr.Mkdirs(dir+"/share/l/sub"))
	if err := tr.Mkdirs(dir + "/share/l/none"); !errors.Is(err, ErrTaken) {
		t.Errorf("mkdir in a whole directory: got %v", err)
	}
	if err := tr.Mkdirs(dir + "/lib/gcc/12/cc1"); !errors.Is(err, ErrTaken) {
		t.Errorf("mkdir over a file: got %v", err)
	}
	must(t, tr.Symlink("../alt/cc", dir+"/bin/cc"))
	must(t, tr.Symlink(dir+"/alt/cc", dir+"/bin/cc"))
	if err := tr.Symlink("other", dir+"/bin/cc"); !errors.Is(err, ErrTaken) {
		t.Errorf("another link: got %v", err)
	}
	must(t, tr.Hardlink(dir+"/lib/gcc/12/cc1", "/copy")) // the toolchain's own cannot be linked
	if got := content(t, tr, "/copy"); got != "cc1" {
		t.Errorf("copy: got %q", got)
	}
	must(t, tr.Write("/twice", []byte("a"), when, false))
	if err := tr.Write("/twice", []byte("b"), when, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written twice: got %v", err)
	}
	must(t, tr.Clean())
	for name, text := range map[string]string{"lib/gcc/12/cc1": "cc1", "share/l/m.mo": "words"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
			t.Errorf("the host's %s: %q, %v", name, b, err)
		}
	}
}

// TestHostileResults lets a command leave what must not lead the reader astray.
func TestHostileResults(t *testing.T) {
	tr := shell(t, "ln", "mkfifo", "mkdir", "cat")
	o, out := runIn(t, tr, "/tmp", "/bin/sh", "-c", `
ln -s /etc/passwd abs; ln -s ../../../../../../etc/passwd rel; ln -s /proc/1/root/etc/passwd magic
ln -s / dir; ln -s /etc etc; mkfifo fifo; mkdir sub; ln -s self self; ln /tmp/fifo fifo2; >plain; ln plain plain2
ln -s /proc/self/cwd cwd`)
	if o.Exit != 0 {
		t.Fatal(out)
	}
	for _, name := range []string{"abs", "rel", "magic", "dir/etc/passwd", "etc/passwd", "fifo", "fifo2", "sub", "self", "self/x", "none",
		"cwd/plain", "../proc/1/root/etc/passwd", "../proc/self/environ", "../dev/zero", "../bin/sh", "..", "../.."} {
		if f, err := tr.Open("/tmp/" + name); err == nil {
			t.Errorf("%s: opened, %d bytes", name, f.Size)
			unix.Close(f.FD)
		}
	}
	for _, name := range []string{"plain", "plain2", "dir/tmp/plain"} {
		f, err := tr.Open("/tmp/" + name)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(f.FD)
	}
	// What is written goes into the tree's own /etc.
	must(t, tr.Write("/tmp/etc/rdistcc-tree-test", []byte("x"), when, false))
	if _, err := os.Stat("/etc/rdistcc-tree-test"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the host: %v", err)
	}
	must(t, tr.Clean())
}

// TestDeepDirectories: deeply nested directories are made, found and removed, down to a bound.
func TestDeepDirectories(t *testing.T) {
	tr := newTree(t, Spec{})
	before := everything(t, tr)
	for _, depth := range []int{150, maxDepth - 1} {
		dir := strings.Repeat("/d", depth)
		must(t, tr.Write(dir+"/f", []byte("text"), when, false))
		f, err := tr.Open(dir + "/f")
		must(t, err)
		unix.Close(f.FD)
		must(t, tr.Clean())
		if after := everything(t, tr); !slices.Equal(before, after) {
			t.Errorf("%d directories: left %q, want %q", depth, after, before)
		}
	}
	if err := tr.Mkdirs(strings.Repeat("/d", 2*maxDepth)); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("beyond the bound: %v", err)
	}
	must(t, tr.Clean())
}

// TestEndlessNames: the kernel would not take them either, and to look at all beginnings of one of 4 MiB took minutes.
func TestEndlessNames(t *testing.T) {
	tr := shell(t)
	must(t, tr.Write("/w/f", nil, when, false))
	dir := "/w" + strings.Repeat("/a/..", unix.PathMax/5)
	_, openErr := tr.Open(dir + "/f")
	for what, err := range map[string]error{
		"a directory": tr.Mkdirs(dir), "a file": tr.Write(dir+"/g", nil, when, false), "a link": tr.Symlink("/", dir+"/l"),
		"an output": openErr, "a link's file": tr.Hardlink(dir+"/f", "/w/h"), "its other name": tr.Hardlink("/w/f", dir+"/h"),
	} {
		if !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("%s: got %v, want ENAMETOOLONG", what, err)
		}
	}
	must(t, tr.Mkdirs("/w"+strings.Repeat("/a/..", 800)))
	must(t, tr.Clean())
}

func TestManyDirectories(t *testing.T) {
	tr := shell(t)
	text := bytes.Repeat([]byte("y"), 100)
	var names []string
	for i := range 5 * maxOpenDirs {
		names = append(names, "/d"+strings.Repeat("/sub", i%7)+"/e"+string(rune('a'+i%26))+"/f"+string(rune('A'+i/26))+"/file")
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		must(t, tr.Write(name, text, when, false))
		must(t, tr.Hardlink(name, "/links"+name))
	}
	for _, name := range names {
		must(t, tr.Write(name+"2", text, when, false))
		if content(t, tr, "/links"+name) != string(text) {
			t.Errorf("%s: wrong content", name)
		}
	}
	if n := len(tr.job.open); n > maxOpenDirs {
		t.Errorf("%d directories are open", n)
	}
	if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
		t.Errorf("unexpected: %q, %v", left, err)
	}
	must(t, tr.Clean())
}

func TestWriteAllocations(t *testing.T) {
	tr := newTree(t, Spec{})
	text := []byte("text")
	must(t, tr.Write("/usr/include/first.h", text, when, false))
	names := make([]string, 300)
	for i := range names {
		names[i] = "/usr/include/" + time.Duration(i).String()
	}
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		_ = tr.Write(names[i], text, when, false)
		i++
	}); n > 3 {
		t.Errorf("%v allocations for a file", n)
	}
}
