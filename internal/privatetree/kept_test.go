package privatetree

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

func keptOf(content string) Kept { return Kept{Sum: sha256.Sum256([]byte(content)), MTime: when} }

// nothing is no directory that a job wants.
func nothing(string) bool { return false }

// keep makes a tree keep files whose content is their name.
func keep(t *testing.T, tr *Tree, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, tr.Keep(name, keptOf(name), []byte(name)))
		if _, ok := tr.Keeps(name); !ok {
			t.Fatalf("%s is not kept", name)
		}
	}
}

// keepers returns trees whose commands run as the files' owner, and as another user.
func keepers(t *testing.T, names ...string) map[string]*Tree {
	t.Helper()
	files := programs(t, append(names, "/bin/sh", "cat")...)
	specs := map[string]Spec{"the same user": {Files: files, Keep: 1 << 22}}
	if os.Geteuid() == 0 && MayMount() {
		specs["a user of its own"] = Spec{Files: files, Keep: 1 << 22, UID: 65533, GID: 65533}
	}
	trees := make(map[string]*Tree)
	for name, s := range specs {
		trees[name] = newTree(t, s)
		if trees[name].fine { // as it is with older kernels
			trees[name+", a coarse clock"] = newTree(t, s)
			trees[name+", a coarse clock"].fine = false
		}
	}
	return trees
}

