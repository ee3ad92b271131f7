// Package tcpaddr says what the addresses of a listener and of a connection mean for the socket.
package tcpaddr

import (
	"net"
	"net/netip"
)

// Network returns the network on which to listen on addr, HOST:PORT. An IPv4 address is one of IPv4 alone, also 0.0.0.0, of which
// package net would make all addresses of IPv6 as well; those are [::], or no address at all.
func Network(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "tcp"
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return "tcp4"
	}
	return "tcp"
}
