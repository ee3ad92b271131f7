package privatetree

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// surveyed counts the directories that stand, and those of them that the last command has changed as far as known.
func surveyed(t *testing.T, tr *Tree) (all, changed int) {
	t.Helper()
	must(t, tr.survey())
	for _, s := range tr.byIno {
		if all++; s.changed {
			changed++
		}
	}
	return all, changed
}

// TestNextJob lays out a job like the last one: nothing is looked up, and of 300 directories only those in which files
// were made are read.
func TestNextJob(t *testing.T) {
	for name, tr := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			for job := range 4 {
				must(t, tr.KeepDir("/w/src"))
				for i := range 300 {
					must(t, tr.KeepDir(fmt.Sprintf("/w/src/./d%d/../e%d", i, i)))
					if file := fmt.Sprintf("/w/include/i%d/%d.h", i, i); job == 0 {
						keep(t, tr, file)
					} else if _, ok := tr.Keeps(file); !ok {
						t.Fatalf("job %d: %s is gone", job, file)
					}
				}
				file := fmt.Sprintf("/w/include/i7/job%d.h", job)
				keep(t, tr, file)
				must(t, tr.Write("/w/src/a.c", []byte("source"), when, false))
				if n := len(tr.job.spelled) + len(tr.job.open); n > 0 {
					t.Errorf("job %d: %d lookups", job, n)
				}
				if made := len(tr.touched); job > 1 && made > 4 { // the root's own, /tmp, where the source is and the new header
					t.Errorf("job %d: %d directories are looked at before the command", job, made)
				}
				if o, out := runIn(t, tr, "/w/src", "/bin/sh", "-c", "cat a.c >a.o; cat ../include/i299/299.h"); o.Exit != 0 || out != "/w/include/i299/299.h" {
					t.Fatal(o, out)
				}
				f, err := tr.Open("/w/src/a.o")
				must(t, err)
				unix.Close(f.FD)
				if n := len(tr.job.spelled) + len(tr.job.open); n > 0 {
					t.Errorf("job %d: %d lookups for an output", job, n)
				}
				if left, err := tr.Unexpected(anyTime); err != nil || len(left) > 0 {
					t.Errorf("job %d: unexpected: %q, %v", job, left, err)
				}
				if all, changed := surveyed(t, tr); all < 900 || job > 1 && changed > 4 {
					t.Errorf("job %d: %d of %d directories are read", job, changed, all)
				}
				must(t, tr.Clean())
			}
		})
	}
}

// TestKeepDir drops kept directories by the names that they were given, with what they need.
func TestKeepDir(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh"), Keep: 1 << 20})
	before := everything(t, tr)
	ls := func(want string) {
		t.Helper()
		if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /w* /w/* /w/*/* /real*"); out != want+"\n" {
			t.Errorf("got %s, want %s", out, want)
		}
		must(t, tr.Clean())
	}
	must(t, tr.KeepDir("/w/a"))
	must(t, tr.Symlink("/real", "/w/link"))
	for _, name := range []string{"/w/a", "/w/b/../c", "/w/./d//e/", "/w/link/sub", "/w/link/../f", "/../w/a", "/"} {
		must(t, tr.KeepDir(name))
	}
	ls("/w /w/a /w/b /w/c /w/d /w/link /w/d/e /w/link/sub /real")
	ls("/w /w/a /w/b /w/c /w/d /w/d/e /real*") // names that lead through a link of the job's are for that job
	none := func(string, Kept) bool { return false }
	must(t, tr.Retain(none, func(name string) bool { return name == "/w/b/../c" || name == "/../w/a" }))
	ls("/w /w/a /w/b /w/c /w/*/* /real*")
	keep(t, tr, "/w/c/h/x.h")
	must(t, tr.Retain(func(string, Kept) bool { return true }, nothing))
	ls("/w /w/c /w/c/h /real*")
	must(t, tr.Write("/w/c/h/y.h", nil, when, false))
	if err := tr.KeepDir("/w/c/h/y.h"); err == nil {
		t.Error("a file is a directory")
	}
	if err := tr.KeepDir("rel"); err == nil {
		t.Error("a relative name")
	}
	must(t, tr.Clean())
	must(t, tr.Retain(none, nothing))
	if tr.KeptBytes() != 0 || len(tr.kept.dirs)+len(tr.kept.spelled) > 0 {
		t.Errorf("kept: %d bytes, %d directories", tr.KeptBytes(), len(tr.kept.dirs))
	}
	if after := everything(t, tr); !slices.Equal(after, before) {
		t.Errorf("got\n%q\nwant\n%q", after, before)
	}
}

