package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
)

// creditsLocked tells the scheduler how many jobs h takes at once.
func (h *Host) creditsLocked() {
	if h.link != nil {
		h.f.sched.Credits(time.Now(), h.Addr, h.unspentLocked())
	}
}

// addLocked keeps a credit that was granted, or was taken and not spent. It returns it to the daemon at once
// if there are more than this side will ever use.
func (c *conn) addLocked(credit job.Credit) {
	c.credits.Put(credit)
	if !c.Room(c.credits.Len()) {
		c.returnLocked(1)
		return
	}
	c.h.creditsLocked()
}

// takeLocked removes and returns the next credit; there must be one. A link.Flight spends it, or addLocked
// puts it back.
func (c *conn) takeLocked() job.Credit {
	c.Use()
	return c.credits.Take()
}

// returnLocked returns up to n unspent credits to the daemon.
func (c *conn) returnLocked(n int) {
	for ; n > 0 && c.credits.Len() > 0; n-- {
		c.Return(c.credits.Take())
	}
	c.h.creditsLocked()
}

// metLocked sets c's link on the first call from it, which comes before Dial returns it.
func (c *conn) metLocked(l *link.Link) {
	if c.Link == nil {
		c.Link = l
	}
}

// bestLocked returns the link whose credit a job gets: the first one on which no source waits, so that as few
// links as suffice stay warm, otherwise the one with the fewest bytes waiting. Some link must have a credit.
func (h *Host) bestLocked() *conn {
	var best *conn
	var least uint64
	for _, l := range h.links {
		if l.credits.Len() == 0 {
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
		n += l.credits.Len()
	}
	return n
}
