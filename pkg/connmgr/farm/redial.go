package farm

import (
	"errors"
	"time"
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

// errSilent ends an attempt to connect in which the connection was accepted but no message came in time.
var errSilent = errors.New("takes connections and does not answer")
