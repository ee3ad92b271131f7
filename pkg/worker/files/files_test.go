package files

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func idOf(content string) unit.ContentID { return sha256.Sum256([]byte(content)) }

// TestOwnFiles: files of this machine that not every user can read are never used.
func TestOwnFiles(t *testing.T) {
	dir := "/usr/lib/rdistcc-test"
	if os.Getuid() != 0 || os.Mkdir(dir, 0o755) != nil {
		t.Skip("only root may write to /usr/lib")
	}
	defer os.RemoveAll(dir)
	const content = "a content of some length\n"
	put := func(name string, mode os.FileMode) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, mode := range map[string]os.FileMode{"open": 0o755, "closed": 0o750} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("open", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("open/a.h", filepath.Join(dir, "link.h")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.h"), 0o666); err != nil {
		t.Fatal(err)
	}
	good := put("open/a.h", 0o644)
	x := store.New(store.Options{Memory: 1 << 20}).Open("x")
	own := reader{keeps: x}
	find := func(name string) bool {
		c := own.find(&job.ListedFile{Name: name, Len: uint64(len(content)), Content: idOf(content)})
		if c != nil {
			c.Unpin()
		}
		return c != nil
	}
	if !find(good) {
		t.Error("a file that any user may read is not found")
	}
	for what, name := range map[string]string{
		"a file that not any user may read":      put("open/b.h", 0o640),
		"one in a directory that is closed":      put("closed/c.h", 0o644),
		"a link":                                 filepath.Join(dir, "link.h"),
		"a file behind a link":                   filepath.Join(dir, "link/a.h"),
		"a FIFO":                                 filepath.Join(dir, "fifo.h"),
		"a directory":                            filepath.Join(dir, "open"),
		"a file that is not there":               filepath.Join(dir, "open/d.h"),
		"a name with dots":                       dir + "/../rdistcc-test/open/a.h",
		"a name that is none of the system's":    "/etc/passwd",
		"a relative name":                        "usr/lib/rdistcc-test/open/a.h",
		"a name with a slash too many":           dir + "//open/a.h",
		"a file that a name with NUL would lead": good + "\x00",
	} {
		if find(name) {
			t.Errorf("%s is taken", what)
		}
	}
}

// FuzzLists: whatever a list says, files and contents fit each other, within their bound.
func FuzzLists(f *testing.F) {
	content := "content"
	id := idOf(content)
	seed := job.List{Files: []job.ListedFile{{Name: "a", Len: 7, Content: id}, {Name: "b", Same: 1}, {Name: "c", Content: idOf("")}}, Dirs: []string{"d"}}
	f.Add(seed.Append(nil), uint64(100))
	f.Add((&job.List{}).Append(nil), uint64(0))
	base := string(seed.Append(nil))
	for _, l := range []job.List{
		{Base: idOf(base), Without: []uint32{2}, Files: []job.ListedFile{{Name: "d"}, {Name: "e", Same: 1}}},
		{Base: idOf(base), Without: []uint32{0, 1}},
		{Base: idOf(base), Without: []uint32{0}},
		{Base: idOf(base), Without: []uint32{3}},
		{Base: id},
	} {
		f.Add(l.Append(nil), uint64(100))
	}
	s := store.New(store.Options{Memory: 64 << 20})
	x := s.Open("x")
	put := func(content string) {
		c, err := x.Put(idOf(content), []byte(content))
		if err != nil {
			f.Fatal(err)
		}
		c.Unpin()
	}
	put(content)
	put(base)
	f.Fuzz(func(t *testing.T, encoded []byte, most uint64) {
		in := &Set{Body: &job.Body{Files: []unit.File{{Name: "own"}}}, Text: [][]byte{nil}}
		e := expansion{in: in, keeps: x, most: most, names: map[string]struct{}{"own": {}}}
		put(string(encoded))
		err := e.list(idOf(string(encoded)))
		defer in.Free()
		if err != nil {
			return
		}
		if len(in.Text) != len(in.Body.Files) || in.Size() > most {
			t.Fatalf("%d contents of %d files, %d bytes of %d", len(in.Text), len(in.Body.Files), in.Size(), most)
		}
		for i, f := range in.Body.Files {
			if f.Len != uint64(len(in.Text[i])) || int(f.Same) > i || f.Same == 1 {
				t.Fatalf("file %+v of %d bytes", f, len(in.Text[i]))
			}
		}
	})
}
