package link

import (
	"context"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// CanFetch reports whether RDMA Reads go from here to the daemon: results that are too big
// for a sink, and its load board.
func (l *Link) CanFetch() bool { return l.puller.Can() }

// Fetch gets the result that f's daemon offers in a window into mr, which has room for it.
// It may be ended early by ctx, and returns that one's cause then. When it returns nothing
// writes into mr any more. Release is due all the same.
func (l *Link) Fetch(ctx context.Context, f *Flight, mr iwarp.MR) error {
	w := f.Result.Window
	done := make(chan error, 1)
	x := &rdmaread.Pull{Sink: mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: w.Len, Done: func(err error) { done <- err }}
	l.mu.Lock()
	if err := l.puller.Start(x); err != nil {
		l.failLocked(err) // which ends x
	}
	l.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	l.puller.Stop(x)
	l.stopping++
	l.mu.Unlock()
	<-done // at the latest when the link is given up, CancelTimeout from now
	l.mu.Lock()
	l.stopping--
	l.mu.Unlock()
	return context.Cause(ctx)
}

// Release ends the window that f's Result offers: each of these is due one.
func (l *Link) Release(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offers--
	if !l.ended {
		l.sendLocked(&job.Release{ID: f.ID}, f.Result.Window.STag)
	}
}

// checkPullsLocked ends a link whose daemon does not answer our Reads, which no
// message can take back.
func (l *Link) checkPullsLocked() bool {
	quiet := l.puller.Tick(l.c.tickTime())
	if quiet > job.WindowTime || l.stopping > 0 && quiet > l.c.CancelTimeout {
		l.failLocked(fmt.Errorf("no answer to an RDMA Read for %v", quiet))
		return false
	}
	return true
}
