package worker

import (
	"errors"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// proveTime is how long a client may take from our Reply to its proof, a message that it sends at once.
const proveTime = 10 * time.Second

// Causes for turning a peer away, as metrics name them, in addition to authNetwork.
const (
	authMissing  = "psk-missing"  // it offers no proof
	authWrong    = "psk-wrong"    // its key is another one, or what it sent was altered in transit
	authUnproven = "psk-unproven" // the connection ended before the proof
	authNone     = "psk-unwanted" // it has a key, and this daemon has none
)

var authCauses = []string{authNetwork, authMissing, authWrong, authUnproven, authNone}

// authFailed counts and logs a peer that has not proven its identity, or passes it to Options.AuthFailed.
func (s *Server) authFailed(remote net.Addr, cause, detail string) {
	if f := s.o.AuthFailed; f != nil {
		f(remote, cause, detail)
		return
	}
	s.o.Metrics.AuthFailed(cause)
	s.o.Log.Warn("peer turned away", "remote", remote.String(), "cause", cause, "detail", detail)
}

// credentials judges the claim in a greeting; offered reports whether there is one. It returns the claim, or nil if
// neither side has a key, or why the peer is rejected. A side that has a key never accepts a connection without a proof.
func (s *Server) credentials(info *iwarp.ConnInfo, offered bool) (*psk.Claim, *job.Rejection) {
	k := s.key()
	var cause, detail string
	switch {
	case k == nil && !offered:
		return nil, nil
	case k == nil:
		cause, detail = authNone, "this daemon has no pre-shared key: give it --psk-file, or leave it out here"
	default:
		claim, err := k.Judge(info.PrivateData)
		if err == nil {
			return claim, nil
		}
		cause, detail = authWrong, "wrong key: this daemon has another pre-shared key"
		if errors.Is(err, psk.ErrMissing) {
			cause, detail = authMissing, "this daemon wants a pre-shared key: set auth.psk-file (--psk-file) to a copy of its key"
		}
	}
	s.authFailed(info.Remote, cause, detail)
	return nil, &job.Rejection{Cause: job.CauseDenied, Detail: detail}
}

// errUnproven ends a connection whose client has not proven that it has the key.
var errUnproven = errors.New("no proof of the pre-shared key")

// errCrowded ends a connection that has proven itself, but after others had taken the last place.
var errCrowded = errors.New("no place is left for another connection")

// makeRoomLocked ends a connection whose client has yet to prove that it has the key, if the server has its
// maximum of these.
func (s *Server) makeRoomLocked() {
	out := s.lend.MakeRoom()
	if out == nil {
		return
	}
	c := connOf(out)
	c.uncountLocked()
	c.ousted = true
	s.o.Metrics.limited(limitUnproven)
	if c.qp != nil {
		c.qp.Abort() // without a QP yet, expectProof does it
	}
}

// privateData returns the private data of our Reply: the Greeting and, if there is a key, the proof.
func (c *conn) privateData(info iwarp.ConnInfo) []byte {
	g := job.Greeting{Version: c.version, Boot: c.s.boot}
	if c.claim == nil {
		return g.Append(nil)
	}
	return c.claim.Answer(g.Append(nil), info.Request, info.Reply)
}

// expectProof starts the timer for the client's proof. It ends a connection that had to make room meanwhile.
func (c *conn) expectProof() {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.claim == nil {
		return
	}
	if c.ousted {
		c.qp.Abort()
		return
	}
	limit := s.o.ProveTime
	if limit <= 0 {
		limit = proveTime
	}
	c.proveBy = time.AfterFunc(limit, func() {
		s.mu.Lock()
		late := c.claim != nil && c.state != connEnded
		s.mu.Unlock()
		if late {
			c.qp.Abort()
		}
	})
}

// prove judges the client's proof, or what it sends instead. Until then the client holds nothing but its
// connection and the receives of that. An error ends the connection.
func (c *conn) prove(m job.Message) error {
	p, ok := m.(*job.Proof)
	if !ok {
		return errUnproven
	}
	err := c.claim.Check(p.MAC[:])
	s := c.s
	s.mu.Lock()
	c.provedLocked()
	if err == nil {
		c.enterLocked(connGreeting)
	}
	crowded := s.lend.Crowds(c.lent)
	s.mu.Unlock()
	if err != nil {
		c.s.authFailed(c.remote, authWrong, "the proof is wrong: another pre-shared key, or what start-up said was altered on the way")
		return errUnproven
	}
	if f := s.o.AuthPassed; f != nil {
		f(c.remote)
	}
	if crowded {
		s.o.Metrics.limited(limitConnections)
		s.o.Metrics.refused(job.CauseFull)
		return errCrowded
	}
	return nil
}

// provedLocked ends the wait for a proof.
func (c *conn) provedLocked() {
	if c.claim = nil; !c.ousted {
		c.uncountLocked()
	}
}

// uncountLocked stops counting the connection as unproven.
func (c *conn) uncountLocked() {
	c.lent.Proved()
	if c.proveBy != nil {
		c.proveBy.Stop()
	}
}

// leftUnproven reports an authentication failure if the connection ends before the client's proof.
func (c *conn) leftUnproven() {
	c.s.mu.Lock()
	left := c.claim != nil
	if left {
		c.provedLocked()
	}
	c.s.mu.Unlock()
	if left {
		c.s.authFailed(c.remote, authUnproven, "the connection ended before the proof of the pre-shared key")
	}
}
