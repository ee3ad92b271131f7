package link

import (
	"context"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// CanFetch reports whether RDMA Reads from the daemon are possible. They fetch its load board and results
// that are too big for a sink.
func (l *Link) CanFetch() bool { return l.puller.Can() }

// Fetch reads the result that f's daemon offers in a window into mr, which must have room for it. If ctx ends
// first, it returns the cause of ctx. Nothing writes into mr once it has returned. The caller must call
// Release in any case.
func (l *Link) Fetch(ctx context.Context, f *Flight, mr iwarp.MR) error {
	w := f.Result.Window
	done := make(chan error, 1)
	x := &rdmaread.Pull{Sink: mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: w.Len, Done: func(err error) { done <- err }}
	l.mu.Lock()
	if err := l.puller.Start(x); err != nil {
		l.failLocked(err) // which makes the puller end x
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
	<-done // after CancelTimeout at the latest, when the link is given up
	l.mu.Lock()
	l.stopping--
	l.mu.Unlock()
	return context.Cause(ctx)
}

// Release tells the daemon that the window that f's Result offers is no longer needed. Every offered window
// must be released once.
func (l *Link) Release(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offers--
	if !l.ended {
		l.sendLocked(&job.Release{ID: f.ID}, f.Result.Window.STag)
	}
}

// checkPullsLocked ends the link if the daemon does not answer our Reads, which no message can cancel. It
// reports whether the link goes on.
func (l *Link) checkPullsLocked() bool {
	quiet := l.puller.Tick(l.c.tickTime())
	if quiet > job.WindowTime || l.stopping > 0 && quiet > l.c.CancelTimeout {
		l.failLocked(fmt.Errorf("no answer to an RDMA Read for %v", quiet))
		return false
	}
	return true
}
