package files

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// TestInputs: files with the same content are as the tree has them, where the toolchain's may be in the place of one; it is
// not asked about others. What the tree cannot tell has no sum.
func TestInputs(t *testing.T) {
	set := func() *Set {
		return &Set{
			Body: &job.Body{Files: []unit.File{{Name: "/x.c", Len: 1, MTime: 1e9}, {Name: "/a.h", Len: 1, MTime: 2e9}, {Name: "/b.h", Len: 1, MTime: 2e9}, {Name: "/c.h", Same: 2, MTime: 9e9, Exec: true}}},
			Text: [][]byte{[]byte("x"), []byte("h"), []byte("h"), nil},
		}
	}
	asked := 0
	honest := map[string]uint64{"/a.h": 1, "/b.h": 2, "/c.h": 1}
	sumWith := func(inodes map[string]uint64, times map[string]int64) [32]byte {
		v, err := set().Inputs(func(name string) (resultcache.Inode, int64, error) {
			asked++
			at := int64(2e9)
			if own, is := times[name]; is {
				at = own
			}
			return resultcache.Inode{Dev: 7, Ino: inodes[name]}, at, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return v.Sum()
	}
	in := func(name, text string, sec int64, ino uint64) resultcache.Input {
		return resultcache.Input{Name: name, ID: idOf(text), MTime: sec * 1e9, Inode: resultcache.Inode{Dev: 1, Ino: ino}}
	}
	want := (&resultcache.Inputs{Files: []resultcache.Input{in("/x.c", "x", 1, 1), in("/a.h", "h", 2, 2), in("/b.h", "h", 2, 3), in("/c.h", "h", 2, 2)}}).Sum()
	if sumWith(honest, nil) != want || asked != 3 {
		t.Errorf("another sum than a manager's, or %d files asked for", asked)
	}
	for what, sum := range map[string][32]byte{
		"the toolchain's file is of another time": sumWith(honest, map[string]int64{"/b.h": 77e9}),
		"a hard link is a file of its own":        sumWith(map[string]uint64{"/a.h": 1, "/b.h": 2, "/c.h": 3}, nil),
		"two files are one":                       sumWith(map[string]uint64{"/a.h": 1, "/b.h": 1, "/c.h": 1}, nil),
	} {
		if sum == want {
			t.Errorf("%s: the sum is that of what the job says", what)
		}
	}
	// gcc takes a file with a byte order mark for the same as one without, so the tree is asked about both.
	marked := set()
	marked.Text[2] = []byte("\xef\xbb\xbfh")
	marked.Body.Files[2].Len = 4
	v, err := marked.Inputs(func(name string) (resultcache.Inode, int64, error) {
		return resultcache.Inode{Ino: honest[name]}, 2e9, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := in("/b.h", "\xef\xbb\xbfh", 2, 2)
	b.Bare = idOf("h")
	if v.Sum() != (&resultcache.Inputs{Files: []resultcache.Input{in("/x.c", "x", 1, 9), in("/a.h", "h", 2, 1), b, in("/c.h", "h", 2, 1)}}).Sum() {
		t.Error("another sum for a file with a byte order mark")
	}
	b.Bare = unit.ContentID{}
	if v.Sum() == (&resultcache.Inputs{Files: []resultcache.Input{in("/x.c", "x", 1, 9), in("/a.h", "h", 2, 1), b, in("/c.h", "h", 2, 1)}}).Sum() {
		t.Error("a byte order mark makes a file another one")
	}
	for _, name := range []string{"x.c", "/d/../x.c", "//x.c"} {
		odd := set()
		odd.Body.Files[0].Name = name
		if _, err := odd.Inputs(nil); err == nil {
			t.Errorf("%s: it has a sum", name)
		}
	}
	gone := errors.New("gone")
	if _, err := set().Inputs(func(string) (resultcache.Inode, int64, error) { return resultcache.Inode{}, 0, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// TestKey: a job's name depends on times only as far as gcc tells files with the same content apart by them: by the second,
// and without a byte order mark. It depends on the command, and on the toolchain.
func TestKey(t *testing.T) {
	tc := unit.ToolchainID{1}
	key := func(tc unit.ToolchainID, change func(in *Set)) resultcache.Key {
		in := &Set{
			Body: &job.Body{Args: []string{"-c"}, Files: []unit.File{{Name: "/x.c", Len: 1, MTime: 1e9}, {Name: "/a.h", Len: 1, MTime: 2e9}, {Name: "/b.h", Len: 4, MTime: 2e9}}},
			Text: [][]byte{[]byte("x"), []byte("h"), []byte("\xef\xbb\xbfh")},
		}
		change(in)
		return in.Key(tc)
	}
	first := key(tc, func(*Set) {})
	for what, change := range map[string]func(in *Set){
		"the time of a single file": func(in *Set) { in.Body.Files[0].MTime = 77 },
		"less than a second":        func(in *Set) { in.Body.Files[1].MTime += 5 },
		"the time of all":           func(in *Set) { in.Body.Files[1].MTime, in.Body.Files[2].MTime = 8e9, 8e9 },
	} {
		if key(tc, change) != first {
			t.Errorf("%s: another name", what)
		}
	}
	for what, change := range map[string]func(in *Set){
		"the second of a twin": func(in *Set) { in.Body.Files[1].MTime = 3e9 },
		"the command":          func(in *Set) { in.Body.Args = []string{"-S"} },
		"a content":            func(in *Set) { in.Text[0] = []byte("y") },
	} {
		if key(tc, change) == first {
			t.Errorf("%s: the same name", what)
		}
	}
	if key(unit.ToolchainID{2}, func(*Set) {}) == first {
		t.Error("another toolchain: the same name")
	}
}

// BenchmarkInputs is what a host does to find out what a job of 350 headers has shown to its compiler, before it signs the
// result for a group.
func BenchmarkInputs(b *testing.B) {
	all := store.New(store.Options{Memory: 64 << 20})
	defer all.Close()
	tenant := all.Open("tenant")
	defer tenant.Close()
	source := make([]byte, 10<<10)
	in := &Set{Body: &job.Body{Files: []unit.File{{Name: "/home/a/project/source/file.c", Len: uint64(len(source))}}}, Text: [][]byte{source}}
	for i := range 350 {
		_, c, err := tenant.PutOwn([]byte(strconv.Itoa(i)))
		if err != nil {
			b.Fatal(err)
		}
		in.held = append(in.held, c)
		in.listed = append(in.listed, listed{content: c, id: c.ID()})
		in.Text = append(in.Text, c.Bytes())
		in.Body.Files = append(in.Body.Files, unit.File{Name: fmt.Sprintf("/usr/include/c++/12/bits/some_header_%d.h", i), Len: uint64(c.Len())})
	}
	defer in.Free()
	b.ReportAllocs()
	for b.Loop() {
		v, err := in.Inputs(nil)
		if err != nil {
			b.Fatal(err)
		}
		v.Sum()
	}
}
