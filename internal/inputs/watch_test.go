package inputs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// watched is a tree of which all directories are watched: headers are looked for in a/m, b/m and c/m.
type watched struct {
	t   *testing.T
	dir string
	tab *Table
}

func newWatched(t *testing.T) *watched {
	w := &watched{t, filepath.Join(t.TempDir(), "w"), New(Options{})}
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Dir(w.dir), &fs) != nil || !stamp.Told(&fs) {
		t.Skip("the file system of TMPDIR is none of whose changes the kernel tells")
	}
	w.fill(w.dir)
	return w
}

// fill makes a tree.
func (w *watched) fill(dir string) {
	for _, sub := range []string{"a", "b", "c"} {
		if err := os.MkdirAll(dir+"/"+sub+"/m", 0o777); err != nil {
			w.t.Fatal(err)
		}
	}
	put(w.t, dir+"/x.c", "#include <m/h.h>\n#if __has_include(<m/n.h>)\n#include <m/n.h>\n#endif\n")
	put(w.t, dir+"/c/m/h.h", "int h;\n")
}

func (w *watched) resolve(t *Table) (names []string) {
	w.t.Helper()
	s, err := t.Resolve(&Query{Key: "x", Source: "x.c", Cwd: w.dir, Angle: []string{"a", "b", "c"}, GCC: true})
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range s.Files {
		names = append(names, fmt.Sprintf("%s %x", f.Name, f.ID[:4]))
	}
	return names
}

// settle has everything known and watched.
func (w *watched) settle() {
	w.t.Helper()
	time.Sleep(time.Duration(2 * stamp.Tick))
	for range 4 {
		w.resolve(w.tab)
	}
	for _, sub := range []string{"/a/m", "/b/m", "/c/m"} {
		if d := w.tab.dirs[w.dir+sub]; d == nil || !w.tab.sound(d) {
			w.t.Fatalf("%s is not watched", sub)
		}
	}
}

// TestWatchedChanges: what the kernel tells leads to what a table finds that knows nothing, whatever way a change takes.
func TestWatchedChanges(t *testing.T) {
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, change := range map[string]func(w *watched){
		"an earlier header":   func(w *watched) { put(t, w.dir+"/a/m/h.h", "int a;\n") },
		"a later one":         func(w *watched) { put(t, w.dir+"/b/m/n.h", "int n;\n") },
		"a second name":       func(w *watched) { do(os.Link(w.dir+"/c/m/h.h", w.dir+"/a/m/h.h")) },
		"a symbolic link":     func(w *watched) { do(os.Symlink("../../c/m/h.h", w.dir+"/a/m/h.h")) },
		"removed":             func(w *watched) { do(os.Remove(w.dir + "/c/m/h.h")) },
		"renamed":             func(w *watched) { do(os.Rename(w.dir+"/c/m/h.h", w.dir+"/a/m/h.h")) },
		"a directory is gone": func(w *watched) { do(os.RemoveAll(w.dir + "/c/m")) },
		"two directories are swapped": func(w *watched) {
			do(unix.Renameat2(unix.AT_FDCWD, w.dir+"/a", unix.AT_FDCWD, w.dir+"/c", unix.RENAME_EXCHANGE))
		},
		"a directory above is another": func(w *watched) {
			w.fill(w.dir + "2")
			put(t, w.dir+"2/a/m/h.h", "int other;\n")
			do(os.Rename(w.dir, w.dir+"1"), os.Rename(w.dir+"2", w.dir))
		},
		"and is back, changed": func(w *watched) {
			do(os.Rename(w.dir, w.dir+"1"), os.Mkdir(w.dir, 0o777))
			put(t, w.dir+"1/a/m/h.h", "int a;\n")
			w.resolve(w.tab)
			do(os.Remove(w.dir), os.Rename(w.dir+"1", w.dir))
		},
		"a link in a directory's place": func(w *watched) {
			do(os.Rename(w.dir+"/a/m", w.dir+"/m"), os.Symlink("../m", w.dir+"/a/m"))
			w.resolve(w.tab)
			put(t, w.dir+"/m/h.h", "int m;\n")
		},
		"a directory in a header's place": func(w *watched) { do(os.Remove(w.dir+"/c/m/h.h"), os.Mkdir(w.dir+"/c/m/h.h", 0o777)) },
		"changed by a second name": func(w *watched) {
			do(os.Link(w.dir+"/c/m/h.h", w.dir+"/z.h"))
			w.resolve(w.tab)
			put(t, w.dir+"/z.h", "int z, z2;\n")
		},
		"another tree's directory, with what it had been asked": func(w *watched) {
			w.fill(w.dir + "/other")
			put(t, w.dir+"/other/c/m/n.h", "int n;\n")
			do(os.Rename(w.dir+"/c", w.dir+"/old"), os.Rename(w.dir+"/other/c", w.dir+"/c"))
		},
		"more than the queue holds": func(w *watched) {
			for i := range 20000 {
				name := fmt.Sprintf("%s/b/m/o%d", w.dir, i%2)
				if put(t, name, ""); i == 19000 {
					put(t, w.dir+"/a/m/h.h", "int a;\n")
				}
				do(os.Remove(name))
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWatched(t)
			w.settle()
			for range 2 {
				change(w)
				for range 3 {
					if got, want := w.resolve(w.tab), w.resolve(New(Options{})); !slices.Equal(got, want) {
						t.Fatalf("%q, want %q", got, want)
					}
				}
				if what != "a later one" { // a change within the same tick, told of as well
					break
				}
				put(t, w.dir+"/a/m/n.h", "int n;\n")
				put(t, w.dir+"/a/m/h.h", "int h;\n")
			}
		})
	}
}

