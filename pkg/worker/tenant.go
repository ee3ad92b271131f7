package worker

import (
	"net/netip"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// tenantOf names the tenant of a connection: the name in the certificate that the peer has
// proven to own, else its address, and all of this machine together. Of IPv6 it is the
// /64, as one host has all of that to choose from.
func tenantOf(info iwarp.ConnInfo) string {
	if info.Peer != "" {
		return info.Peer
	}
	ap, err := netip.ParseAddrPort(info.Remote.String())
	if err != nil {
		return info.Remote.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback():
		return localTenant
	case ip.Is6():
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}
