// Package files finds the files that a job of the sources form reads: those that it brings, and those that
// its lists name. Contents of the latter are in the tenant's store or, for system headers, in files of this
// machine.
package files

import (
	"path"
	"slices"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Set is the files of one job: its own, and after them those of its lists. It belongs to one goroutine at a time.
type Set struct {
	Body  *job.Body        // its files, directories and links include those of the lists
	Text  [][]byte         // content of each of Body.Files; nil for a file that is the same as an earlier one
	Lists []unit.ContentID // the lists that name the last files
	// Images has what each of Body.Images is made of, with its body. These sets have no files of their own, and no images.
	Images []*Set

	// For a job that waits for a core: what is still needed of its source, and the digest of that.
	Own []byte
	Sum [digest.Size]byte

	listed []listed
	held   []*store.Content // pinned until Free
}

// listed is a file that a list names. These files come last.
type listed struct {
	content *store.Content // nil for a file that is the same as an earlier one
	id      unit.ContentID
	shared  bool // its inode is another file's too
}

// Bring returns the set of a job without lists. The contents of its files make up all of text.
func Bring(b *job.Body, text []byte) (*Set, error) {
	in := &Set{Body: b}
	rest, err := in.Cut(text)
	if err == nil && len(rest) > 0 {
		err = job.Refuse(job.CauseMalformed, "files of %d bytes together in a text of %d", len(text)-len(rest), len(text))
	}
	return in, err
}

// Cut finds the contents of the job's own files in its text, and returns the rest of the text.
func (in *Set) Cut(text []byte) (rest []byte, err error) {
	in.Text = make([][]byte, len(in.Body.Files))
	rest = text
	for i := range in.Body.Files {
		n := in.Body.Files[i].Len
		if n > uint64(len(rest)) {
			return nil, job.Refuse(job.CauseMalformed, "files of more bytes together than the text has (%d)", len(text))
		}
		in.Text[i], rest = rest[:n:n], rest[n:]
	}
	return rest, nil
}

// FirstListed returns the index of the first file that a list names.
func (in *Set) FirstListed() int { return len(in.Text) - len(in.listed) }

// File returns the content of file i. The content of a list's file may have been in memory for days, so File
// checks its sum, and returns ErrSpoiled if that differs. The content is about to be written, so it has to
// enter the processor's cache anyway.
func (in *Set) File(i int) ([]byte, error) {
	if k := i - in.FirstListed(); k >= 0 && in.listed[k].content != nil && !in.listed[k].content.Intact() {
		return nil, ErrSpoiled
	}
	return in.Text[i], nil
}

// ErrSpoiled refuses a job if one of its contents was corrupted in memory.
var ErrSpoiled error = job.Refuse(job.CauseDigest, "a content is not the one that was sent")

// Keepable reports whether file i, which a list names, may stay in the tree for the next job: it has an
// absolute name and an inode of its own, and no output has its base name.
func (in *Set) Keepable(i int) bool {
	f, name := &in.listed[i-in.FirstListed()], in.Body.Files[i].Name
	if f.content == nil || f.shared || name[0] != '/' {
		return false
	}
	base := path.Base(name)
	return !slices.ContainsFunc(in.Body.Outputs, func(o unit.Output) bool { return path.Base(o.Name) == base })
}

// ID returns the ID of the content of file i, which a list names.
func (in *Set) ID(i int) unit.ContentID { return in.listed[i-in.FirstListed()].id }

// Free unpins the contents. A nil Set has none.
func (in *Set) Free() {
	if in == nil {
		return
	}
	store.UnpinAll(in.held)
	in.held, in.listed = nil, nil
	for _, x := range in.Images {
		x.Free()
	}
	in.Images = nil
}

// Size returns how many bytes all files have together.
func (in *Set) Size() (n uint64) {
	for i := range in.Body.Files {
		n += in.Body.Files[i].Len
	}
	return n
}
