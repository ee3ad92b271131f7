package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// TestPeersAreToldApart: an IPv6 /64 network is one peer, so is a certificate wherever it is used, and each
// loopback address; ports make no difference.
func TestPeersAreToldApart(t *testing.T) {
	at := func(addr, name string) lend.Peer {
		return peerOf(iwarp.ConnInfo{Remote: netAddr(addr), Peer: name})
	}
	bad := at("192.0.2.7:1", "")
	if at("192.0.2.7:999", "") != bad || at("[::ffff:192.0.2.7]:2", "") != bad {
		t.Error("another port of the same address is another peer")
	}
	if at("192.0.2.8:1", "") == bad || at("192.0.2.7:1", "tls:build1") == bad {
		t.Error("two are one")
	}
	for same, other := range map[lend.Peer]lend.Peer{
		at("[2001:db8::1]:1", ""):           at("[2001:db8::ffff:2]:2", ""),
		at("192.0.2.9:1", "tls:build2"):     at("[2001:db8::1]:1", "tls:build2"),
		at("127.0.0.2:5", ""):               at("127.0.0.2:6", ""),
		at("[2001:db8:0:1::5%eth0]:5", ""):  at("[2001:db8:0:1::6]:6", ""),
		at("[::ffff:198.51.100.4]:400", ""): at("198.51.100.4:5", ""),
	} {
		if same != other {
			t.Errorf("%v is not %v", other, same)
		}
	}
	if local := at("127.0.0.1:5", ""); local == at("127.0.0.2:5", "") || !local.Local || bad.Local {
		t.Error("addresses on loopback are not told apart")
	}
}

// TestViolation: only endings that no honest client causes are violations.
func TestViolation(t *testing.T) {
	if violation(endedStream, &iwarp.TerminateError{Layer: layerMPA, Code: 2}) || !violation(endedStream, &iwarp.TerminateError{Layer: 1, Type: 1}) ||
		!violation(endedProtocol, errors.New("x")) || violation(endedClosed, nil) || violation(endedTerminated, &iwarp.TerminateError{FromPeer: true}) {
		t.Error("what a violation is")
	}
}

// TestOffenderIsTold: an offender is rejected, counted, and told when to try again.
func TestOffenderIsTold(t *testing.T) {
	ts := startServer(t, nil)
	from := peerOf(iwarp.ConnInfo{Remote: netAddr("127.0.0.1:5")})
	ts.mu.Lock()
	for range 400 {
		ts.offenders.Broke(from, time.Now().Add(time.Hour)) // which time does not forgive meanwhile
	}
	ts.mu.Unlock()
	g := job.Greeting{Version: job.Version}
	if j := rejection(t, ts.addr, g.Append(nil)); j.Cause != job.CauseFull || j.Detail != "broke the rules of the protocol too often; again in 0s" {
		t.Errorf("%+v", j)
	}
}

// TestFirstCreditWaitsForNobody: a client that holds many credits and ignores a Recall when there should be
// fewer does not keep another from its first one.
func TestFirstCreditWaitsForNobody(t *testing.T) {
	ts := startServer(t, nil)
	hoarder := dial(t, ts.addr, &job.Hello{Name: "hoarder"})
	rebalanced := func(change func(*lend.Client)) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for c := range ts.conns {
			change(c.lent.Client())
		}
		ts.rebalanceLocked()
	}
	hoarder.mu.Lock()
	hoarder.keep = true
	hoarder.mu.Unlock()
	rebalanced(func(cl *lend.Client) { // its jobs are far away
		cl.SetDemand(100, 1)
		for ts.lend.Starved(time.Now(), func(*lend.Conn) time.Duration { return time.Hour }) {
		}
		cl.SetDemand(-1, 0)
	})
	hoarder.wait("many credits", func() bool { return len(hoarder.credits) > 10 })
	rebalanced(func(*lend.Client) { // and do not come
		for range 16 {
			ts.lend.Tick(time.Now())
		}
	})
	second := dial(t, ts.addr, &job.Hello{Name: "second"})
	if r := second.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan {
		t.Errorf("%+v", r.Result)
	}
}
