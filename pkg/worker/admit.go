package worker

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// admit rejects a connection request, or starts to serve the connection. via is that of ServeOnBehalf.
func (s *Server) admit(req iwarp.ConnRequest, via string) {
	if via == "" && streams.Wanted(req.Info().PrivateData) {
		s.admitStream(req)
		return
	}
	remote := req.Info().Remote
	g, claim, r := s.judge(req, via)
	if r != nil {
		s.reject(req, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastConn++
	c := newConn(s, s.lastConn, remote, via)
	c.version, c.boot, c.peer = g.Version, g.Boot, peerOf(req.Info())
	c.proof = "address"
	if req.Info().Peer != "" {
		c.proof = "certificate"
	}
	if c.claim = claim; claim != nil {
		c.proof = "key"
		s.makeRoomLocked()
	}
	tenant := tenantOf(req.Info())
	c.lent = s.lend.Connect(tenant, claim != nil)
	c.lent.Owner = c
	c.allowance = s.large.Join(tenant, s.o.largePart())
	s.conns[c] = true
	s.serving.Go(func() { c.serve(req) })
}

// reject refuses a connection request with r.
func (s *Server) reject(req iwarp.ConnRequest, r *job.Rejection) {
	remote := req.Info().Remote
	s.o.Audit.Refused(tenantOf(req.Info()), remote.String(), r)
	s.o.Metrics.refused(r.Cause)
	if r.Cause != job.CauseDenied { // authFailed has logged it
		s.o.Log.Warn("connection rejected", "remote", remote.String(), "cause", r.Cause.String(), "detail", r.Detail)
	}
	if err := req.Reject(r.Append(nil)); err != nil {
		s.o.Log.Debug("reject", "remote", remote.String(), "err", err)
	}
}

// mayConnect returns why the peer may not connect at all, whatever it wants; nil: it may.
func (s *Server) mayConnect(info *iwarp.ConnInfo) *job.Rejection {
	if s.allowed(info.Remote) {
		return nil
	}
	detail := fmt.Sprintf("%s is in no network of --allow", hostOf(info.Remote))
	s.authFailed(info.Remote, authNetwork, detail)
	return &job.Rejection{Cause: job.CauseDenied, Detail: detail}
}

// judge decides about a connection request. It returns why the request is rejected, or the peer's Greeting
// and, if it has to prove itself, its claim.
func (s *Server) judge(req iwarp.ConnRequest, via string) (g job.Greeting, claim *psk.Claim, no *job.Rejection) {
	info := req.Info()
	if via == "" {
		no = s.mayConnect(&info)
	}
	if no != nil {
		return g, nil, no
	}
	g, err := job.ParseGreeting(info.PrivateData)
	if err != nil {
		return g, nil, &job.Rejection{Cause: job.CauseMalformed, Detail: err.Error()}
	}
	if !job.Speaks(g.Version) {
		return g, nil, &job.Rejection{Cause: job.CauseVersion, Detail: fmt.Sprintf("the daemon speaks versions %d and %d, not %d", job.Oldest, job.Version, g.Version)}
	}
	if via == "" {
		claim, no = s.credentials(&info, len(g.Auth) > 0)
	}
	if no != nil {
		return g, nil, no
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.drain.begun:
		no = &job.Rejection{Cause: job.CauseDraining, Detail: "going down"}
	case s.lend.Full():
		no = &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("%d clients are connected", s.o.Clients)}
	}
	if d := s.offenders.Wait(peerOf(info), time.Now()); no == nil && d > 0 {
		s.o.Metrics.limited(limitViolations)
		no = &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("broke the rules of the protocol too often; again in %v", d.Round(time.Second/10))}
	}
	if n, full := s.lend.Conns(tenantOf(info)); no == nil && full {
		s.o.Metrics.limited(limitConnections)
		no = &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("%d connections from this client (half of limits.clients)", n)}
	}
	return g, claim, no
}

// allowed reports whether the address may connect: it is loopback or in a network of Settings.Allow.
func (s *Server) allowed(remote net.Addr) bool {
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return false
	}
	ip := ap.Addr().Unmap()
	if ip.IsLoopback() {
		return true
	}
	for _, p := range s.settings.Load().Allow {
		if p.Contains(ip.WithZone("")) {
			return true
		}
	}
	return false
}

// hostOf returns an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
