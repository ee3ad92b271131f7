package worker

import (
	"errors"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// peerOf returns the peer whose violations are counted together: the name in its certificate, otherwise its
// address, or for IPv6 its /64 network. Unlike tenants' names, it distinguishes loopback addresses.
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

// violation reports whether a connection ended in a way that no honest client's does. Errors of MPA do not
// count: the network may have corrupted a frame.
func violation(e ending, end error) bool {
	var t *iwarp.TerminateError
	return e == endedProtocol || e == endedStream && errors.As(end, &t) && t.Layer != layerMPA
}

// endingOf returns why a connection has ended: why is the error of receive, given what was decided elsewhere,
// end the error of the QP.
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

// markEnded counts the end of a connection, and a violation of the peer if no honest client's connection ends
// that way.
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
