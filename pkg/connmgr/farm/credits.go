package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// creditsLocked tells it how many jobs h takes at once.
func (h *Host) creditsLocked() {
	if h.link != nil {
		h.f.sched.Credits(time.Now(), h.Addr, h.unspentLocked())
	}
}

// addLocked keeps a credit that was granted, or was taken and not spent, or returns it at
// once when there are more than this side will ever use.
func (c *conn) addLocked(credit job.Credit) {
	c.credits = append(c.credits, credit)
	if !c.Room(len(c.credits)) {
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
