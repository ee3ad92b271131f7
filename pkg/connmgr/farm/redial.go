package farm

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
)

// A host that no job has asked for during wantedFor is dialled less often, once per unwantedPause, until a
// job asks for it again.
const (
	wantedFor     = 2 * time.Minute
	unwantedPause = 15 * time.Second

	// ForgetAfter is how long a host that is down is kept without a job that names it: lists change, and each
	// host has a goroutine.
	ForgetAfter = time.Hour
)

// wantLocked records that a job may need the host. For eager, see Want.
func (h *Host) wantLocked(now time.Time, eager *time.Duration) {
	slow := now.Sub(h.lastWant) > wantedFor && now.After(h.retry)
	h.lastWant = now
	if h.state == Down && (slow || eager != nil && !now.Before(h.lostAt.Add(*eager))) {
		h.kickLocked()
	}
}

// redialLocked makes the hosts dial that the scheduler says are due.
func (f *Farm) redialLocked(now time.Time) {
	due, _ := f.sched.Due(now)
	for _, addr := range due {
		if h := f.hosts[addr]; h != nil && h.state == Down {
			h.kickLocked()
		}
	}
}

// kickLocked ends h's pause.
func (h *Host) kickLocked() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// startPause is the pause between two attempts to connect to a host that is starting.
const startPause = 100 * time.Millisecond

// startsLocked reports whether a host may still come up after an attempt has failed with err: it accepts
// connections but sends nothing, and has done so for less than the patience of waiting jobs. Such a host does
// not count as lost, and there is no back-off.
func (h *Host) startsLocked(err error) bool {
	now := time.Now()
	if h.state != Starting || !errors.Is(err, errSilent) || now.Sub(h.answered) >= h.f.pace.Patience {
		return false
	}
	h.retry = now.Add(startPause)
	return true
}

// hangUpTime is how long a host may hang up on every attempt and still count as one that is starting. A proxy in front of a daemon that
// is not there yet does so as well, a daemon with another identity, or another program at that port, for good.
const hangUpTime = 5 * time.Second

// hungUpLocked notes the outcome of an attempt to connect. It reports whether the host has taken connections and hung up on them,
// and done nothing else, for hangUpTime: then it refuses this machine, and no job waits for it.
func (h *Host) hungUpLocked(now time.Time, err error) bool {
	if h.state != Starting && !(h.state == Connecting && link.HungUp(err)) || errors.Is(err, errSilent) {
		h.hangsUp = time.Time{}
		return false
	}
	if h.hangsUp.IsZero() {
		h.hangsUp = now
	}
	return now.Sub(h.hangsUp) >= hangUpTime
}

// errSilent ends an attempt to connect in which the connection was accepted but no message came in time.
var errSilent = errors.New("takes connections and does not answer")
