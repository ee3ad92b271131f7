package worker

import (
	"errors"
	"net/netip"

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
