package farm

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Connected implements link.Owner.
func (c *conn) Connected() { c.h.connected() }

// Reached implements link.Owner.
func (c *conn) Reached(remote net.Addr) { c.h.reachedAt(remote) }

// Learned implements link.Owner.
func (c *conn) Learned(l *link.Link, what link.News) {
	h, f := c.h, c.h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	c.metLocked(l)
	switch what {
	case link.ToolchainsChanged:
		h.toolchainsLocked()
	case link.LoadChanged:
		h.loadLocked(l.View().Load)
	case link.DrainBegun:
		h.drainingLocked()
		c.returnLocked(c.credits.Len())
	case link.DemandHeard:
		f.demandsLocked(time.Now())
	case link.BoardRead:
		f.o.Board("ok")
	case link.BoardTorn:
		f.o.Board("torn")
	}
}

// Granted implements link.Owner.
func (c *conn) Granted(l *link.Link, credits []job.Credit) {
	c.h.f.mu.Lock()
	defer c.h.f.mu.Unlock()
	c.metLocked(l)
	for _, credit := range credits {
		c.addLocked(credit)
	}
}

// Answered implements link.Owner.
func (c *conn) Answered(l *link.Link, load job.Load, out uint64, next *job.Credit) {
	h := c.h
	if out > 0 {
		h.moved(out, 0)
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	c.metLocked(l)
	h.loadLocked(load)
	if next != nil {
		c.addLocked(*next)
	}
}

// Recalled implements link.Owner.
func (c *conn) Recalled(l *link.Link, n int) {
	c.h.f.mu.Lock()
	defer c.h.f.mu.Unlock()
	c.metLocked(l)
	c.returnLocked(n)
}

// Moved implements link.Owner.
func (c *conn) Moved(out, in uint64) { c.h.moved(out, in) }

// Tick implements link.Owner.
func (c *conn) Tick(l *link.Link, now time.Time) (wanted bool) {
	h, f := c.h, c.h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	c.metLocked(l)
	if h.link == c {
		rtt, rate := l.Path()
		f.sched.Link(now, h.Addr, scheduler.Link{RTT: rtt, Rate: rate})
	}
	f.demandsLocked(now)
	h.growLocked(now)
	h.retireLocked(c, now)
	return now.Sub(h.lastWant) < wantedFor
}

// Settled implements link.Owner.
func (c *conn) Settled() {
	c.h.f.mu.Lock()
	defer c.h.f.mu.Unlock()
	c.h.f.dispatchLocked()
}

// Lost implements link.Owner. The other connections go on.
func (c *conn) Lost(l *link.Link, why error) {
	h, f := c.h, c.h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(h.links, c)
	if i < 0 { // it was never up (carry), or was retired
		return
	}
	h.links = slices.Delete(h.links, i, i+1)
	if len(h.links) == 0 {
		h.downLocked(why)
		return
	}
	h.pauseGrowLocked()
	if h.link == c {
		h.link = h.links[0]
		h.link.Inherit(l)
		h.loadLocked(h.link.View().Load)
	}
	if f.ctx.Err() == nil {
		f.o.Log.Warn("connection lost", "host", h.Addr, "left", len(h.links), "err", why)
	}
	h.creditsLocked()
}

// connected records that a connection to h was accepted, before any message.
func (h *Host) connected() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.state != Connecting || errors.Is(h.lastErr, errSilent) { // this is an additional link, so the host is not starting
		return
	}
	now := time.Now()
	h.state = Starting
	if h.answered.IsZero() {
		h.answered = now
	}
	h.f.sched.Starting(now, h.Addr)
	h.f.dispatchLocked()
}
