package lend

import "time"

// A peer that violates the protocol loses its connection but could open another at once, say to guess an STag
// each time. So violations are counted per peer, and a peer that has used up its allowance is turned away
// until some of it has come back. The allowance on loopback is larger, because all users of a machine have
// the same address there.
const (
	violations         = 10
	violationRate      = 0.5 // per second, that come back
	localViolations    = 200
	localViolationRate = 50.0
	// offendersMost bounds how many peers are remembered.
	offendersMost = 1024
)

// Offenders counts the violations of peers, by name. Create it with make.
type Offenders map[string]*offender

// Peer identifies where a connection comes from.
type Peer struct {
	Name  string
	Local bool // it is on this machine
}

// offender is the allowance of one peer, as of at.
type offender struct {
	left float64 // violations that it may still commit
	at   time.Time
	most float64 // bounds left
	rate float64 // by which left grows per second
}

// Broke counts a violation of p.
func (o Offenders) Broke(p Peer, now time.Time) {
	x := o[p.Name]
	if x == nil {
		if o.forget(now); len(o) >= offendersMost {
			return // that many offenders at a time are not the doing of a few peers
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

// Wait returns how long a peer is still to be turned away, 0 if it may connect.
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

// refill adds the violations that have come back since x.at.
func (x *offender) refill(now time.Time) {
	x.left = min(x.most, x.left+max(0, now.Sub(x.at).Seconds())*x.rate)
	x.at = now
}

// forget drops the peers whose whole allowance has come back.
func (o Offenders) forget(now time.Time) {
	for name, x := range o {
		if x.refill(now); x.left >= x.most {
			delete(o, name)
		}
	}
}
