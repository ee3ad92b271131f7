package privatetree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzNames does with names of any kind what a job does. Nothing of it may reach
// the host, and nothing may stay.
func FuzzNames(f *testing.F) {
	for _, names := range [][3]string{
		{"/a/../b/c.h", "/a/./d.h", "/b"},
		{"/link/../../x", "link/../..", "/proc/self/root/x"},
		{"//..//dev/null", "/dev/fd/../../x", "../../.."},
		{"/w/l/l/l", "l", "/w/l/.."},
		{"/tmp/\x00/x", "", "/"},
		{strings.Repeat("/x", 300), strings.Repeat("../", 50), strings.Repeat("n", 300)},
	} {
		f.Add(names[0], names[1], names[2])
	}
	host, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(host, "file")
	if err := os.WriteFile(file, []byte("host"), 0o600); err != nil {
		f.Fatal(err)
	}
	tr := newTree(f, Spec{Files: []string{file}, Dirs: []string{"/usr/share/locale"}})
	f.Add(file, "../"+file, host+"/new")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		before := everything(t, tr)
		_ = tr.Symlink(b, a)
		_ = tr.Symlink(a, c)
		for _, name := range []string{a, b, c, a + "/" + b, "/w/" + b, "/w/" + c, a + "/../" + c} {
			err := tr.Mkdirs(name)
			if err == nil && name == "" {
				t.Error("no name, but a directory")
			}
			err = tr.Write(name+"/f", []byte("text"), when, false)
			if f, oerr := tr.Open(name + "/f"); oerr == nil {
				unix.Close(f.FD)
				if f.Size != 4 {
					t.Errorf("%q: %d bytes", name, f.Size)
				}
			} else if err == nil {
				t.Errorf("%q was written: %v", name, oerr)
			}
			_ = tr.Hardlink(a+"/f", name)
		}
		if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
			t.Errorf("unexpected: %q, %v", left, err)
		}
		must(t, tr.Clean())
		if after := everything(t, tr); !slices.Equal(before, after) {
			t.Errorf("got %q, want %q", after, before)
		}
		list, err := os.ReadDir(host)
		must(t, err)
		if text, err := os.ReadFile(file); len(list) != 1 || err != nil || string(text) != "host" {
			t.Errorf("the host's directory has %v, %q, %v", list, text, err)
		}
	})
}
