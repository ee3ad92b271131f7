package worker

import (
	"errors"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// peerOf is the peer that violations are held against: the name in its certificate, else its
// address, of IPv6 the /64. Unlike tenants' names it tells addresses on loopback apart.
func peerOf(info iwarp.ConnInfo) lend.Peer {
	ap, err := netip.ParseAddrPort(info.Remote.String())
	p := lend.Peer{Name: tenantOf(info), Local: err == nil && ap.Addr().Unmap().IsLoopback()}
	if p.Name == localTenant {
		p.Name = ap.Addr().Unmap().String()
	}
	return p
}

// layerMPA is MPA's number in a Terminate (RFC 5044 §8).
const layerMPA = 2

// violation says whether a connection ended as no honest client's does. A frame that the
// network has bent is nobody's fault.
func violation(e ending, end error) bool {
	var t *iwarp.TerminateError
	return e == endedProtocol || e == endedStream && errors.As(end, &t) && t.Layer != layerMPA
}

// endingOf tells why the QP of a connection that has ended did: why is receive's
// reason, given what was decided elsewhere, end the QP's own word.
func endingOf(why error, given ending, end error) ending {
	var t *iwarp.TerminateError
	switch {
	case errors.Is(why, errPanic):
		return endedPanic
	case errors.Is(why, errUnproven):
		return endedUnproven
	case errors.Is(why, errCrowded):
		return endedCrowded
	case why != nil:
		return endedProtocol
	case given != "":
		return given
	case errors.As(end, &t) && t.FromPeer:
		return endedTerminated
	case errors.As(end, &t):
		return endedStream
	}
	return endedClosed
}

// markEnded counts the end of a connection, and holds it against the peer if no honest
// client's ends so.
func (c *conn) markEnded(why error, given ending) {
	end := c.qp.Err()
	e := endingOf(why, given, end)
	c.s.o.Metrics.connectionEnded(e)
	if violation(e, end) {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.offenders.Broke(c.peer, time.Now())
	}
}
