package worker

import (
	"errors"
	"net/netip"

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
