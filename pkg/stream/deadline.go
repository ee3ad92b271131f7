package stream

import (
	"sync"
	"time"
)

// deadline is a channel that is closed when a time has come that can be changed meanwhile.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{}
}

// wait returns a channel that is closed when the deadline as it is now has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lockedPast()
}

func (d *deadline) lockedPast() chan struct{} {
	if d.past == nil {
		d.past = make(chan struct{})
	}
	return d.past
}

// set changes the deadline; the zero time is none. Who waits already goes by the new one, unless the old one has passed.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.lockedPast() // it is being closed
	}
	d.timer = nil
	past := d.lockedPast()
	closed := isClosed(past)
	switch {
	case t.IsZero() || time.Until(t) > 0:
		if closed {
			d.past = make(chan struct{})
			past = d.past
		}
		if !t.IsZero() {
			d.timer = time.AfterFunc(time.Until(t), func() { close(past) })
		}
	case !closed:
		close(past)
	}
}

// passed reports whether the deadline has passed.
func (d *deadline) passed() bool { return isClosed(d.wait()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
