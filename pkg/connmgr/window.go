package connmgr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// largeWait is how long a result waits for memory of ours while the daemon keeps
// it. It must be well below job.WindowTime.
const largeWait = job.WindowTime / 3

// takeLarge counts a source of n bytes, as far as slots do not keep memory for it,
// and the copy of another user's, against what all of these may take together, until
// the last drop. The source has been written already, so the preprocessor's turn is
// kept while this waits: what is not counted yet is bounded by their number.
func (c *client) takeLarge(n uint64) *ipc.GoLocal {
	if n > uint64(c.m.o.Source) { // compile has words for it
		return nil
	}
	need, ok := c.m.memory.Counts(n, c.foreign())
	switch {
	case !ok:
		return &ipc.GoLocal{Reason: reason.TooBig,
			Detail: fmt.Sprintf("the source takes %d bytes, all large ones together may take %d (buffers.large)", need, c.m.o.Large)}
	case need > 0 && !c.source.TryCount(int64(need)):
		c.watch()
		if c.source.Count(c.ctx, int64(need)) != nil {
			return interrupted
		}
	}
	return nil
}

// foreign says whether the wrapper is another user's. Its text is copied before it
// is used: text that changes while it is sent breaks a frame's CRC, and with it the
// connection for all users' jobs.
func (c *client) foreign() bool { return c.uid != c.m.uid }

// fetch gets a result that the daemon offers in a window into the sink, and ends
// the window, whatever came of it. An error is why the result is not there; the
// link may have ended. When it returns nothing writes into the sink any more.
func (a *attempt) fetch(ctx context.Context) ([]byte, error) {
	l, fl := a.link, a.fl
	w := fl.Result.Window
	mem, err := a.fetchInto(ctx, l, fl, w)
	l.Release(fl)
	return mem, err
}

// takeSink counts n bytes of the sink as large ones, until its last drop.
func (a *attempt) takeSink(ctx context.Context, n int64) error {
	if a.sink.TryCount(n) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	if err := a.sink.Count(wait, n); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errNoRoom
	}
	return nil
}

func (a *attempt) fetchInto(ctx context.Context, l *link.Link, fl *link.Flight, w job.Window) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n := int64(w.Len)
	if err := a.takeSink(ctx, n); err != nil {
		return nil, err
	}
	mem, err := a.sink.Extend(n)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoRoom, err)
	}
	mr, err := a.m.memory.Register(mem, iwarp.LocalWrite, l.QP())
	if err != nil {
		select {
		case <-l.Dead():
			return nil, l.Err()
		default:
			return nil, fmt.Errorf("%w: %w", errNoRoom, err)
		}
	}
	defer a.m.memory.Dereg(mr)
	if err = l.Fetch(ctx, fl, mr); err == nil {
		a.fetched = time.Now()
		a.m.metrics.Fetched("result")
	}
	return mem, err
}

// errNoRoom: a result cannot be fetched for want of memory here.
var errNoRoom = errors.New("no memory for a large result (buffers.large)")
