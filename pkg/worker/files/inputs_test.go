package files

import (
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
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
	gone := errors.New("gone")
	if _, err := set().Inputs(func(string) (resultcache.Inode, int64, error) { return resultcache.Inode{}, 0, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}
