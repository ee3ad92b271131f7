package files

import (
	"context"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// ErrLacks refuses a job that names a content that this host does not have.
var ErrLacks error = job.Refuse(job.CauseLacks, "a content that the job names is not here, or not any more")

// Lookup says where to look up a job's lists, and within which bounds.
type Lookup struct {
	Tenant  *store.Tenant
	Machine *Machine // whose own headers may serve as contents
	Most    uint64   // bytes that all files may have together
	// Brought are contents that came with the job and found no room in the store. They last as long as the set.
	Brought map[unit.ContentID][]byte
}

// Add adds the files that the job's lists name. If it fails with ErrLacks, lacks names the missing contents
// of the first list that is not complete: the list itself, or its base, or its files.
func (in *Set) Add(ctx context.Context, q *Lookup) (lacks []unit.ContentID, err error) {
	e := expansion{in: in, keeps: q.Tenant, brought: q.Brought, most: q.Most, sum: in.Size(), names: make(map[string]struct{}, len(in.Body.Files)),
		own: reader{keeps: q.Tenant, learnt: &q.Machine.learnt}}
	defer func() { q.Machine.own.Add(e.found); q.Machine.vain.Add(e.found) }()
	for i := range in.Body.Files {
		if err := e.named(in.Body.Files[i].Name); err != nil {
			return nil, err
		}
	}
	in.Lists = in.Body.Lists
	for i := range in.Lists {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := e.list(in.Lists[i]); err != nil {
			return e.lacks, err
		}
	}
	for i := range in.Body.Images {
		b := in.Body.Images[i] // a copy, to which the files of its list are added
		x := &Set{Body: &b}
		in.Images = append(in.Images, x)
		if lacks, err = x.Add(ctx, q); err != nil {
			return lacks, err
		}
	}
	return nil, nil
}

// Held returns the contents of the store that the lists of a job's body name, pinned, as far as they are there.
func Held(ctx context.Context, q *Lookup, b *job.Body) (held []*store.Content) {
	x := &Set{Body: &job.Body{Lists: b.Lists, Images: b.Images}}
	_, _ = x.Add(ctx, q) // what is missing may still come
	for _, in := range append(x.Images, x) {
		held = append(held, in.held...)
	}
	return held
}

// expansion adds the files of lists to a set.
type expansion struct {
	in      *Set
	keeps   *store.Tenant
	brought map[unit.ContentID][]byte // Lookup.Brought
	names   map[string]struct{}       // of all files so far
	most    uint64                    // bytes that all files may have together
	sum     uint64                    // bytes that they have so far
	lists   int                       // bytes of the lists so far
	lacks   []unit.ContentID          // missing contents, see Set.Add
	own     reader
	found   uint64 // contents that were files of this machine
}

// pin pins contents of the store until the set is freed.
func (e *expansion) pin(ids []unit.ContentID) ([]*store.Content, error) {
	return e.hold(ids, e.keeps.PinAll(ids))
}

// pinFiles is pin for the contents ids of files. What the store lacks may be a file of this machine.
func (e *expansion) pinFiles(ids []unit.ContentID, files []*job.ListedFile) ([]*store.Content, error) {
	all := e.keeps.PinAll(ids)
	for i, c := range all {
		if c == nil && e.brought[ids[i]] == nil {
			if all[i] = e.own.find(files[i]); all[i] != nil {
				e.found++
			}
		}
	}
	return e.hold(ids, all)
}

// hold makes the set responsible for unpinning the contents all. A nil one that the job has not brought either is missing: it
// is added to e.lacks, and hold returns an error.
func (e *expansion) hold(ids []unit.ContentID, all []*store.Content) ([]*store.Content, error) {
	for i, c := range all {
		switch {
		case c != nil:
			e.in.held = append(e.in.held, c)
		case e.brought[ids[i]] == nil:
			e.lacks = append(e.lacks, ids[i])
		}
	}
	if len(e.lacks) > 0 {
		return nil, ErrLacks
	}
	return all, nil
}

// bytes returns the content id, which is c if that is not nil.
func (e *expansion) bytes(id unit.ContentID, c *store.Content) []byte {
	if c == nil {
		return e.brought[id]
	}
	return c.Bytes()
}

// named records the name of a file. A name that occurs twice is an error.
func (e *expansion) named(name string) error {
	if _, twice := e.names[name]; twice {
		return job.Refuse(job.CauseMalformed, "file %q is there twice", name)
	}
	e.names[name] = struct{}{}
	return nil
}

// list adds the files of one list, together with those of its base.
func (e *expansion) list(id unit.ContentID) error {
	ids := []unit.ContentID{id}
	l, err := e.read(ids)
	if err == nil && l.Base != (unit.ContentID{}) {
		var base *job.List
		ids = append(ids, l.Base)
		if base, err = e.read(ids[1:]); err == nil {
			l, err = l.On(base)
		}
	}
	if err == nil {
		err = e.add(l)
	}
	if err == nil { // the list counts as used after its files, so that it is not dropped before them
		_, err = e.pin(ids)
	}
	return err
}

// read returns the list that the only element of ids names.
func (e *expansion) read(ids []unit.ContentID) (*job.List, error) {
	c, err := e.pin(ids)
	if err != nil {
		return nil, err
	}
	text := e.bytes(ids[0], c[0])
	if e.lists += len(text); e.lists > job.MaxBodyLen {
		return nil, job.Refuse(job.CauseMalformed, "lists of more than %d bytes together", job.MaxBodyLen)
	}
	return job.ParseList(text)
}

// add adds the files, directories and links of a list that has no base.
func (e *expansion) add(l *job.List) error {
	in, b := e.in, e.in.Body
	first := uint32(len(b.Files))
	b.Files = slices.Grow(b.Files, len(l.Files))
	in.Text = slices.Grow(in.Text, len(l.Files))
	of := len(in.listed)
	in.listed = append(in.listed, make([]listed, len(l.Files))...)
	added := in.listed[of:]
	ids := make([]unit.ContentID, 0, len(l.Files))
	files := make([]*job.ListedFile, 0, len(l.Files))
	for i := range l.Files {
		f := &l.Files[i]
		if err := e.named(f.Name); err != nil {
			return err
		}
		if f.Same != 0 {
			added[i].shared, added[f.Same-1].shared = true, true
			continue
		}
		if e.sum > e.most || f.Len > e.most-e.sum {
			return job.Refuse(job.CauseTooBig, "files of more than %d bytes together", e.most)
		}
		e.sum += f.Len
		ids, files = append(ids, f.Content), append(files, f)
	}
	contents, err := e.pinFiles(ids, files)
	if err != nil {
		return err
	}
	for i := range l.Files {
		f := &l.Files[i]
		file := unit.File{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
		var text []byte
		var c *store.Content
		if f.Same != 0 {
			file.Same = first + f.Same
		} else {
			c, contents = contents[0], contents[1:]
			if text = e.bytes(f.Content, c); uint64(len(text)) != f.Len {
				return job.Refuse(job.CauseMalformed, "file %q is %d bytes long in its list, and its content %d", f.Name, f.Len, len(text))
			}
		}
		b.Files = append(b.Files, file)
		in.Text = append(in.Text, text)
		added[i].content, added[i].id = c, f.Content
	}
	b.Dirs = append(b.Dirs, l.Dirs...)
	b.Links = append(b.Links, l.Links...)
	return nil
}