func TestKeep(t *testing.T) {
	for name, tr := range keepers(t, "ls", "stat", "find") {
		t.Run(name, func(t *testing.T) {
			before := everything(t, tr)
			keep(t, tr, "/w/src/a.h", "/w/src/deep/er/b.h", "/usr/include/c.h")
			for i := range 3 {
				must(t, tr.Write(fmt.Sprintf("/w/src/%d.c", i), []byte("source"), when, false))
				o, out := runIn(t, tr, "/w/src", "/bin/sh", "-c", "cat a.h deep/er/b.h /usr/include/c.h; echo; stat -c %Y deep/er/b.h; ls; echo object >a.o")
				want := fmt.Sprintf("/w/src/a.h/w/src/deep/er/b.h/usr/include/c.h\n%d\n%d.c\na.h\ndeep\n", when/1e9, i)
				if o.Exit != 0 || out != want {
					t.Fatalf("job %d: %+v, got\n%s\nwant\n%s", i, o, out, want)
				}
				more, err := tr.Unexpected(func() error { return nil })
				if err != nil || !slices.Equal(more, []string{"/w/src/a.o"}) {
					t.Fatalf("job %d: unexpected %q, %v", i, more, err)
				}
				must(t, tr.Clean())
			}
			must(t, tr.Retain(func(name string, _ Kept) bool { return name == "/usr/include/c.h" }, nothing))
			if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /w /usr/include/*"); out != "/w /usr/include/c.h\n" {
				t.Errorf("after Retain: %s", out)
			}
			must(t, tr.Clean())
			must(t, tr.Retain(func(string, Kept) bool { return false }, nothing))
			if tr.KeptBytes() != 0 || tr.KeepsBase("c.h") {
				t.Errorf("kept: %d bytes", tr.KeptBytes())
			}
			if after := everything(t, tr); !slices.Equal(after, before) {
				t.Errorf("got\n%q\nwant\n%q", after, before)
			}
		})
	}
}

// TestKeptIsReadOnly has commands try to change what the next job is to see.
func TestKeptIsReadOnly(t *testing.T) {
	today := part.Of(t)
	for _, script := range []string{
		"echo x >a.h", "echo x >>a.h", "chmod u+w a.h; echo x >a.h", "chmod u+w a.h; printf /w/src/A.h >a.h; touch -d @1000000000 a.h; chmod u-w a.h",
		"rm -f a.h", "rm -f a.h; printf /w/src/a.h >a.h; touch -d @1000000000 a.h; chmod 444 a.h", "mv a.h b.h", "mv a.h b.h; printf x >a.h",
		"mv a.h b.h; mv b.h a.h", "cp a.h b.h; mv b.h a.h", "mv ../src ../src2; mkdir ../src", "mv deep d; mkdir deep; echo x >deep/b.h", "rm -rf deep", "ln a.h l.h",
		"touch a.h", "truncate -s 3 a.h", "chmod 777 .; chmod 777 deep", "mv deep/b.h a.h",
	} {
		if !today.Has(script) {
			continue
		}
		for name, tr := range keepers(t, "chmod", "touch", "rm", "mv", "cp", "mkdir", "ln", "truncate") {
			keep(t, tr, "/w/src/a.h", "/w/src/deep/b.h")
			_, _ = runIn(t, tr, "/w/src", "/bin/sh", "-c", script+"\n:")
			err := tr.Clean()
			if errors.Is(err, ErrSpoiled) {
				continue // nothing of this tree will be used
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, script, err)
				continue
			}
			if _, out := runIn(t, tr, "/w/src", "/bin/sh", "-c", "cat a.h deep/b.h; echo; echo * deep/*"); out != "/w/src/a.h/w/src/deep/b.h\na.h deep deep/b.h\n" {
				t.Errorf("%s, %s: the next job sees\n%s", name, script, out)
			}
		}
	}
}

// TestKeptInTheSameTick has a command change what was made in the same tick of the clock, so that nothing
// but the content tells.
func TestKeptInTheSameTick(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "cat"), Keep: 1 << 20})
	keep(t, tr, "/w/a.h")
	if o, _ := runIn(t, tr, "/w", "/bin/sh", "-c", "cat a.h"); o.Exit != 0 {
		t.Fatal(o)
	}
	// As it is where the kernel's stamps do not tell.
	f := tr.kept.files["/w/a.h"]
	fd, err := unix.Openat(tr.root, "w/a.h", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("needs root to write to it: ", err)
	}
	_, err = unix.Pwrite(fd, []byte("X"), 0)
	must(t, errors.Join(err, setTime(fd, when), unix.Close(fd)))
	var st unix.Stat_t
	must(t, unix.Fstatat(tr.root, "w/a.h", &st, 0))
	f.st = stampOf(&st)
	tr.began = st.Ctim
	if err := tr.Clean(); !errors.Is(err, ErrSpoiled) {
		t.Errorf("a kept file with another content: %v", err)
	}
}

// TestKeepElsewhere keeps what cannot be kept: for this job it is there.
func TestKeepElsewhere(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "cat"), Keep: 1 << 20})
	must(t, tr.Symlink("/real", "/w/link"))
	must(t, tr.Mkdirs("/real"))
	content := strings.Repeat("x", 1<<20)
	for _, name := range []string{"/w/link/a.h", "/w/../w/b.h", "/w//c.h"} {
		must(t, tr.Keep(name, keptOf(name), []byte(name)))
		if _, ok := tr.Keeps(name); ok {
			t.Errorf("%s is kept, by a name that may mean something else for the next job", name)
		}
	}
	must(t, tr.Keep("/w/big.h", keptOf(content), []byte(content)))
	if _, ok := tr.Keeps("/w/big.h"); ok {
		t.Error("more is kept than there is room for")
	}
	// What the toolchain has, with the same content, need not be looked at again.
	file, err := filepath.EvalSymlinks("/bin/sh")
	must(t, err)
	sh, err := os.ReadFile(file)
	must(t, err)
	must(t, tr.Keep(file, keptOf(string(sh)), sh))
	if k, ok := tr.Keeps(file); !ok || k != keptOf(string(sh)) {
		t.Error("the toolchain's own file is not known")
	}
	if err := tr.Keep("/usr/bin/cat", keptOf("other"), []byte("other")); !errors.Is(err, ErrTaken) {
		t.Errorf("another file than the toolchain's: %v", err)
	}
	if o, out := runIn(t, tr, "/w", "/bin/sh", "-c", "cat link/a.h b.h c.h big.h"); o.Exit != 0 || out != "/w/link/a.h/w/../w/b.h/w//c.h"+content {
		t.Errorf("%+v: %.200s", o, out)
	}
	must(t, tr.Clean())
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /w* /real*"); out != "/w* /real*\n" {
		t.Errorf("left: %s", out)
	}
}
