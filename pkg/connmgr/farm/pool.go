package farm

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A host has one connection as a rule: it stays warm, and sources go by turns on it.
// A further one is opened when all that there are have too much to do (link.Busy). The
// daemon takes those of one manager for one client.

// poolPause follows a connection that could not be opened, or was lost.
const poolPause = 5 * time.Second

// errIdle is why a connection that was not needed any more ended.
var errIdle = errors.New("idle")

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
