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
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// A job with Job.Store set is taken in before it is queued: the contents that it brings are put into the
// store, and the contents that its lists name are looked up and pinned until its files are laid out. By then,
// contents of earlier jobs on the connection have been put. The rest of its source, its own files, waits in
// its slot.

// openStore makes the store, if jobs could use one.
func (s *Server) openStore() {
	if s.o.NoStore || !s.places.Trees {
		return
	}
	s.intakes = make(chan *run.Scratch, s.o.Jobs)
	for range s.o.Jobs {
		s.intakes <- new(run.Scratch)
	}
	o := s.o.Store
	o.Log = s.o.Log
	s.keep = store.New(o)
	if s.o.Learn {
		s.serving.Go(func() { s.learner.Run(s.ctx, s.keep, o.Memory) })
	}
}

// Default size of the store.
const (
	storePart  = 16       // a sixteenth of the machine's memory
	storeLeast = 32 << 20 // bytes
	storeMost  = 1 << 30  // bytes
)

// keepsFor returns how many bytes of contents the server keeps for a client, as the Welcome says.
func (s *Server) keepsFor(c *conn) uint64 {
	if c.keeps == nil {
		return 0
	}
	return uint64(s.keep.Most())
}

// takeIn takes a task in. It returns an answer if the job ends here, nil otherwise.
func (t *task) takeIn(ctx context.Context) *job.Result {
	in, put, left, res := t.putIn(ctx)
	t.tookIn()
	defer func() {
		for _, c := range put { // the task holds those that it needs by now
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
			return run.Failed(ctx.Err())
		}
	}
	t.before = nil
	if err := t.lookUp(ctx, in, left); err != nil {
		in.Free()
		return run.Refused(err)
	}
	in.Body.Blobs, in.Body.Lists = nil, nil
	t.job.Files, t.files = in, len(in.Body.Files)
	return nil
}

// tookIn tells later tasks that they need not wait for contents of this one any longer: these are in the
// store, or will not get there. A second call does nothing.
func (t *task) tookIn() {
	c := t.c
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if i := slices.Index(c.taking, t.taken); i >= 0 {
		close(t.taken)
		c.taking = slices.Delete(c.taking, i, i+1)
	}
}

