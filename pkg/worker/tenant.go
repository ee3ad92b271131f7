package worker

import (
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// localTenant is the tenant of all peers on this machine without a name of their own.
const localTenant = "local"

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

// largePart returns how much of the large memory one tenant can have, in bytes: half of it, but at least what
// one job can take, whose source is in memory packed and unpacked.
func (o *Options) largePart() int64 {
	if o.ClientBytes > 0 {
		return o.ClientBytes
	}
	biggest := max(o.Source, o.Result)
	return max(1, o.Large/2, min(o.Large, biggest+biggest/4))
}

// lending returns the bounds of what is lent. One tenant can hold as many credits as slots fit in
// limits.client-bytes.
func (o *Options) lending() lend.Options {
	credits := int64(lend.Unlimited)
	if o.ClientBytes > 0 {
		credits = min(o.ClientBytes/o.Slot, lend.Unlimited)
	}
	return lend.Options{Cores: o.Jobs, Conns: o.Clients, Running: o.ClientRunning, Queued: o.ClientQueued, Credits: int(credits)}
}

// leaveLocked removes a connection that has ended and has nothing under way. A second call does nothing.
func (s *Server) leaveLocked(c *conn) {
	if !s.conns[c] {
		return
	}
	delete(s.conns, c)
	s.lend.Leave(c.lent, time.Now())
	s.large.Leave(c.lent.Tenant().Name())
}

// admissibleLocked returns why another job of the connection's tenant may not wait here, or nil if it may.
func (c *conn) admissibleLocked() *job.Refusal {
	if !c.s.lend.Crowded(c.lent.Tenant()) {
		return nil
	}
	c.s.o.Metrics.limited(limitQueued)
	return job.Refuse(job.CauseFull, "%d jobs of this client wait here already (limits.client-queued)", c.s.o.ClientQueued)
}
