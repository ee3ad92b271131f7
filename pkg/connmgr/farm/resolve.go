package farm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// resolveTime bounds a look-up that only finds out whether names can be resolved.
const resolveTime = time.Second

// dialAddr returns where to dial h: its name or, if the resolver has trouble, the address where it was last
// reached. A name that is known not to exist, or that was never reached, is returned as it is, for the
// dialler to judge.
func (h *Host) dialAddr(ctx context.Context) string {
	name, port, err := net.SplitHostPort(h.Addr)
	if err != nil || !h.reached.IsValid() {
		return h.Addr
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return h.Addr
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	r := h.f.o.Resolver
	if r == nil {
		r = &net.Resolver{PreferGo: true} // the pure Go resolver obeys its context
	}
	var no *net.DNSError
	if _, err = r.LookupNetIP(ctx, "ip", name); errors.As(err, &no) && !no.IsNotFound {
		return net.JoinHostPort(h.reached.String(), port)
	}
	return h.Addr
}

// reachedAt records the address that a Dial has reached.
func (h *Host) reachedAt(remote net.Addr) {
	if a, ok := remote.(*net.TCPAddr); ok {
		h.reached = a.AddrPort().Addr().Unmap()
	}
}
