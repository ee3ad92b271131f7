package worker

import (
	"errors"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

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

// offenders counts violations. It is guarded by Server.mu.
type offenders map[string]*offender

// peerName is the name in a peer's certificate, else its address, of IPv6 the /64.
// Unlike tenants' names it tells addresses on loopback apart.
type peerName struct {
	name  string
	local bool
}

type offender struct {
	left float64 // violations
	at   time.Time
	most float64
	rate float64 // by which left grows, a second
}

func peerOf(info iwarp.ConnInfo) peerName {
	ap, err := netip.ParseAddrPort(info.Remote.String())
	p := peerName{name: tenantOf(info), local: err == nil && ap.Addr().Unmap().IsLoopback()}
	if p.name == localTenant {
		p.name = ap.Addr().Unmap().String()
	}
	return p
}

// broke counts a violation.
func (o offenders) broke(p peerName, now time.Time) {
	x := o[p.name]
	if x == nil {
		if o.forget(now); len(o) >= offendersMost {
			return // so many at a time are no few peers' doing
		}
		x = &offender{left: violations, at: now, most: violations, rate: violationRate}
		if p.local {
			x.left, x.most, x.rate = localViolations, localViolations, localViolationRate
		}
		o[p.name] = x
	}
	x.refill(now)
	x.left = max(0, x.left-1)
}

// wait is how long a peer is kept off still; 0: it may come in.
func (o offenders) wait(p peerName, now time.Time) time.Duration {
	x := o[p.name]
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

// forget drops those of whom nothing is held against.
func (o offenders) forget(now time.Time) {
	for name, x := range o {
		if x.refill(now); x.left >= x.most {
			delete(o, name)
		}
	}
}

// layerMPA is MPA's number in a Terminate (RFC 5044 §8).
const layerMPA = 2

// violation says whether a connection ended as no honest client's does. A frame that the
// network has bent is nobody's fault.
func violation(e ending, end error) bool {
	var t *iwarp.TerminateError
	return e == endedProtocol || e == endedStream && errors.As(end, &t) && t.Layer != layerMPA
}
