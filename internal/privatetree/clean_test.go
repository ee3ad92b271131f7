package privatetree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// everything lists all that a tree's file system has, with modes.
func everything(t *testing.T, tr *Tree) []string {
	t.Helper()
	var names []string
	var walk func(fd int, name string)
	walk = func(fd int, name string) {
		defer unix.Close(fd)
		list, err := tr.list(fd)
		must(t, err)
		for _, e := range list {
			var st unix.Stat_t
			must(t, unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW))
			names = append(names, fmt.Sprintf("%s/%s %o", name, e.name, st.Mode))
			if e.typ != unix.DT_DIR {
				continue
			}
			sub, err := openDir(fd, e.name)
			must(t, err)
			if must(t, unix.Fstat(sub, &st)); st.Dev == tr.dev {
				walk(sub, name+"/"+e.name)
			} else {
				unix.Close(sub)
			}
		}
	}
	fd, err := openDir(tr.root, ".")
	must(t, err)
	walk(fd, "")
	slices.Sort(names)
	return names
}

func TestClean(t *testing.T) {
	tr := shell(t, "mkdir", "ln", "mkfifo", "chmod", "touch", "seq", "sleep")
	before := everything(t, tr)
	for _, script := range []string{
		"",
		"echo x >/tmp/ccabc.s; echo x >/tmp/.hidden; echo x >/w/a.o; echo >/w/src/b.gcno",
		"echo x >/usr/bin/new; echo x >/usr/lib/new; echo >/dev/new; mkdir -p /usr/share/doc/x; echo >/file; mkdir /dir",
		"ln -s / /tmp/root; ln -s /w /w/self; mkfifo /tmp/fifo; ln /w/src/a.c /w/hard; ln -s none '/w/od\nd'",
		"mkdir -p /w/x/y/z; echo >/w/x/y/z/f; chmod 0 /w/x/y/z /w/x/y /w/x",
		"mkdir -p /w/ro/sub; echo >/w/ro/f; chmod 500 /w/ro",
		"cd /tmp; mkdir $(seq 500); touch $(seq 501 3000)",
		"cd /tmp; for i in $(seq 100); do mkdir d; cd d; done; echo >f",
		"exec >/w/unlinked; rm -f /w/unlinked; sleep 1000 &",
		"cd /w; umask 777; echo x >a.o; mkdir d",
		"rm -rf /w; ln -s /usr /w",
	} {
		must(t, tr.Write("/w/src/a.c", []byte("text"), when, false))
		if o, out := runIn(t, tr, "/w", "/bin/sh", "-c", script+"\n:"); o.Signal != 0 {
			t.Fatal(o, out)
		}
		if err := tr.Clean(); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		if after := everything(t, tr); !slices.Equal(after, before) {
			t.Fatalf("%s: got\n%q\nwant\n%q", script, after, before)
		}
	}
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /* /tmp/* /tmp/.*"); !strings.HasPrefix(out, "/bin /dev /") || !strings.Contains(out, "/tmp/* ") {
		t.Errorf("a command sees %s", out)
	}
}

func TestSpoiledTrees(t *testing.T) {
	long(t)
	for _, script := range []string{
		"mv /usr /usr2",
		"chmod 700 /tmp",
		"chmod 777 /usr/bin",
		"rm /dev/fd",
		"rm /dev/fd; ln -s /tmp /dev/fd",
		"mv /dev/fd /dev/fd2; ln -s /tmp /dev/fd",
		"cd /tmp; for i in $(seq 600); do mkdir d; cd d; done",
	} {
		t.Run(script, func(t *testing.T) {
			part.SkipCase(t)
			tr := shell(t, "mkdir", "mv", "chmod", "rm", "ln", "seq")
			must(t, tr.Clean()) // it has looked at all directories, and remembers when they were changed
			if o, out := runIn(t, tr, "/", "/bin/sh", "-c", script); o.Exit != 0 {
				t.Fatal(o, out)
			}
			if err := tr.Clean(); !errors.Is(err, ErrSpoiled) {
				t.Errorf("got %v, want ErrSpoiled", err)
			}
		})
	}
}

// TestMuchLitter: how much there is to remove a command decides, so that is not done one by one without end.
func TestMuchLitter(t *testing.T) {
	part.Skip(t)
	long(t)
	for what, left := range map[string]string{
		"files":       "cd /tmp; seq 5000 | xargs touch",
		"directories": "cd /tmp; for i in $(seq 50); do mkdir $i; cd $i; mkdir $(seq 1000 1100); cd ..; done",
	} {
		tr := shell(t, "mkdir", "seq", "touch", "xargs")
		if o, out := runIn(t, tr, "/", "/bin/sh", "-c", left); o.Exit != 0 {
			t.Fatal(o, out)
		}
		if err := tr.Clean(); !errors.Is(err, ErrLittered) {
			t.Errorf("%s: got %v, want ErrLittered", what, err)
		}
	}
	// A bare tree leaves its directory behind.
	dir := bareDir(t)
	tr := newTree(t, Spec{Bare: dir})
	for i := range maxRemoved + 10 {
		must(t, tr.Mkdirs(fmt.Sprintf("/tmp/d%d", i)))
	}
	must(t, tr.Clean())
	if list, err := os.ReadDir(dir + "/tmp"); err != nil || len(list) > 0 {
		t.Errorf("left in a bare tree: %v, %v", list, err)
	}
}

// TestCleanAtOnce changes directories within the same tick of the kernel's clock in which
// they were cleaned.
func TestCleanAtOnce(t *testing.T) {
	tr := shell(t)
	settled := 0
	for i := range 500 {
		for _, dir := range []string{"usr", "usr/bin", "tmp"} {
			fd, err := openDir(tr.root, dir)
			must(t, err)
			must(t, unix.Mkdirat(fd, "new", 0o700))
			must(t, tr.Clean())
			if err := unix.Faccessat(fd, "new", unix.F_OK, 0); !errors.Is(err, unix.ENOENT) {
				t.Fatalf("%d: /%s/new is still there: %v", i, dir, err)
			}
			unix.Close(fd)
		}
		for _, d := range tr.byIno {
			if d.ctime != (unix.Timespec{}) {
				settled++
			}
		}
	}
	if settled == 0 {
		t.Error("no directory is known as unchanged")
	}
}

// anyTime lets Unexpected look at all there is.
func anyTime() error { return nil }

// TestUnexpectedEndsWhenTold: how many directories there are the job says, and how long they may take its time limit.
func TestUnexpectedEndsWhenTold(t *testing.T) {
	tr := shell(t)
	for i := range 10 {
		must(t, tr.Mkdirs(fmt.Sprintf("/w/d%d", i)))
	}
	enough, asked := errors.New("enough"), 0
	_, err := tr.Unexpected(func() error {
		if asked++; asked == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || asked != 3 {
		t.Errorf("got %v after %d directories", err, asked)
	}
}

func TestUnexpected(t *testing.T) {
	tr := shell(t, "mkdir", "ln", "mv", "rm")
	if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
		t.Errorf("new: got %q, %v", left, err)
	}
	must(t, tr.Symlink("/p/work", "/p/pwd"))
	must(t, tr.Mkdirs("/p/work/build"))
	must(t, tr.Mkdirs("/p/out"))
	must(t, tr.Write("/p/work/src/a.c", []byte("text"), when, false))
	must(t, tr.Write("/p/work/build/../inc/a.h", []byte("text"), when, false))
	must(t, tr.Hardlink("/p/work/src/a.c", "/p/work/src/b.c"))
	must(t, tr.Mkdirs("/usr/bin")) // the toolchain's
	if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
		t.Errorf("before: got %q, %v", left, err)
	}
	o, out := runIn(t, tr, "/p/pwd/build", "/bin/sh", "-c", `
echo >../../out/a.o; echo >a.d; echo >a.su; echo >../src/a.gcno; echo >/tmp/ccx.s; mkdir dump; echo >dump/x; ln -s x l; echo >/p/work/inc/x; echo more >>../src/a.c`)
	if o.Exit != 0 {
		t.Fatal(out)
	}
	for _, name := range []string{"/p/out/a.o", "/p/pwd/build/../build/a.d"} {
		f, err := tr.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(f.FD)
	}
	want := []string{"/p/work/build/a.su", "/p/work/build/dump/", "/p/work/build/l", "/p/work/inc/x", "/p/work/src/a.gcno"}
	if left, err := tr.Unexpected(anyTime); err != nil || !slices.Equal(left, want) {
		t.Errorf("got %q, %v; want %q", left, err, want)
	}
	if o, out := runIn(t, tr, "/", "/bin/sh", "-c", "mv /p/out /p/old; mkdir /p/out; rm -r /p/work/build; mkdir /p/work/build"); o.Exit != 0 {
		t.Fatal(out)
	}
	want = []string{"/p/old/", "/p/out/", "/p/work/build/", "/p/work/inc/x", "/p/work/src/a.gcno"}
	if left, err := tr.Unexpected(anyTime); err != nil || !slices.Equal(left, want) {
		t.Errorf("directories that were replaced: got %q, %v; want %q", left, err, want)
	}
	must(t, tr.Mkdirs("/tmp"))
	if left, err := tr.Unexpected(anyTime); err != nil || !slices.Contains(left, "/tmp/ccx.s") {
		t.Errorf("with /tmp: got %q, %v", left, err)
	}
	must(t, tr.Clean())
	if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
		t.Errorf("after Clean: got %q, %v", left, err)
	}
}