// intake waits for a turn to do what takes core time: unpacking, checksums. The caller gives the scratch back.
func (s *Server) intake(ctx context.Context) (*run.Scratch, error) {
	select {
	case x := <-s.intakes:
		return x, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// charged counts core time that a task took before it was queued, so that unpacking and checksums count as
// part of what the client gets of the cores.
func (t *task) charged(d time.Duration) {
	t.c.s.mu.Lock()
	defer t.c.s.mu.Unlock()
	t.c.lent.Charge(d)
}

// putIn puts the contents that a task brings into the store, and keeps its own files in memory where it can
// wait. put are the contents, pinned; the caller unpins them. left are those that found no room in the store and last as long
// as in. res is an answer if the job ends here.
func (t *task) putIn(ctx context.Context) (in *files.Set, put []*store.Content, left leftover, res *job.Result) {
	x, err := t.c.s.intake(ctx)
	if err != nil {
		return nil, nil, left, run.Failed(err)
	}
	defer func(began time.Time) {
		t.c.s.intakes <- x
		t.charged(time.Since(began))
	}(time.Now())
	body, text, res := t.job.Open(t.c.s.large, x)
	if res != nil {
		return nil, nil, left, res
	}
	in = &files.Set{Body: body}
	rest, err := in.Cut(text)
	if err == nil {
		held := t.held(ctx, body, rest)
		put, rest, left, err = t.putBlobs(ctx, body.Blobs, rest)
		put = append(put, held...)
	}
	if err == nil && len(rest) > 0 {
		err = job.Refuse(job.CauseMalformed, "files and contents of %d bytes together in a text of %d", len(text)-len(rest), len(text))
	}
	if err == nil {
		err = t.settle(in, text, &left)
	}
	if err != nil {
		return nil, put, left, run.Refused(err)
	}
	return in, put, left, nil
}

// leftover are contents that came with a job and found no room in the store. The job keeps them, as it does its own files.
type leftover struct {
	texts map[unit.ContentID][]byte
	moves []unit.ContentID // those of texts that are in the job's source, in their order there
}

// add adds a content. moves says that it is in the job's source.
func (l *leftover) add(id unit.ContentID, text []byte, moves bool) {
	if l.texts == nil {
		l.texts = make(map[unit.ContentID][]byte)
	}
	if moves && l.texts[id] == nil {
		l.moves = append(l.moves, id)
	}
	l.texts[id] = text
}

// held pins what the job names and the store has, unless there is room for all that the job brings: that must not push out
// what the same job needs.
func (t *task) held(ctx context.Context, body *job.Body, text []byte) []*store.Content {
	sum := uint64(0)
	brought := make(map[unit.ContentID][]byte, len(body.Blobs))
	for _, b := range body.Blobs {
		if b.Len > uint64(len(text))-sum {
			return nil // malformed
		}
		if !b.Abridged {
			brought[b.ID] = text[sum:][:b.Len]
		}
		sum += b.Len
	}
	if t.c.keeps.Fits(len(body.Blobs), int64(sum)) {
		return nil
	}
	return files.Held(ctx, &files.Lookup{Tenant: t.c.keeps, Machine: &t.c.s.machine, Most: t.mostText(), Brought: brought}, body)
}

// putBlobs puts the contents at the start of text into the store, and returns the rest of text. It leaves out
// contents for which there is no room (left), and abridged lists that cannot be completed from this machine's files.
func (t *task) putBlobs(ctx context.Context, blobs []job.Blob, text []byte) (put []*store.Content, rest []byte, left leftover, err error) {
	for i := range blobs {
		b := &blobs[i]
		switch {
		case ctx.Err() != nil:
			return put, nil, left, ctx.Err()
		case b.Len > uint64(len(text)):
			return put, nil, left, job.Refuse(job.CauseMalformed, "contents of more bytes together than the text has")
		}
		content := text[:b.Len]
		if b.Abridged {
			var own []*store.Content
			var beside time.Duration
			content, own, beside, err = t.c.s.machine.Complete(ctx, t.c.keeps, content, t.mostText())
			t.charged(beside)
			put = append(put, own...)
			if err != nil {
				return put, nil, left, err
			}
			if content == nil {
				text = text[b.Len:]
				continue // the client sends it again, complete
			}
		}
		c, err := t.c.keeps.Put(b.ID, content)
		switch {
		case err == nil:
			put = append(put, c)
		case b.Abridged && errors.Is(err, store.ErrOther): // a file of this machine differs
		case errors.Is(err, store.ErrOther):
			return put, nil, left, job.Refuse(job.CauseMalformed, "content %x... is not the one that its name stands for", b.ID[:6])
		default:
			left.add(b.ID, content, !b.Abridged)
		}
		text = text[b.Len:]
	}
	return put, text, left, nil
}

// settle moves the job's own files, which are at the start of text, and what is left of the contents behind them to memory in
// which the task may wait.
func (t *task) settle(in *files.Set, text []byte, left *leftover) (err error) {
	n := 0
	for _, f := range in.Text {
		n += len(f)
	}
	own := text[:n]
	for _, id := range left.moves {
		own = append(own, left.texts[id]...) // which lies there, or further back
	}
	if in.Own, err = t.job.Source.Settle(own, t.c.s.large, t.c.allowance); err != nil {
		return err
	}
	rest := in.Own[n:]
	for _, id := range left.moves {
		k := len(left.texts[id])
		left.texts[id], rest = rest[:k:k], rest[k:]
	}
	in.Sum = digest.Sum(in.Own)
	if _, err := in.Cut(in.Own); err != nil {
		return fmt.Errorf("its files, once more: %w", err) // cannot be
	}
	return nil
}

// lookUp adds the files that the body's lists name. left are the contents that came with it and are not in the store.
func (t *task) lookUp(ctx context.Context, in *files.Set, left leftover) error {
	x, err := t.c.s.intake(ctx)
	if err != nil {
		return err
	}
	defer func(began time.Time) {
		t.c.s.intakes <- x
		t.charged(time.Since(began))
	}(time.Now())
	t.lacks, err = in.Add(ctx, &files.Lookup{Tenant: t.c.keeps, Machine: &t.c.s.machine, Most: t.mostText(), Brought: left.texts})
	return err
}

// tellLacking puts the IDs of the missing contents into the task's slot, as the content of its answer, so
// that the client sends only these with the job again. It returns how many bytes these IDs are.
func (t *task) tellLacking(r *job.Result) int {
	room := min(uint64(t.c.s.slots.Size()), t.m.Sink.Len) / uint64(len(unit.ContentID{}))
	if uint64(len(t.lacks)) > room || t.lodge() != nil {
		return 0 // the client then sends everything
	}
	to := t.job.Source.Slot[:0]
	for _, id := range t.lacks {
		to = append(to, id[:]...)
	}
	r.Stdout.Len, r.Digest = uint64(len(to)), digest.Sum(to)
	return len(to)
}
