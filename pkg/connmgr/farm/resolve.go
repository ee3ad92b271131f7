package farm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// resolveTime bounds a look-up that is made only to see whether names can be resolved.
const resolveTime = time.Second

// dialAddr returns where to dial h: at its name, or, when the resolver is in trouble, at
// the address where it was reached last. A name that is known not to exist, and one
// that was never reached, is the dialler's to judge.
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
		r = &net.Resolver{PreferGo: true} // which obeys its context
	}
	var no *net.DNSError
	if _, err = r.LookupNetIP(ctx, "ip", name); errors.As(err, &no) && !no.IsNotFound {
		return net.JoinHostPort(h.reached.String(), port)
	}
	return h.Addr
}

// reachedAt notes where a Dial came to.
func (h *Host) reachedAt(remote net.Addr) {
	if a, ok := remote.(*net.TCPAddr); ok {
		h.reached = a.AddrPort().Addr().Unmap()
	}
}
