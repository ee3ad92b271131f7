package farm

import (
	"context"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Pick waits until the job may go to a host or has to run locally. The error is that of ctx's end.
func (f *Farm) Pick(ctx context.Context, r *Request) (Grant, error) {
	f.mu.Lock()
	// Earlier jobs go first; r may get a host that none of them can use.
	f.queue.waiting = append(f.queue.waiting, r)
	if r.Races {
		f.racing[r.ID] = r
	}
	f.hereLocked(time.Now())
	f.dispatchLocked()
	if len(f.queue.waiting) > 0 { // otherwise it is counted already, as one being prepared
		f.demandsLocked(time.Now())
	}
	f.mu.Unlock()
	select {
	case g := <-r.ready:
		return g, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	if i := slices.Index(f.queue.waiting, r); i >= 0 {
		f.queue.waiting = slices.Delete(f.queue.waiting, i, i+1)
	}
	f.mu.Unlock()
	select {
	case g := <-r.ready: // it came at the same moment
		f.GiveBack(g)
	default:
	}
	return Grant{}, context.Cause(ctx)
}

// Early asks for the scheduler's decision on a job that is not made yet. It takes no credit. If none of the
// hosts that the job could go to is connected, it calls waits, then waits for one as long as the scheduler
// does. The error is that of ctx's end.
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

// Trees reports whether a job of list is to be made for a private tree. If it has to wait for hosts, it calls
// waits first. The error is that of ctx's end.
func (f *Farm) Trees(ctx context.Context, list []scheduler.Host, id unit.ToolchainID, waits func()) (bool, error) {
	f.mu.Lock()
	if tree, until := f.sched.Trees(time.Now(), list, id); until.IsZero() { // the usual case
		f.mu.Unlock()
		return tree, nil
	}
	q := &question{list: list, toolchain: id, ready: make(chan bool, 1)}
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

// Leave ends the race of r: a second host that is on offer is no longer wanted.
func (f *Farm) Leave(r *Request) {
	f.mu.Lock()
	delete(f.racing, r.ID)
	f.mu.Unlock()
	select {
	case g := <-r.second:
		f.GiveBack(g)
	default:
	}
}
