package connmgr

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A host has one connection as a rule: it stays warm, and sources go by turns on it.
// A further one is opened when the jobs that it may carry become few, or when what
// waits on it would keep the network busy for long: one TCP stream does not fill
// every network. The daemon takes those of one manager for one client.
const (
	poolJobs    = maxInFlight / 2
	poolBacklog = time.Second
	poolBytes   = 16 << 20 // the same where the rate is not known

	poolPause = 5 * time.Second // after one that could not be opened, or was lost
)

// errIdle is why a connection that was not needed any more ended.
var errIdle = errors.New("idle")

// serve lends l to the jobs, and further links as they are needed, until none is
// left.
func (h *host) serve(ctx context.Context, l *link) {
	m := h.m
	dialing, cancel := context.WithCancel(ctx) // without a link, run dials
	defer cancel()
	var all sync.WaitGroup
	ended := make(chan struct{}, 1+m.o.LinksMax)
	begin := func(f func()) {
		all.Go(func() {
			f()
			ended <- struct{}{}
		})
	}
	begin(func() { h.carry(ctx, l) })
	for running := 1; running > 0; {
		select {
		case <-ended:
			running--
			m.mu.Lock()
			if len(h.links) == 0 {
				cancel()
			}
			m.mu.Unlock()
		case <-h.grow:
			running++
			begin(func() { h.extend(ctx, dialing) })
		}
	}
	all.Wait()
}

// carry lends l to the jobs until it ends.
func (h *host) carry(ctx context.Context, l *link) {
	m := h.m
	m.mu.Lock()
	switch {
	case l.ended: // lost between its Welcome and now
		if len(h.links) == 0 && h.state != hostDown {
			h.downLocked(l.cause)
		}
	case len(h.links) == 0:
		h.upLocked(l)
	default:
		h.joinLocked(l)
	}
	m.dispatchLocked()
	m.mu.Unlock()
	select {
	case <-l.dead:
	case <-l.retire:
		l.close()
	case <-ctx.Done():
		l.close()
	}
	l.destroy()
}

// extend dials one more link and lends it.
func (h *host) extend(ctx, dialing context.Context) {
	m := h.m
	l, err := dialLink(dialing, m, h)
	m.mu.Lock()
	h.growing = false
	if err != nil {
		h.pauseGrowLocked()
		m.mu.Unlock()
		m.o.Log.Debug("no further connection", "host", h.addr, "err", err)
		return
	}
	m.mu.Unlock()
	h.carry(ctx, l)
}

// pauseGrowLocked puts the next further link off: spread, as many managers may have
// lost theirs.
func (h *host) pauseGrowLocked() {
	h.nextGrow = time.Now().Add(poolPause/2 + rand.N(poolPause))
}

// joinLocked adds a link to those that there are.
func (h *host) joinLocked(l *link) {
	h.links = append(h.links, l)
	l.used = time.Now()
	h.creditsLocked()
	if l.draining {
		h.drainingLocked()
	}
	h.m.o.Log.Info("further connection", "host", h.addr, "connections", len(h.links))
}

// lostLocked is called when l has ended, before its jobs look for another host. The
// other links go on.
func (h *host) lostLocked(l *link) {
	i := slices.Index(h.links, l)
	if i < 0 {
		return
	}
	h.links = slices.Delete(h.links, i, i+1)
	if len(h.links) == 0 {
		h.downLocked(l.cause)
		return
	}
	h.pauseGrowLocked()
	if h.link == l {
		h.link = h.links[0]
		h.link.demand.inherit(&l.demand)
		h.loadLocked(h.link.view.load)
	}
	if h.m.ctx.Err() == nil {
		h.m.o.Log.Warn("connection lost", "host", h.addr, "left", len(h.links), "err", l.cause)
	}
	h.creditsLocked()
}

// growLocked asks for a further link if those that there are have too much to do.
func (h *host) growLocked(now time.Time) {
	o := &h.m.o
	if h.growing || h.state != hostUp || len(h.links) >= o.LinksMax || now.Before(h.nextGrow) {
		return
	}
	if len(h.links) >= o.LinksMin {
		for _, l := range h.links {
			if !l.busyLocked() {
				return
			}
		}
	}
	h.growing = true
	h.grow <- struct{}{} // there is room: growing was not set
}

// busyLocked says whether l has more to do than one link should.
func (l *link) busyLocked() bool {
	if len(l.flights) >= poolJobs {
		return true
	}
	n := l.turns.backlog()
	if l.path.rate > 0 && !l.path.floor {
		return float64(n) > l.path.rate*poolBacklog.Seconds()
	}
	return n > poolBytes
}

// bestLocked is the link whose credit a job gets: the first one on which no source
// waits, so that what suffices stays warm, or the one with the fewest bytes waiting.
// Some link has a credit.
func (h *host) bestLocked() *link {
	var best *link
	var least uint64
	for _, l := range h.links {
		if len(l.credits) == 0 {
			continue
		}
		n := l.turns.backlog()
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
func (l *link) retireLocked(now time.Time) {
	h := l.h
	if len(l.flights) > 0 || l.offers > 0 {
		l.used = now
	}
	if l == h.link || len(h.links) <= h.m.o.LinksMin || now.Sub(l.used) < h.m.o.LinksIdle || !slices.Contains(h.links, l) {
		return
	}
	l.returnLocked(len(l.credits))
	h.links = slices.DeleteFunc(h.links, func(x *link) bool { return x == l })
	h.creditsLocked()
	if l.cause == nil {
		l.cause = errIdle
	}
	close(l.retire) // once: it is in links no more
}

// runningLocked counts our jobs on the host.
func (h *host) runningLocked() (n int) {
	for _, l := range h.links {
		n += len(l.flights)
	}
	return n
}

// unspentLocked counts our credits.
func (h *host) unspentLocked() (n int) {
	for _, l := range h.links {
		n += len(l.credits)
	}
	return n
}
