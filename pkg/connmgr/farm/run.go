package farm

import (
	"context"
	"sync"
	"time"
)

// run keeps h connected until ctx ends, or no job has wanted it for long.
func (h *Host) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.f.mu.Lock()
		if time.Since(h.lastWant) > ForgetAfter {
			delete(h.f.hosts, h.Addr)
			h.f.sched.Forget(h.Addr)
			h.f.mu.Unlock()
			return
		}
		h.state = Connecting
		select {
		case <-h.kick: // this dial is what it asked for
		default:
		}
		h.f.sched.Connecting(time.Now(), h.Addr)
		h.f.mu.Unlock()
		dials := h.f.dialling.first
		if h.reached.IsValid() {
			dials = h.f.dialling.again
		}
		if dials.Acquire(ctx, 1) != nil {
			return // ctx has ended
		}
		l, err := h.dial(ctx)
		dials.Release(1)
		if err == nil {
			h.serve(ctx, l)
		} else if ctx.Err() == nil {
			h.f.mu.Lock()
			if !h.startsLocked(err) {
				h.downLocked(err)
				h.f.dispatchLocked()
			}
			h.f.mu.Unlock()
		}
		h.pause(ctx)
	}
}

// pause waits until the host is to be dialled again.
func (h *Host) pause(ctx context.Context) {
	h.f.mu.Lock()
	wait := time.Until(h.retry)
	if time.Since(h.lastWant) > wantedFor {
		wait = max(wait, unwantedPause)
	}
	h.f.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.kick:
	case <-ctx.Done():
	}
}

// serve makes l available to jobs, and additional links as they are needed, until none is left.
func (h *Host) serve(ctx context.Context, l *conn) {
	f := h.f
	dialing, cancel := context.WithCancel(ctx) // once no link is left, run dials instead
	defer cancel()
	var all sync.WaitGroup
	ended := make(chan struct{}, 1+f.o.LinksMax)
	begin := func(do func()) {
		all.Go(func() {
			do()
			ended <- struct{}{}
		})
	}
	begin(func() { h.carry(ctx, l) })
	for running := 1; running > 0; {
		select {
		case <-ended:
			running--
			f.mu.Lock()
			if len(h.links) == 0 {
				cancel()
			}
			f.mu.Unlock()
		case <-h.grow:
			running++
			begin(func() { h.extend(ctx, dialing) })
		}
	}
	all.Wait()
}

// carry makes l available to jobs until it ends.
func (h *Host) carry(ctx context.Context, l *conn) {
	f := h.f
	f.mu.Lock()
	switch err := l.Ended(); {
	case err != nil: // lost between its Welcome and now
		if len(h.links) == 0 && h.state != Down {
			h.downLocked(err)
		}
	case len(h.links) == 0:
		h.upLocked(l)
	default:
		h.joinLocked(l)
	}
	f.dispatchLocked()
	f.mu.Unlock()
	l.Run(ctx)
}

// extend dials an additional link and makes it available to jobs.
func (h *Host) extend(ctx, dialing context.Context) {
	f := h.f
	l, err := h.dial(dialing)
	f.mu.Lock()
	h.growing = false
	if err != nil {
		h.pauseGrowLocked()
		f.mu.Unlock()
		f.o.Log.Debug("no further connection", "host", h.Addr, "err", err)
		return
	}
	f.mu.Unlock()
	h.carry(ctx, l)
}
