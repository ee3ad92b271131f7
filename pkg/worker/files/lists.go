package files

import (
	"context"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// ErrLacks answers a job that names a content that is not here.
var ErrLacks error = job.Refuse(job.CauseLacks, "a content that the job names is not here, or not any more")

// Lookup is how a job's lists are looked up.
type Lookup struct {
	Tenant  *store.Tenant
	Machine *Machine // whose own headers count as well
	Most    uint64   // bytes that all files may have together
	NoRoom  bool     // not all that came with the job could be kept
}

// Add adds the files that the job's lists name. If it fails with ErrLacks, lacks are the contents that are not
// here, of one list and of all its files.
func (in *Set) Add(ctx context.Context, q *Lookup) (lacks []unit.ContentID, err error) {
	e := expansion{in: in, keeps: q.Tenant, noRoom: q.NoRoom, most: q.Most, sum: in.Size(), names: make(map[string]struct{}, len(in.Body.Files)),
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
	return nil, nil
}

// expansion adds the files of lists to inputs.
type expansion struct {
	in     *Set
	keeps  *store.Tenant
	noRoom bool                // not all that came with the job could be kept
	names  map[string]struct{} // of all files
	most   uint64              // bytes that they may have together
	sum    uint64              // that they have
	lists  int                 // bytes of lists
	lacks  []unit.ContentID    // what is not here, of a list and of all its files
	own    reader
	found  uint64 // contents that this machine has itself
}

// pin has contents be held for the inputs.
func (e *expansion) pin(ids []unit.ContentID) ([]*store.Content, error) {
	return e.hold(ids, e.keeps.PinAll(ids))
}

// pinFiles is pin for the contents ids of files, which this machine may have itself.
func (e *expansion) pinFiles(ids []unit.ContentID, files []*job.ListedFile) ([]*store.Content, error) {
	all := e.keeps.PinAll(ids)
	for i, c := range all {
		if c == nil {
			if all[i] = e.own.find(files[i]); all[i] != nil {
				e.found++
			}
		}
	}
	return e.hold(ids, all)
}

// hold has contents be let go of with the inputs. Nil stands for one that is not here.
func (e *expansion) hold(ids []unit.ContentID, all []*store.Content) ([]*store.Content, error) {
	for i, c := range all {
		if c == nil {
			e.lacks = append(e.lacks, ids[i])
		} else {
			e.in.held = append(e.in.held, c)
		}
	}
	switch {
	case len(e.lacks) == 0:
		return all, nil
	case e.noRoom:
		return nil, job.Refuse(job.CauseFull, "no room to keep what the job brings (store.memory)")
	}
	return nil, ErrLacks
}

func (e *expansion) named(name string) error {
	if _, twice := e.names[name]; twice {
		return job.Refuse(job.CauseMalformed, "file %q is there twice", name)
	}
	e.names[name] = struct{}{}
	return nil
}

// list adds those of one.
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
	if err == nil { // used later than its files, it is not dropped before them: who lacks it lacks all
		_, err = e.pin(ids)
	}
	return err
}

// read gets the list that is the one of ids.
func (e *expansion) read(ids []unit.ContentID) (*job.List, error) {
	c, err := e.pin(ids)
	if err != nil {
		return nil, err
	}
	if e.lists += c[0].Len(); e.lists > job.MaxBodyLen {
		return nil, job.Refuse(job.CauseMalformed, "lists of more than %d bytes together", job.MaxBodyLen)
	}
	return job.ParseList(c[0].Bytes())
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
			if text = c.Bytes(); uint64(len(text)) != f.Len {
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
