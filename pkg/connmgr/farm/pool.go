package farm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A host has one connection as a rule: it stays warm, and sources go by turns on it.
// A further one is opened when all that there are have too much to do (link.Busy). The
// daemon takes those of one manager for one client.

// poolPause follows a connection that could not be opened, or was lost.
const poolPause = 5 * time.Second

// errIdle is why a connection that was not needed any more ended.
var errIdle = errors.New("idle")

// serve lends l to the jobs, and further links as they are needed, until none is
// left.
func (h *Host) serve(ctx context.Context, l *conn) {
	f := h.f
	dialing, cancel := context.WithCancel(ctx) // without a link, run dials
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

// carry lends l to the jobs until it ends.
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

// extend dials one more link and lends it.
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

// pauseGrowLocked puts the next further link off: spread, as many managers may have
// lost theirs.
func (h *Host) pauseGrowLocked() {
	h.nextGrow = time.Now().Add(poolPause/2 + rand.N(poolPause))
}

// joinLocked adds a link to those that there are.
func (h *Host) joinLocked(l *conn) {
	h.links = append(h.links, l)
	h.creditsLocked()
	if l.Draining() {
		h.drainingLocked()
	}
	h.f.o.Log.Info("further connection", "host", h.Addr, "connections", len(h.links))
}

// growLocked asks for a further link if those that there are have too much to do.
func (h *Host) growLocked(now time.Time) {
	o := &h.f.o
	if h.growing || h.state != Up || len(h.links) >= o.LinksMax || now.Before(h.nextGrow) {
		return
	}
	if len(h.links) >= o.LinksMin {
		for _, l := range h.links {
			if !l.Busy() {
				return
			}
		}
	}
	h.growing = true
	h.grow <- struct{}{} // there is room: growing was not set
}

// bestLocked returns the link whose credit a job gets: the first one on which no source
// waits, so that what suffices stays warm, or the one with the fewest bytes waiting.
// Some link has a credit.
func (h *Host) bestLocked() *conn {
	var best *conn
	var least uint64
	for _, l := range h.links {
		if len(l.credits) == 0 {
			continue
		}
		n := l.Backlog()
		if best == nil || n < least {
			best, least = l, n
		}
		if n == 0 {
			break
		}
	}
	return best
}

// retireLocked ends l if it is beyond those that are to be kept and had nothing to
// do for long.
func (h *Host) retireLocked(l *conn, now time.Time) {
	if idle := l.Idle(now); l == h.link || len(h.links) <= h.f.o.LinksMin || idle < h.f.o.LinksIdle || !slices.Contains(h.links, l) {
		return
	}
	h.links = slices.DeleteFunc(h.links, func(x *conn) bool { return x == l })
	l.returnLocked(len(l.credits))
	l.Retire(errIdle) // once: it is in links no more
}

// runningLocked counts our jobs on the host.
func (h *Host) runningLocked() (n int) {
	for _, l := range h.links {
		n += l.Running()
	}
	return n
}

// unspentLocked counts our credits.
func (h *Host) unspentLocked() (n int) {
	for _, l := range h.links {
		n += len(l.credits)
	}
	return n
}
