package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// TestOffendersAreKeptOff: a peer that breaks rules again and again is turned away for a
// time, others are not, and what is remembered is bounded.
func TestOffendersAreKeptOff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o := make(offenders)
	at := func(addr, name string) peerName {
		return peerOf(iwarp.ConnInfo{Remote: netAddr(addr), Peer: name})
	}
	bad, good := at("192.0.2.7:1", ""), at("192.0.2.8:1", "")
	for range violations - 1 {
		o.broke(bad, now)
	}
	if d := o.wait(bad, now); d != 0 {
		t.Errorf("kept off for %v before the last violation", d)
	}
	for range 50 {
		o.broke(bad, now)
	}
	if d := o.wait(bad, now); d != 2*time.Second {
		t.Errorf("kept off for %v, want 2s", d)
	}
	if o.wait(at("192.0.2.7:999", ""), now) == 0 || o.wait(at("[::ffff:192.0.2.7]:2", ""), now) == 0 {
		t.Error("another port of the same address may come in")
	}
	if o.wait(good, now)+o.wait(at("192.0.2.7:1", "tls:build1"), now) != 0 {
		t.Error("another peer is kept off")
	}
	now = now.Add(2 * time.Second)
	if d := o.wait(bad, now); d != 0 {
		t.Errorf("kept off for %v more", d)
	}
	// One IPv6 network, one certificate wherever it is used, one of loopback's addresses.
	for same, other := range map[peerName]peerName{
		at("[2001:db8::1]:1", ""):           at("[2001:db8::ffff:2]:2", ""),
		at("192.0.2.9:1", "tls:build2"):     at("[2001:db8::1]:1", "tls:build2"),
		at("127.0.0.2:5", ""):               at("127.0.0.2:6", ""),
		at("[2001:db8:0:1::5%eth0]:5", ""):  at("[2001:db8:0:1::6]:6", ""),
		at("[::ffff:198.51.100.4]:400", ""): at("198.51.100.4:5", ""),
	} {
		for range localViolations {
			o.broke(same, now)
		}
		if o.wait(other, now) == 0 {
			t.Errorf("%v is not %v", other, same)
		}
	}
	if o.wait(at("127.0.0.1:5", ""), now) != 0 {
		t.Error("another address on loopback is kept off")
	}
	for i := range 2 * offendersMost {
		o.broke(at(fmt.Sprintf("10.%d.%d.1:1", i/256, i%256), ""), now)
	}
	if len(o) > offendersMost {
		t.Errorf("%d are remembered", len(o))
	}
	now = now.Add(time.Hour)
	if o.broke(at("203.0.113.5:1", ""), now); len(o) != 1 {
		t.Errorf("%d are remembered after an hour", len(o))
	}
	if violation(endedStream, &iwarp.TerminateError{Layer: layerMPA, Code: 2}) || !violation(endedStream, &iwarp.TerminateError{Layer: 1, Type: 1}) ||
		!violation(endedProtocol, errors.New("x")) || violation(endedClosed, nil) || violation(endedTerminated, &iwarp.TerminateError{FromPeer: true}) {
		t.Error("what a violation is")
	}
}

// TestOffenderIsTold: it is rejected, counted, and told when to come again.
func TestOffenderIsTold(t *testing.T) {
	ts := startServer(t, nil)
	from := peerOf(iwarp.ConnInfo{Remote: netAddr("127.0.0.1:5")})
	ts.mu.Lock()
	for range 2 * localViolations {
		ts.offenders.broke(from, time.Now().Add(time.Hour)) // which time does not forgive meanwhile
	}
	ts.mu.Unlock()
	g := job.Greeting{Version: job.Version}
	if j := rejection(t, ts.addr, g.Append(nil)); j.Cause != job.CauseFull || j.Detail != "broke the rules of the protocol too often; again in 0s" {
		t.Errorf("%+v", j)
	}
}

// TestFirstCreditWaitsForNobody: a client that was given many credits, and answers no
// Recall when there are to be fewer, keeps no other from its first one.
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
