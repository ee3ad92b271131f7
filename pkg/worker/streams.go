package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// Bounds of streams, each of which takes a descriptor and up to a megabyte.
const (
	maxStreams       = 64
	maxTenantStreams = 8
)

// StreamPeer is who has opened a stream.
type StreamPeer struct {
	Name   string // that the peer's certificate proves; "": none
	Local  bool   // it is on this machine
	Remote net.Addr
}

// open streams, of all clients and of each tenant.
type streamCount struct {
	all     int
	tenants map[string]int
}

// admitStream rejects a request for a stream, or serves it. While the server drains it still does: somebody may want to
// see that.
func (s *Server) admitStream(req iwarp.ConnRequest) {
	info := req.Info()
	r, claim, no := s.judgeStream(&info)
	if no != nil {
		s.reject(req, no)
		return
	}
	tenant := tenantOf(info)
	s.serving.Go(func() {
		defer s.leaveStream(tenant)
		limit := s.o.ProveTime
		if limit <= 0 {
			limit = proveTime
		}
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		c, err := streams.Accept(ctx, s.o.Device, req, r, claim)
		cancel()
		if err != nil {
			s.streamEnded(&info, err)
			if claim != nil {
				cause, detail := authUnproven, "the connection ended before the proof of the pre-shared key"
				if errors.Is(err, psk.ErrWrong) {
					cause, detail = authWrong, "the proof is wrong: another pre-shared key, or what start-up said was altered on the way"
				}
				s.authFailed(info.Remote, cause, detail)
			}
			s.o.Log.Debug("stream", "remote", info.Remote.String(), "err", err)
			return
		}
		if f := s.o.AuthPassed; f != nil && claim != nil {
			f(info.Remote)
		}
		if r.Service == streams.Toolchains {
			s.arrived.serve(c, tenant)
		} else {
			s.o.Stream(c, StreamPeer{Name: info.Peer, Local: isLoopback(info.Remote), Remote: info.Remote})
		}
		select {
		case <-c.Done():
		case <-s.ctx.Done():
			_ = c.Close() // or it was closed just now
			<-c.Done()
		}
		s.streamEnded(&info, c.Err())
	})
}

// streamEnded counts it against the peer if its stream has ended because of why, and no honest one's would.
func (s *Server) streamEnded(info *iwarp.ConnInfo, why error) {
	if !errors.Is(why, stream.ErrPeer) && !violation(endingOf(nil, "", why), why) {
		return
	}
	s.o.Log.Warn("client broke the protocol of streams", "remote", info.Remote.String(), "err", why)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offenders.Broke(peerOf(*info), time.Now())
}

// judgeStream decides about a request for a stream. If it is not rejected, the stream is counted.
func (s *Server) judgeStream(info *iwarp.ConnInfo) (r streams.Request, claim *psk.Claim, no *job.Rejection) {
	if no = s.mayConnect(info); no != nil {
		return r, nil, no
	}
	if r, no = streams.Parse(info.PrivateData); no != nil {
		return r, nil, no
	}
	if r.Service == streams.Toolchains {
		if why := s.refusesToolchains(info); why != "" {
			return r, nil, &job.Rejection{Cause: job.CauseDenied, Detail: why}
		}
	} else if s.o.Stream == nil {
		return r, nil, &job.Rejection{Cause: job.CauseDenied, Detail: "this daemon serves no streams"}
	}
	if claim, no = s.credentials(info, r.Proof); no != nil {
		return r, nil, no
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.offenders.Wait(peerOf(*info), time.Now()); d > 0 {
		s.o.Metrics.limited(limitViolations)
		return r, nil, &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("broke the rules of the protocol too often; again in %v", d.Round(time.Second/10))}
	}
	n, tenant := &s.streams, tenantOf(*info)
	if n.all >= maxStreams || n.tenants[tenant] >= maxTenantStreams {
		s.o.Metrics.limited(limitConnections)
		return r, nil, &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("%d streams are open, %d of them from this client", n.all, n.tenants[tenant])}
	}
	if n.tenants == nil {
		n.tenants = make(map[string]int)
	}
	n.all++
	n.tenants[tenant]++
	return r, claim, nil
}

func (s *Server) leaveStream(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams.all--
	if s.streams.tenants[tenant]--; s.streams.tenants[tenant] == 0 {
		delete(s.streams.tenants, tenant)
	}
}

func isLoopback(a net.Addr) bool {
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
