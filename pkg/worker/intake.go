package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// A job that says Job.Store is taken in before it is queued: what it brings for the store
// is put there, and what its lists name is looked up and held for it until its files are laid
// out. Whatever came on the connection before it has been put by then. What is left of its source, its
// own files, waits in its slot.

// errLacks answers a job that names what is not here.
var errLacks = refuse(job.CauseLacks, "a content that the job names is not here, or not any more")

// openStore makes the store, where jobs could use one.
func (s *Server) openStore() {
	if s.o.NoStore || !s.trees {
		return
	}
	s.intakes = make(chan *scratch, s.o.Jobs)
	for range s.o.Jobs {
		s.intakes <- new(scratch)
	}
	o := s.o.Store
	o.Log = s.o.Log
	s.keep = store.New(o)
	if s.o.Learn {
		s.serving.Go(s.learn)
	}
}

// What contents may take of a machine's memory where nobody says.
const (
	storePart  = 16
	storeLeast = 32 << 20
	storeMost  = 1 << 30
)

// storeStats are the store's figures; zero where there is none.
func (s *Server) storeStats() store.Stats {
	if s.keep == nil {
		return store.Stats{}
	}
	st := s.keep.Stats()
	st.Own = s.own.Load()
	st.Lacks -= min(s.vain.Load(), st.Lacks)
	return st
}

// keepsFor is what a client is told that is kept for it, in bytes.
func (s *Server) keepsFor(c *conn) uint64 {
	if c.keeps == nil {
		return 0
	}
	return uint64(s.keep.Most())
}

// takeIn makes a task's inputs. A result is why the job ends here.
func (t *task) takeIn(ctx context.Context) *job.Result {
	in, put, noRoom, res := t.putIn(ctx)
	t.tookIn()
	defer func() {
		for _, c := range put { // what it needs of these is held by now
			c.Unpin()
		}
	}()
	if res != nil {
		return res
	}
	for _, earlier := range t.before {
		select {
		case <-earlier:
		case <-ctx.Done():
			return failed(ctx.Err())
		}
	}
	t.before = nil
	if err := t.lookUp(ctx, in, noRoom); err != nil {
		in.free()
		return refused(err)
	}
	in.body.Blobs, in.body.Lists = nil, nil
	t.in, t.files = in, len(in.body.Files)
	return nil
}

// tookIn says that what the task brought, if anything, is where later ones find it, or will not
// be. A second call does nothing.
func (t *task) tookIn() {
	c := t.c
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if i := slices.Index(c.taking, t.taken); i >= 0 {
		close(t.taken)
		c.taking = slices.Delete(c.taking, i, i+1)
	}
}

