package worker

import (
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
)

// inputs are what a job of the sources form sees: its own files, and those of its lists.
type inputs struct {
	body *job.Body        // with the files, directories and links of its lists among its own
	text [][]byte         // of each file; nothing for one that is the same as an earlier one
	kept []*store.Content // what text lies in, of the last files, which are the lists'; nil for one that is the same
	held []*store.Content // pinned until free
	// lists are those that the last files are of. Of each of these, as in kept: the name of its content, and whether
	// it shares its inode with another one.
	lists  []job.ContentID
	ids    []job.ContentID
	shared []bool

	// Of those that were taken in: the part of the source that is needed still, and its digest, as
	// it waits for a core.
	own []byte
	sum [digest.Size]byte
}

// ownInputs are those of a job that names no lists.
func ownInputs(b *job.Body, text []byte) (*inputs, error) {
	in := &inputs{body: b}
	rest, err := in.cut(text)
	if err == nil && len(rest) > 0 {
		err = refuse(job.CauseMalformed, "files of %d bytes together in a text of %d", len(text)-len(rest), len(text))
	}
	return in, err
}

// cut finds the contents of the body's own files in its text, and gives the rest of that.
func (in *inputs) cut(text []byte) (rest []byte, err error) {
	in.text = make([][]byte, len(in.body.Files))
	rest = text
	for i := range in.body.Files {
		n := in.body.Files[i].Len
		if n > uint64(len(rest)) {
			return nil, refuse(job.CauseMalformed, "files of more bytes together than the text has (%d)", len(text))
		}
		in.text[i], rest = rest[:n:n], rest[n:]
	}
	return rest, nil
}

// listed is how many of the files are not of lists: the index of the first one that is.
func (in *inputs) listed() int { return len(in.text) - len(in.kept) }

// file is the content of one of the files. Of one of a list's it is looked at now, when it is
// about to be written and in the processor's cache anyway: it may have waited in memory for days.
func (in *inputs) file(i int) ([]byte, error) {
	if k := i - in.listed(); k >= 0 && in.kept[k] != nil && !in.kept[k].Intact() {
		return nil, errSpoiled
	}
	return in.text[i], nil
}

// errSpoiled ends a job one of whose contents has changed by itself.
var errSpoiled = refuse(job.CauseDigest, "a content is not the one that was sent")

// free lets go of what is pinned. Nil holds nothing.
func (in *inputs) free() {
	if in == nil {
		return
	}
	store.UnpinAll(in.held)
	in.held, in.kept = nil, nil
}

// size is how much text a task's compiler is given, in bytes.
func (t *task) size() uint64 {
	if t.in == nil {
		return t.m.TextLen
	}
	return t.in.size()
}

func (in *inputs) size() (n uint64) {
	for i := range in.body.Files {
		n += in.body.Files[i].Len
	}
	return n
}