// TestNoRoomForDirs: a tree that keeps enough makes directories for one job.
func TestNoRoomForDirs(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh"), Keep: 3 * keptOverhead})
	for _, name := range []string{"/a/b", "/c/d/e/f"} {
		must(t, tr.KeepDir(name))
	}
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /a/* /c/d/e/*"); out != "/a/b /c/d/e/f\n" {
		t.Errorf("the job sees %s", out)
	}
	must(t, tr.Clean())
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo /a/* /c*"); out != "/a/b /c*\n" {
		t.Errorf("the next job sees %s", out)
	}
	if tr.KeptBytes() > 3*keptOverhead {
		t.Errorf("%d bytes are kept", tr.KeptBytes())
	}
}

// TestHostileInKeptDirs has commands change directories that the next job is to find as they were, right after they
// were made.
func TestHostileInKeptDirs(t *testing.T) {
	today := part.Of(t)
	for _, script := range []string{
		"echo x >empty/new", "echo x >deep/new.h", "echo x >deep/er/new.h; rm deep/er/new.h", "rmdir empty", "rmdir empty; mkdir empty", "mv empty e2",
		"mv empty e2; mv e2 empty", "mv empty e2; ln -s /tmp empty", "chmod 777 empty", "chmod 777 empty; chmod 755 empty", "chmod 0 empty", "touch -d @1 empty",
		"mv deep d; mkdir -p deep/er; cp d/a.h deep/a.h", "mv deep/er empty/er; mkdir deep/er", "mv deep /tmp/d; ln -s /tmp/d deep", "ln -s / empty/root", "ln -s . empty/.",
		"mkfifo empty/fifo", "mkdir -p empty/x/y; chmod 0 empty/x", "mv /w /w2; mkdir /w", "cd empty; echo x >../deep/.hidden", "(sleep 1; echo x >empty/late) &",
	} {
		if !today.Has("dirs " + script) {
			continue
		}
		for name, tr := range keepers(t, "chmod", "touch", "rm", "rmdir", "mv", "cp", "mkdir", "ln", "mkfifo", "sleep") {
			for range 3 {
				must(t, tr.KeepDir("/w/src/empty"))
				if _, ok := tr.Keeps("/w/src/deep/a.h"); !ok {
					keep(t, tr, "/w/src/deep/a.h")
					must(t, tr.KeepDir("/w/src/deep/er"))
				}
				_, _ = runIn(t, tr, "/w/src", "/bin/sh", "-c", script+"\n:")
				_, _ = tr.Unexpected(anyTime)
				err := tr.Clean()
				if errors.Is(err, ErrSpoiled) {
					break // nothing of this tree will be used
				}
				if err != nil {
					t.Errorf("%s, %s: %v", name, script, err)
					break
				}
				if _, out := runIn(t, tr, "/w/src", "/bin/sh", "-c", "echo /w* * */* */.[!.]* */*/*; cat deep/a.h"); out != "/w deep empty deep/a.h deep/er */.[!.]* */*/*\n/w/src/deep/a.h" {
					t.Errorf("%s, %s: the next job sees\n%s", name, script, out)
				}
				must(t, tr.Clean())
			}
		}
	}
}

// TestUnexpectedAtOnce has a command make a file in the same tick of the clock, perhaps, in which its directory was
// changed for it.
func TestUnexpectedAtOnce(t *testing.T) {
	for name, tr := range keepers(t) {
		for i := range 20 {
			keep(t, tr, fmt.Sprintf("/w/d/%d.h", i))
			must(t, tr.KeepDir(fmt.Sprintf("/w/d/sub%d", i)))
			_, _ = runIn(t, tr, "/w/d", "/bin/sh", "-c", fmt.Sprintf("echo >x; echo >sub%d/y", i))
			left, err := tr.Unexpected(anyTime)
			if want := []string{fmt.Sprintf("/w/d/sub%d/y", i), "/w/d/x"}; err != nil || !slices.Equal(left, want) {
				t.Errorf("%s: got %q, %v, want %q", name, left, err, want)
			}
			must(t, tr.Clean())
		}
	}
}