// intake waits for a turn to do what takes time of a core: unpacking, sums. The scratch is
// to be given back.
func (s *Server) intake(ctx context.Context) (*scratch, error) {
	select {
	case x := <-s.intakes:
		return x, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// charged counts time of a core that a task took before it was queued: who has much
// unpacked and summed up has had its part of the cores.
func (t *task) charged(d time.Duration) {
	t.c.s.mu.Lock()
	defer t.c.s.mu.Unlock()
	t.c.lent.Charge(d)
}

// putIn puts what a task brings into the store, pinned, and its own files in order. noRoom says that not all
// of it could be kept.
func (t *task) putIn(ctx context.Context) (in *inputs, put []*store.Content, noRoom bool, res *job.Result) {
	x, err := t.c.s.intake(ctx)
	if err != nil {
		return nil, nil, false, failed(err)
	}
	defer func(began time.Time) {
		t.c.s.intakes <- x
		t.charged(time.Since(began))
	}(time.Now())
	if res := t.open(x); res != nil {
		return nil, nil, false, res
	}
	body, err := t.readBody()
	if err != nil {
		return nil, nil, false, refused(err)
	}
	in = &inputs{body: body}
	text := t.content()[t.m.TextOff:][:t.m.TextLen]
	rest, err := in.cut(text)
	if err == nil {
		put, rest, noRoom, err = t.putBlobs(ctx, body.Blobs, rest)
	}
	if err == nil && len(rest) > 0 {
		err = refuse(job.CauseMalformed, "files and contents of %d bytes together in a text of %d", len(text)-len(rest), len(text))
	}
	if err == nil {
		err = t.settleOwn(in)
	}
	if err != nil {
		return nil, put, noRoom, refused(err)
	}
	return in, put, noRoom, nil
}

// putBlobs puts the contents at the start of text. One for which there is no room is left out, and so is an abridged
// list of what is not all here.
func (t *task) putBlobs(ctx context.Context, blobs []job.Blob, text []byte) (put []*store.Content, rest []byte, noRoom bool, err error) {
	for i := range blobs {
		b := &blobs[i]
		switch {
		case ctx.Err() != nil:
			return put, nil, noRoom, ctx.Err()
		case b.Len > uint64(len(text)):
			return put, nil, noRoom, refuse(job.CauseMalformed, "contents of more bytes together than the text has")
		}
		content := text[:b.Len]
		if b.Abridged {
			var own []*store.Content
			content, own, err = t.complete(ctx, content)
			put = append(put, own...)
			if err != nil {
				return put, nil, noRoom, err
			}
			if content == nil {
				text = text[b.Len:]
				continue // it comes again, whole
			}
		}
		c, err := t.c.keeps.Put(b.ID, content)
		switch {
		case err == nil:
			put = append(put, c)
		case b.Abridged && errors.Is(err, store.ErrOther): // a file here is another one
		case errors.Is(err, store.ErrOther):
			return put, nil, noRoom, refuse(job.CauseMalformed, "content %x... is not the one that its name stands for", b.ID[:6])
		default:
			noRoom = true
		}
		text = text[b.Len:]
	}
	return put, text, noRoom, nil
}

// settleOwn puts the body's own files, which in.text holds, to where the task may wait with them: in its
// slot, or in large memory if they are too big for that. What they came in is given back.
func (t *task) settleOwn(in *inputs) error {
	var n int
	for _, f := range in.text {
		n += len(f)
	}
	from := t.content()[t.m.TextOff:][:n]
	to := t.k.buf.Bytes()[:t.k.mr.Len()]
	switch {
	case t.src == nil && t.plain == nil: // it is in the slot
		in.own = from
	case n <= len(to):
		in.own = to[:copy(to, from)]
		t.dropSource()
	case t.plain == nil || t.src != nil:
		in.own = from // in large memory
	default:
		mem, err := t.c.s.large.tryGet(t.c.allowance, int64(n), job.CauseFull)
		if err != nil {
			return err
		}
		in.own = mem.mem[:copy(mem.mem, from)]
		t.src, t.plain = mem, nil
	}
	in.sum = digest.Sum(in.own)
	if _, err := in.cut(in.own); err != nil {
		return fmt.Errorf("its files, once more: %w", err) // cannot be
	}
	return nil
}

// lookUp adds what the body's lists name. noRoom says that some of what came with it could not
// be kept.
func (t *task) lookUp(ctx context.Context, in *inputs, noRoom bool) error {
	x, err := t.c.s.intake(ctx)
	if err != nil {
		return err
	}
	defer func(began time.Time) {
		t.c.s.intakes <- x
		t.charged(time.Since(began))
	}(time.Now())
	e := expansion{in: in, keeps: t.c.keeps, noRoom: noRoom, most: t.mostText(), sum: in.size(), names: make(map[string]struct{}, len(in.body.Files)),
		own: ownFiles{keeps: t.c.keeps, learnt: &t.c.s.learnt}}
	defer func() { t.c.s.own.Add(e.found); t.c.s.vain.Add(e.found) }()
	for i := range in.body.Files {
		if err := e.named(in.body.Files[i].Name); err != nil {
			return err
		}
	}
	in.lists = in.body.Lists
	for i := range in.lists {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := e.list(in.lists[i]); err != nil {
			t.lacks = e.lacks
			return err
		}
	}
	return nil
}

// tellLacking puts into the task's slot what it lacks, as the content of its answer, so that it comes again with
// that and no more. It returns how many bytes these are.
func (t *task) tellLacking(r *job.Result) int {
	room := min(uint64(t.k.mr.Len()), t.m.Sink.Len) / uint64(len(job.ContentID{}))
	if uint64(len(t.lacks)) > room {
		return 0 // it comes with everything
	}
	to := t.k.buf.Bytes()[:0]
	for _, id := range t.lacks {
		to = append(to, id[:]...)
	}
	r.Stdout.Len, r.Digest = uint64(len(to)), digest.Sum(to)
	return len(to)
}

// mostText is how long all files of a job may be together: as long as they could be if they
// came with it.
func (t *task) mostText() uint64 { return max(uint64(t.k.mr.Len()), t.c.maxSource()) }

// expansion adds the files of lists to inputs.
type expansion struct {
	in     *inputs
	keeps  *store.Tenant
	noRoom bool                // not all that came with the job could be kept
	names  map[string]struct{} // of all files
	most   uint64              // bytes that they may have together
	sum    uint64              // that they have
	lists  int                 // bytes of lists
	lacks  []job.ContentID     // what is not here, of a list and of all its files
	own    ownFiles
	found  uint64 // contents that this machine has itself
}

// pin has contents be held for the inputs.
func (e *expansion) pin(ids []job.ContentID) ([]*store.Content, error) {
	return e.hold(ids, e.keeps.PinAll(ids))
}

// pinFiles is pin for the contents ids of files, which this machine may have itself.
func (e *expansion) pinFiles(ids []job.ContentID, files []*job.ListedFile) ([]*store.Content, error) {
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
func (e *expansion) hold(ids []job.ContentID, all []*store.Content) ([]*store.Content, error) {
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
		return nil, refuse(job.CauseFull, "no room to keep what the job brings (store.memory)")
	}
	return nil, errLacks
}

func (e *expansion) named(name string) error {
	if _, twice := e.names[name]; twice {
		return refuse(job.CauseMalformed, "file %q is there twice", name)
	}
	e.names[name] = struct{}{}
	return nil
}

// list adds those of one.
func (e *expansion) list(id job.ContentID) error {
	ids := []job.ContentID{id}
	l, err := e.read(ids)
	if err == nil && l.Base != (job.ContentID{}) {
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
func (e *expansion) read(ids []job.ContentID) (*job.List, error) {
	c, err := e.pin(ids)
	if err != nil {
		return nil, err
	}
	if e.lists += c[0].Len(); e.lists > job.MaxBodyLen {
		return nil, refuse(job.CauseMalformed, "lists of more than %d bytes together", job.MaxBodyLen)
	}
	return job.ParseList(c[0].Bytes())
}

// add adds the files, directories and links of a list that has no base.
func (e *expansion) add(l *job.List) error {
	in, b := e.in, e.in.body
	first := uint32(len(b.Files))
	b.Files = slices.Grow(b.Files, len(l.Files))
	in.text = slices.Grow(in.text, len(l.Files))
	in.kept, in.ids = slices.Grow(in.kept, len(l.Files)), slices.Grow(in.ids, len(l.Files))
	of := len(in.shared)
	in.shared = append(in.shared, make([]bool, len(l.Files))...)
	ids := make([]job.ContentID, 0, len(l.Files))
	files := make([]*job.ListedFile, 0, len(l.Files))
	for i := range l.Files {
		f := &l.Files[i]
		if err := e.named(f.Name); err != nil {
			return err
		}
		if f.Same != 0 {
			in.shared[of+i], in.shared[of+int(f.Same)-1] = true, true
			continue
		}
		if e.sum > e.most || f.Len > e.most-e.sum {
			return refuse(job.CauseTooBig, "files of more than %d bytes together", e.most)
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
		file := job.SourceFile{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
		var text []byte
		var c *store.Content
		if f.Same != 0 {
			file.Same = first + f.Same
		} else {
			c, contents = contents[0], contents[1:]
			if text = c.Bytes(); uint64(len(text)) != f.Len {
				return refuse(job.CauseMalformed, "file %q is %d bytes long in its list, and its content %d", f.Name, f.Len, len(text))
			}
		}
		b.Files = append(b.Files, file)
		in.text = append(in.text, text)
		in.kept, in.ids = append(in.kept, c), append(in.ids, f.Content)
	}
	b.Dirs = append(b.Dirs, l.Dirs...)
	b.Links = append(b.Links, l.Links...)
	return nil
}

// fitStore gives memory back that the machine is short of, and lets the store grow where
// it is not; and drops what nobody has come back for. It reports
// whether what trees keep may have to go, too.
func (s *Server) fitStore() (stale bool) {
	if s.keep == nil {
		return false
	}
	h := s.host.Load()
	st := s.keep.Stats()
	has := st.Bytes + st.Common
	switch spare := int64(h.memoryFree) - storeFloor; {
	case h.memoryFree == 0: // not known here
	case spare < 0, lend.Tight(h.pressure.Memory):
		s.learnt.forget(nil)
		s.keep.Limit(min(has/2, has+spare))
		s.forgets.Add(1)
		stale = true
	default:
		s.keep.Limit(has + spare/2)
	}
	return s.keep.Tick(time.Now()) || stale
}

// storeFloor is the memory free, in bytes, below which contents have to go: more than jobs
// are refused for.
const storeFloor = 4 * lend.MemoryFloor