// TestWatchedMounts: what is mounted on a directory is noticed although nothing changes in it.
func TestWatchedMounts(t *testing.T) {
	w := newWatched(t)
	defer func(n int) { runtime.GOMAXPROCS(n) }(runtime.GOMAXPROCS(1)) // no helper reads, which would see no mounts
	runtime.LockOSThread()                                             // which ends with the goroutine: its mounts are its own
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		need.Skipf(t, need.Network, "may not mount: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		need.Skipf(t, need.Network, "may not mount: %v", err)
	}
	w.tab.watcher.table = fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid())
	w.settle()
	w.fill(w.dir + "/other")
	put(t, w.dir+"/other/a/m/h.h", "int other;\n")
	w.settle()
	for _, on := range []bool{true, false, true} {
		var err error
		if on {
			err = unix.Mount(w.dir+"/other/a/m", w.dir+"/a/m", "", unix.MS_BIND, "")
		} else {
			err = unix.Unmount(w.dir+"/a/m", 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got, want := w.resolve(w.tab), w.resolve(New(Options{})); !slices.Equal(got, want) || len(got) != 2 {
				t.Fatalf("mounted: %v: %q, want %q", on, got, want)
			}
		}
	}
	if err := unix.Unmount(w.dir+"/a/m", 0); err != nil {
		t.Fatal(err)
	}
}

// TestWatchesEnd: a table that drops a directory no longer has it watched, and one that may watch few looks at the others.
func TestWatchesEnd(t *testing.T) {
	w := newWatched(t)
	w.settle()
	w.tab.mu.Lock()
	w.tab.forget()
	n := len(w.tab.watcher.dirs)
	w.tab.watcher.most = 3
	w.tab.mu.Unlock()
	if n != 0 {
		t.Errorf("%d directories are watched", n)
	}
	for range 4 {
		w.resolve(w.tab)
	}
	if n := len(w.tab.watcher.dirs); n != 3 {
		t.Errorf("%d of 3 directories are watched", n)
	}
	if st := w.tab.Stats(); st.Watched != 3 || st.MostWatched != 3 || !st.Short {
		t.Errorf("the table says %+v", st)
	}
	for i, name := range []string{"c/m/n.h", "b/m/h.h", "a/m/h.h"} {
		put(t, w.dir+"/"+name, fmt.Sprintf("int v%d;\n", i))
		if got, want := w.resolve(w.tab), w.resolve(New(Options{})); !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestSideBySide: commands that are resolved at the same time, while files change, find what was there when they came or later.
func TestSideBySide(t *testing.T) {
	w := newWatched(t)
	w.settle()
	for i := range 30 {
		name := w.dir + []string{"/a/m/h.h", "/b/m/h.h"}[i%2]
		if i%3 == 0 {
			_ = os.Remove(name)
		} else {
			put(t, name, fmt.Sprintf("int v%d;\n", i))
		}
		want := w.resolve(New(Options{}))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got := w.resolve(w.tab); !slices.Equal(got, want) {
					t.Errorf("change %d: %q, want %q", i, got, want)
				}
			})
		}
		all.Wait()
	}
}
