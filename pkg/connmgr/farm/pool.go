package farm

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A host usually has one connection, which stays warm and on which sources take turns. Another one is opened
// when all existing ones have too much to do (link.Busy). To the daemon, all connections of one manager are
// one client. Experiments E1, E2 and E2b (lab/experiments.md) show what a connection for each job would cost.

// poolPause is the pause after an additional connection could not be opened, or was lost.
const poolPause = 5 * time.Second

// errIdle ends a connection that is no longer needed.
var errIdle = errors.New("idle")

// pauseGrowLocked postpones the next additional link, by a random time, because many managers may have lost
// theirs.
func (h *Host) pauseGrowLocked() {
	h.nextGrow = time.Now().Add(poolPause/2 + rand.N(poolPause))
}

// joinLocked adds a link to the host.
func (h *Host) joinLocked(l *conn) {
	h.links = append(h.links, l)
	h.creditsLocked()
	if l.Draining() {
		h.drainingLocked()
	}
	h.f.o.Log.Info("further connection", "host", h.Addr, "connections", len(h.links))
}

// growLocked asks for another link if all existing ones have too much to do.
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

// retireLocked ends l if there are more links than are to be kept and l has been idle for long.
func (h *Host) retireLocked(l *conn, now time.Time) {
	if idle := l.Idle(now); l == h.link || len(h.links) <= h.f.o.LinksMin || idle < h.f.o.LinksIdle || !slices.Contains(h.links, l) {
		return
	}
	h.links = slices.DeleteFunc(h.links, func(x *conn) bool { return x == l })
	l.returnLocked(l.credits.Len())
	l.Retire(errIdle) // only once, because it is not in links any more
}
