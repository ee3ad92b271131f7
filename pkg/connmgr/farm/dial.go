package farm

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
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

// run keeps h connected until ctx ends, or nobody has wanted it for long.
func (h *Host) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.f.mu.Lock()
		if time.Since(h.lastWant) > ForgetAfter {
			delete(h.f.hosts, h.Addr)
			h.f.sched.Forget(h.Addr)
			h.f.mu.Unlock()
			return
		}
		h.state = Connecting
		select {
		case <-h.kick: // this is it
		default:
		}
		h.f.sched.Connecting(time.Now(), h.Addr)
		h.f.mu.Unlock()
		dials := h.f.dialling.first
		if h.reached.IsValid() {
			dials = h.f.dialling.again
		}
		if dials.Acquire(ctx, 1) != nil {
			return // ctx has ended
		}
		l, err := h.dial(ctx)
		dials.Release(1)
		if err == nil {
			h.serve(ctx, l)
		} else if ctx.Err() == nil {
			h.f.mu.Lock()
			if !h.startsLocked(err) {
				h.downLocked(err)
				h.f.dispatchLocked()
			}
			h.f.mu.Unlock()
		}
		h.pause(ctx)
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

// connected notes that something has taken a connection to h, and has not said a word.
func (h *Host) connected() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.state != Connecting || errors.Is(h.lastErr, errSilent) { // this is a further link; it did not start
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

// pause waits until the host is to be dialled again.
func (h *Host) pause(ctx context.Context) {
	h.f.mu.Lock()
	wait := time.Until(h.retry)
	if time.Since(h.lastWant) > wantedFor {
		wait = max(wait, unwantedPause)
	}
	h.f.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.kick:
	case <-ctx.Done():
	}
}

// dial makes one more connection.
func (h *Host) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.f.o.DialTimeout)
	defer cancel()
	c := &conn{h: h}
	l, err := link.Dial(ctx, &h.f.dialling.Config, c, h.Addr, h.dialAddr(ctx))
	if err == nil {
		h.f.mu.Lock()
		c.metLocked(l)
		h.f.mu.Unlock()
		return c, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		if h.state == Starting || errors.Is(h.lastErr, errSilent) {
			err = errSilent
		}
	}
	return nil, err
}
