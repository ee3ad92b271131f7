package farm

import (
	"net"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// conn is one connection to a host, with the credits that came over it and are not spent.
// It is its link's Owner: it passes on to the host what the link learns. Only it and the host's
// methods take credits and give them back, all under Farm.mu, so that the scheduler never
// counts one that is not there.
type conn struct {
	*link.Link // nil until the daemon has said something, and then the same; guarded by Farm.mu
	h          *Host
	credits    []job.Credit // the last one is the next; guarded by Farm.mu
}

// addLocked keeps a credit that was granted, or was taken and not spent, or returns it at
// once when there are more than this side will ever use.
func (c *conn) addLocked(credit job.Credit) {
	c.credits = append(c.credits, credit)
	if c.Draining() || len(c.credits)+c.Running() > link.MaxInFlight {
		c.returnLocked(1)
		return
	}
	c.h.creditsLocked()
}

// takeLocked returns the next credit, which the caller knows to be there. It is spent by a
// link.Flight, or goes back by addLocked.
func (c *conn) takeLocked() job.Credit {
	last := len(c.credits) - 1
	credit := c.credits[last]
	c.credits = c.credits[:last]
	c.Use()
	return credit
}

// returnLocked gives up to n unspent credits back to the daemon.
func (c *conn) returnLocked(n int) {
	for ; n > 0 && len(c.credits) > 0; n-- {
		last := len(c.credits) - 1
		c.Return(c.credits[last])
		c.credits = c.credits[:last]
	}
	c.h.creditsLocked()
}

// metLocked notes which link c is, with the first that is heard of it: Dial returns it later.
func (c *conn) metLocked(l *link.Link) {
	if c.Link == nil {
		c.Link = l
	}
}

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
		c.returnLocked(len(c.credits))
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

// Recalled implements link.Owner.
func (c *conn) Recalled(l *link.Link, n int) {
	c.h.f.mu.Lock()
	defer c.h.f.mu.Unlock()
	c.metLocked(l)
	c.returnLocked(n)
}

// Moved implements link.Owner.
func (c *conn) Moved(out, in uint64) {
	c.h.f.mu.Lock()
	defer c.h.f.mu.Unlock()
	c.h.movedLocked(out, in)
}

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
	if i < 0 { // it was never up (carry), or is not needed any more
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
