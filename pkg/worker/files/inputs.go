package files

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Key returns a name of the job: equal jobs of a toolchain have the same one, however their files came here. It is made
// as the name of a result is, of what the job says of its files' times and of which are the same.
func (in *Set) Key(tc unit.ToolchainID) resultcache.Key {
	v, _ := in.declared()
	return resultcache.KeyOf(tc, in.Body, v.Sum())
}

// Inputs returns what the job shows to its compiler. All of it is known to this host: names, modes, directories
// and links are as it has laid them out, and contents have the sums that it has computed itself. look returns
// what a command in the tree sees of a file there. It is called for files with the same content, because
// compilers tell such files apart by inodes and times, and the toolchain's own file may be in the place of one.
//
// The error says why what the compiler sees has no sum: names that are not those of files, as a manager
// finds them out, could mean something else than they say.
func (in *Set) Inputs(look func(name string) (at resultcache.Inode, mtime int64, err error)) (*resultcache.Inputs, error) {
	for i := range in.Body.Files {
		if name := in.Body.Files[i].Name; name[0] != '/' || path.Clean(name) != name {
			return nil, fmt.Errorf("file %q: not an absolute name without detours", name)
		}
	}
	v, first := in.declared()
	for i := range v.Files {
		x := &v.Files[i]
		if first[x.Content()] >= 0 {
			continue
		}
		at, mtime, err := look(x.Name)
		if err != nil {
			return nil, err
		}
		x.Inode, x.MTime = at, mtime
	}
	return v, nil
}

// declared returns the job's Inputs as it says that they are, and the first file with each content, but for a byte order
// mark; -1: there are several.
func (in *Set) declared() (*resultcache.Inputs, map[unit.ContentID]int) {
	b := in.Body
	v := &resultcache.Inputs{Files: make([]resultcache.Input, len(b.Files)), Dirs: slices.Clone(b.Dirs), Links: slices.Clone(b.Links)}
	first := make(map[unit.ContentID]int, len(b.Files))
	for i := range b.Files {
		f, x := &b.Files[i], &v.Files[i]
		if f.Same != 0 {
			*x = v.Files[f.Same-1]
			x.Name = f.Name
		} else {
			*x = resultcache.Input{Name: f.Name, ID: in.Sum256(i), MTime: f.MTime, Exec: f.Exec, Inode: resultcache.Inode{Ino: uint64(i)}}
			if rest, marked := bytes.CutPrefix(in.Text[i], []byte("\xef\xbb\xbf")); marked {
				x.Bare = sha256.Sum256(rest)
			}
		}
		if _, twice := first[x.Content()]; twice {
			first[x.Content()] = -1
		} else {
			first[x.Content()] = i
		}
	}
	return v, first
}

// Sum256 returns the sum of the content of file i, which this host has computed when it came.
func (in *Set) Sum256(i int) unit.ContentID {
	if k := i - in.FirstListed(); k >= 0 && in.listed[k].content != nil {
		return in.listed[k].content.ID()
	}
	return sha256.Sum256(in.Text[i])
}
