package resultcache

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Inputs are everything that a job shows to its compiler besides the toolchain. The build host and the
// compile host each make them of what they know themselves.
type Inputs struct {
	Files []Input // the source first; each name once
	Dirs  []string
	Links []unit.Link
}

// Input is a file of Inputs.
type Input struct {
	Name  string
	ID    unit.ContentID
	Bare  unit.ContentID // of the content without a byte order mark; zero: it has none
	MTime int64          // nanoseconds since 1970
	Exec  bool
	Inode Inode
	// Unread leaves the content out of the sum: the compile does not depend on it.
	Unread bool
}

// Inode tells files from one another: names with the same one are names of one file.
type Inode struct{ Dev, Ino uint64 }

// twin is what gcc's #pragma once and #import take two files for the same by: their content, without a byte order mark, and
// the second of their time of modification.
type twin struct {
	id    unit.ContentID
	mtime int64
}

// Content returns the sum of the content without a byte order mark.
func (i *Input) Content() unit.ContentID {
	if i.Bare != (unit.ContentID{}) {
		return i.Bare
	}
	return i.ID
}

// Twins reports whether gcc's #pragma once takes two files for the same.
func (i *Input) Twins(o *Input) bool { return i.twin() == o.twin() }

func (i *Input) twin() twin {
	sec := i.MTime / int64(time.Second)
	if i.MTime%int64(time.Second) < 0 {
		sec--
	}
	return twin{i.Content(), sec}
}

// Sum returns a sum over everything in v that a compile can see: names and contents of files, which of them may
// be executed, which are the same file under another name, directories, and links. Times are not part of it,
// except that files with the same content either are twins or are not. The order of v's lists does not count,
// except that the source is the first file. Sum sorts the lists.
func (v *Inputs) Sum() [sha256.Size]byte {
	if len(v.Files) > 1 {
		slices.SortFunc(v.Files[1:], func(x, y Input) int { return cmp.Compare(x.Name, y.Name) })
	}
	slices.Sort(v.Dirs)
	slices.SortFunc(v.Links, func(x, y unit.Link) int { return cmp.Compare(x.Name, y.Name) })
	inodes, twins := make(map[Inode]uint32, len(v.Files)), make(map[twin]uint32, len(v.Files))
	b := make([]byte, 0, 128*len(v.Files))
	b = wire.AppendUint32(b, uint32(len(v.Files)))
	for i := range v.Files {
		f := &v.Files[i]
		tw := f.twin()
		b = wire.AppendString(b, f.Name)
		b = wire.AppendBool(b, f.Exec)
		b = wire.AppendUint32(b, inodes[f.Inode])
		if !f.Unread {
			b = append(b, f.ID[:]...)
			b = wire.AppendUint32(b, twins[tw])
		}
		if inodes[f.Inode] == 0 {
			inodes[f.Inode] = uint32(i + 1)
		}
		if !f.Unread && twins[tw] == 0 {
			twins[tw] = uint32(i + 1)
		}
	}
	b = wire.AppendStrings(b, v.Dirs)
	b = wire.AppendUint32(b, uint32(len(v.Links)))
	for _, l := range v.Links {
		b = wire.AppendString(wire.AppendString(b, l.Name), l.Target)
	}
	return sha256.Sum256(b)
}
