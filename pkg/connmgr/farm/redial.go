package farm

import (
	"errors"
	"time"
)

// A host that no job has asked for during wantedFor is dialled less often: once
// in unwantedPause, until a job asks again.
const (
	wantedFor     = 2 * time.Minute
	unwantedPause = 15 * time.Second

	// ForgetAfter is when a host that is down and that no job names any more is
	// dropped: lists change, and each host has a goroutine.
	ForgetAfter = time.Hour
)

// wantLocked notes that a job may need the host. eager: see Want.
func (h *Host) wantLocked(now time.Time, eager *time.Duration) {
	slow := now.Sub(h.lastWant) > wantedFor && now.After(h.retry)
	h.lastWant = now
	if h.state == Down && (slow || eager != nil && !now.Before(h.lostAt.Add(*eager))) {
		h.kickLocked()
	}
}

// redialLocked has the hosts dialled that the scheduler has made due.
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

// startPause is between two attempts to connect a host that is starting.
const startPause = 100 * time.Millisecond

// startsLocked reports whether a host may yet come up of which an attempt has failed: something
// takes connections there and says nothing, for less than the patience of jobs that wait
// for that. Such a host is not lost, and there is no back-off.
func (h *Host) startsLocked(err error) bool {
	now := time.Now()
	if h.state != Starting || !errors.Is(err, errSilent) || now.Sub(h.answered) >= h.f.pace.Patience {
		return false
	}
	h.retry = now.Add(startPause)
	return true
}

// errSilent ends an attempt to connect in which something took the connection and said
// nothing in time.
var errSilent = errors.New("takes connections and does not answer")
