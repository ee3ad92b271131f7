package lend

import "time"

// A peer that breaks the rules loses its connection and could have the next one at once:
// a guess at an STag each time, say. So violations are counted by peer, and one that has
// no more left is turned away until it has. On loopback all users of a machine come from
// one address.
const (
	violations         = 10
	violationRate      = 0.5 // come back, a second
	localViolations    = 200
	localViolationRate = 50.0
	// offendersMost bounds how many peers are remembered.
	offendersMost = 1024
)

// Offenders counts the violations of peers, by name. It is made with make.
type Offenders map[string]*offender

// Peer is what connections come from, as far as it can be told.
type Peer struct {
	Name  string
	Local bool // it is on this machine
}

type offender struct {
	left float64 // violations
	at   time.Time
	most float64
	rate float64 // by which left grows, a second
}

// Broke counts a violation.
func (o Offenders) Broke(p Peer, now time.Time) {
	x := o[p.Name]
	if x == nil {
		if o.forget(now); len(o) >= offendersMost {
			return // so many at a time are no few peers' doing
		}
		x = &offender{left: violations, at: now, most: violations, rate: violationRate}
		if p.Local {
			x.left, x.most, x.rate = localViolations, localViolations, localViolationRate
		}
		o[p.Name] = x
	}
	x.refill(now)
	x.left = max(0, x.left-1)
}

// Wait returns for how long a peer is still kept off; 0: it may come in.
func (o Offenders) Wait(p Peer, now time.Time) time.Duration {
	x := o[p.Name]
	if x == nil {
		return 0
	}
	if x.refill(now); x.left >= 1 {
		return 0
	}
	return time.Duration((1 - x.left) / x.rate * float64(time.Second))
}

func (x *offender) refill(now time.Time) {
	x.left = min(x.most, x.left+max(0, now.Sub(x.at).Seconds())*x.rate)
	x.at = now
}

// forget drops those against which nothing is held.
func (o Offenders) forget(now time.Time) {
	for name, x := range o {
		if x.refill(now); x.left >= x.most {
			delete(o, name)
		}
	}
}
