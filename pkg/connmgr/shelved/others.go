package shelved

import (
	"context"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Others is a wait for a result that a host is making for another manager.
type Others struct {
	Farm *farm.Farm
	List []scheduler.Host
	Keys []resultcache.Key // the names that the result may get; the first one is that of the job's mark
	Most int               // the longest result that is of use, in bytes
	// Near is the longest round trip to a host that is asked for news before anything else, if other managers have
	// jobs there. Without that, managers that begin the same build at the same time would not know of each other's
	// latest jobs.
	Near time.Duration
	// Patience returns for how much longer the result of a job that is under way is worth waiting for; 0 or less: it
	// is not. It is called now and then while that goes on.
	Patience func(now time.Time, u *UnderWay) time.Duration

	Waited bool // set by Wait if it did not return at once
}

// UnderWay is a job of another manager.
type UnderWay struct {
	Host    string
	Expect  time.Duration // what that manager expects it to take; 0: it does not know
	Running bool          // it has a place, otherwise it waits for one
	Since   time.Time     // when that was first seen
}

// End is how a wait has ended.
type End string

// Ends of a wait.
const (
	Nobody End = ""     // no job was under way
	Made   End = "made" // a host has the result
	Lost   End = "lost" // the job has no result, or its host is gone
	Late   End = "late" // it is not worth waiting for
)

// Ends returns those after which somebody has waited.
func Ends() []string { return []string{string(Made), string(Lost), string(Late)} }

// Wait waits until a host has the result, or none is expected to have it in time, or ctx ends. If no other manager has
// such a job, it does not wait; if none has any job on a host that is near, nothing is asked.
func (o *Others) Wait(ctx context.Context) End {
	end := Nobody
	for first := true; ; first = false {
		l, _ := New(o.Farm, o.List, o.Most)
		now := time.Now()
		if first && l.news(ctx, now, o.Near) {
			now = time.Now()
		}
		if l.has(now, o.Keys) {
			return Made
		}
		x, u := l.underWay(o.Keys[0])
		if x == nil {
			return end
		}
		left := o.Patience(now, u)
		if left <= 0 {
			return Late
		}
		end, o.Waited = Lost, true
		t := time.NewTimer(left)
		select {
		case <-x.Look(now):
		case <-x.Dead():
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return end
		}
		t.Stop()
	}
}

// appearPause is the time between two looks of Appears.
const appearPause = 50 * time.Millisecond

// Appears waits until a host has the result, or another manager's job for it is under way that is worth waiting for, or
// ctx ends. It reports whether that is so. As long as no other manager has jobs on a host that is near, nothing is asked.
func (o *Others) Appears(ctx context.Context) bool {
	t := time.NewTicker(appearPause)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		l, _ := New(o.Farm, o.List, o.Most)
		if l.news(ctx, time.Now(), o.Near) && o.known(l) {
			return true
		}
	}
}

// Known reports whether a host has the result, or Wait would wait for one. If ask is set, it makes known what is new
// first, as Wait does.
func (o *Others) Known(ctx context.Context, ask bool) bool {
	l, _ := New(o.Farm, o.List, o.Most)
	if ask {
		l.news(ctx, time.Now(), o.Near)
	}
	return o.known(l)
}

func (o *Others) known(l *Look) bool {
	now := time.Now()
	if l.has(now, o.Keys) {
		return true
	}
	x, u := l.underWay(o.Keys[0])
	return x != nil && o.Patience(now, u) > 0
}

// news makes known what is new on those hosts where other managers have jobs, and that are no farther away than near.
// It reports whether there are any.
func (l *Look) news(ctx context.Context, now time.Time, near time.Duration) bool {
	var waits []<-chan struct{}
	for i := range l.up {
		x := &l.up[i]
		if rtt, _ := x.Path(); rtt <= near && x.Shared(now) {
			waits = append(waits, x.Look(now))
		}
	}
	if len(waits) == 0 {
		return false
	}
	t := time.NewTimer(slack + trips*min(near, l.farthest()))
	defer t.Stop()
	for _, w := range waits {
		select {
		case <-w:
		case <-t.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// has reports whether a host has a result by one of these names, as far as is known.
func (l *Look) has(now time.Time, keys []resultcache.Key) bool {
	for i := range l.up {
		for _, key := range keys {
			if at, ok := l.up[i].Find(now, key); ok && l.fits(at) {
				return true
			}
		}
	}
	return false
}

// underWay returns a host where another manager's job is under way whose result will be that of key, or nil. Of
// several, it is the one that has been seen for the longest time, a job that has a place before one that waits.
func (l *Look) underWay(key resultcache.Key) (*farm.Shelf, *UnderWay) {
	var at *farm.Shelf
	var best UnderWay
	for i := range l.up {
		u, ok := l.up[i].UnderWay(key)
		if ok && (at == nil || u.Running && !best.Running || u.Running == best.Running && u.Since.Before(best.Since)) {
			at, best = &l.up[i], UnderWay{l.up[i].Addr, u.Expect, u.Running, u.Since}
		}
	}
	return at, &best
}
