package worker

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	format "github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// Several managers of a tenant may send the same job at nearly the same time. The first one that arrives is run.
// Those that are equal to it wait for its result, without a place. If it has none, the next one is run.
//
// That two jobs have the same name says nothing here, because their managers have made it. They are equal if they
// also have the same compiler, command and files.

// twinName names jobs that are equal.
type twinName struct {
	tenant string
	said   [32]byte        // Job.Key
	found  resultcache.Key // files.Set.Key
}

// twin is a job that is under way, for those that are equal to it.
type twin struct {
	name    twinName
	done    chan struct{} // closed when it has ended
	waiting int           // jobs that wait for it; guarded by Server.mu

	// set by then, if it has a result that others may have
	res *job.Result
	mem []byte // content of the result
}

// joined waits for the result of an equal job, if one is under way. It returns that as t's answer, with the number of
// bytes that are in t's slot; nil: t has to be run itself.
func (t *task) joined(ctx context.Context) (*job.Result, int) {
	if t.m.Key == [32]byte{} || t.job.Files == nil {
		return nil, 0
	}
	s := t.c.s
	name := twinName{t.c.lent.Tenant().Name(), t.m.Key, t.job.Files.Key(t.m.Toolchain)}
	for {
		x := s.twinOf(t, name)
		if x == nil {
			return nil, 0
		}
		select {
		case <-x.done:
		case <-ctx.Done():
			s.mu.Lock()
			x.waiting--
			s.mu.Unlock()
			return nil, 0
		}
		if x.res != nil {
			return t.adopt(x)
		}
	}
}

// twinOf returns the job that t waits for. It returns nil if t is run.
func (s *Server) twinOf(t *task, name twinName) *twin {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.twins[name]
	if x == nil {
		if s.twins == nil {
			s.twins = make(map[twinName]*twin)
		}
		t.twin = &twin{name: name, done: make(chan struct{})}
		s.twins[name] = t.twin
	}
	if x == nil || !t.m.Join {
		t.mark() // if it was not there before, it has waited for another one
		return nil
	}
	x.waiting++
	t.unmark() // that one has a mark
	s.missedLocked(t)
	return x
}

// adopt makes the result of an equal job t's answer. It returns what joined does.
func (t *task) adopt(x *twin) (*job.Result, int) {
	if x.res.Packed != 0 && !t.m.Zstd || t.lodge() != nil {
		return nil, 0
	}
	slot := t.job.Source.Slot
	if uint64(len(x.mem)) > min(uint64(len(slot)), t.m.Sink.Len) {
		return nil, 0
	}
	r := *x.res
	r.Joined, r.Files = true, slices.Clone(r.Files)
	r.Queue = run.Micros(max(0, time.Since(t.queued)-time.Duration(r.Wall)*time.Microsecond))
	return &r, copy(slot, x.mem)
}

// good reports whether a task's result may be another job's too.
func (t *task) good(r *job.Result) bool {
	return t.m.Key != [32]byte{} && t.files > 0 && r.Status == job.StatusRan && r.Exit == 0 && r.Signal == 0 && !t.job.Cut
}

// share gives a task's result to the jobs that wait for it. n bytes at the start of the task's memory have its
// content, unless it is offered.
func (t *task) share(r *job.Result, n int) {
	x, s := t.twin, t.c.s
	if x == nil || !t.good(r) || t.job.Offered != nil {
		return // conclude tells those that wait
	}
	s.mu.Lock()
	delete(s.twins, x.name)
	t.twin = nil
	waiting := x.waiting
	s.mu.Unlock()
	if waiting > 0 {
		res := *r
		res.Files = slices.Clone(r.Files)
		x.res, x.mem = &res, bytes.Clone(t.job.Source.Slot[:n])
	}
	close(x.done)
}

// overLocked says that t's job is no longer under way. A second call does nothing.
func (t *task) overLocked() {
	t.unmark()
	if t.twin != nil {
		delete(t.c.s.twins, t.twin.name)
		close(t.twin.done)
		t.twin = nil
	}
}

// markLeast is the shortest job that has a mark on the shelf, by what its manager predicts. To wait for a shorter one
// would take another manager as long as to have it compiled.
const markLeast = 20 * time.Millisecond

// mark says on the tenant's shelf that t's result may be there soon. A second call does nothing.
func (t *task) mark() {
	c, expect := t.c, time.Duration(t.m.Expect)*time.Millisecond
	if t.marked != 0 || c.shelf == nil || t.m.Key == [32]byte{} || t.m.Expect != 0 && expect < markLeast {
		return
	}
	key := t.m.Key
	if t.m.Base != "" { // its result may get this name, and whoever waits for it looks for both
		key = t.m.Moved
	}
	t.marked = c.shelf.Begin(key, format.Mark{Maker: format.MakerOf(c.boot), Expect: expect})
}

// unmark removes the mark. A second call does nothing.
func (t *task) unmark() {
	if t.marked != 0 {
		t.c.shelf.End(t.marked)
		t.marked = 0
	}
}
