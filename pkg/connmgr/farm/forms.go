package farm

import (
	"context"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Early asks for the scheduler's word on a job that is not made yet, which takes no credit.
// Where all hosts that it could go to are not there, it waits as long for one as the
// scheduler does; it calls waits first. An error is ctx's end.
func (f *Farm) Early(ctx context.Context, r *Request, waits func()) (Grant, error) {
	r.early = true
	f.mu.Lock()
	f.hereLocked(time.Now())
	g, ok := f.tryLocked(time.Now(), r)
	f.mu.Unlock()
	if ok {
		return g, nil
	}
	waits()
	return f.Pick(ctx, r)
}

// question is a job that waits for its form: whether a host shows private trees is
// known once it is connected.
type question struct {
	list      []scheduler.Host
	toolchain job.ToolchainID
	ready     chan bool // capacity 1
}

// Trees reports whether a job of list is to be made for a private tree. Where it has to
// wait for hosts it calls waits first. An error is ctx's end.
func (f *Farm) Trees(ctx context.Context, list []scheduler.Host, id job.ToolchainID, waits func()) (bool, error) {
	q := &question{list: list, toolchain: id, ready: make(chan bool, 1)}
	f.mu.Lock()
	f.queue.asking = append(f.queue.asking, q)
	f.dispatchLocked()
	f.mu.Unlock()
	select {
	case tree := <-q.ready:
		return tree, nil
	default:
	}
	waits()
	select {
	case tree := <-q.ready:
		return tree, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue.asking = slices.DeleteFunc(f.queue.asking, func(o *question) bool { return o == q })
	return false, context.Cause(ctx)
}

// formsLocked answers the questions that can be answered by now, and says when the
// next one can at the latest: zero when none is left.
func (f *Farm) formsLocked(now time.Time) (next time.Time) {
	f.queue.asking = slices.DeleteFunc(f.queue.asking, func(q *question) bool {
		tree, until := f.sched.Trees(now, q.list, q.toolchain)
		if !until.IsZero() {
			if next.IsZero() || until.Before(next) {
				next = until
			}
			return false
		}
		q.ready <- tree
		return true
	})
	return next
}
