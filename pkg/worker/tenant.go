package worker

import (
	"net/netip"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// tenantOf returns the name of a connection's tenant: the name in the certificate that the peer has proven to
// own, otherwise its address. All loopback addresses are one tenant. For IPv6 it is the /64 network, because
// one host can choose any address in that.
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
