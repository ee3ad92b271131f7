package identity

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// rigDoor is a doorman in simulated time.
type rigDoor struct {
	*doorman
	at     time.Time
	log    bytes.Buffer
	counts map[string]int
}

func newRigDoor() *rigDoor {
	r := &rigDoor{at: time.Unix(1e9, 0), counts: make(map[string]int)}
	l := slog.New(slog.NewTextHandler(&r.log, nil))
	r.doorman = newDoorman(func() time.Time { return r.at }, func() *slog.Logger { return l })
	r.count = func(cause string) { r.counts[cause]++ }
	return r
}

// admit is an attempt that is decided at once.
func (r *rigDoor) admit(remote net.Addr) bool {
	v, ok := r.doorman.admit(remote)
	r.settle(&v)
	return ok
}

func from(ip string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 1234))
}

// TestFailingAddressWaits: an address that fails repeatedly is kept out, but not for long, and others never are.
func TestFailingAddressWaits(t *testing.T) {
	for _, tt := range []struct {
		ip, neighbour, other string
		most                 int
		rate                 float64
	}{
		{"192.0.2.7", "192.0.2.7", "192.0.2.8", failures, failureRate},
		{"2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", failures, failureRate},
		{"::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8", failures, failureRate},
		{"127.0.0.1", "127.0.0.1", "192.0.2.8", localFailures, localFailureRate},
		{"::1", "::1", "::2", localFailures, localFailureRate},
	} {
		d := newRigDoor()
		n := 0
		for ; d.admit(from(tt.ip)) && n < 1000; n++ {
			d.failed(from(tt.ip), CauseUnknownCA, "x")
		}
		if n != tt.most || d.counts[CauseUnknownCA] != n || d.counts[CauseTooMany] != 1 {
			t.Errorf("%s failed %d times before it had to wait, want %d; counted %v", tt.ip, n, tt.most, d.counts)
		}
		if d.admit(from(tt.neighbour)) || !d.admit(from(tt.other)) {
			t.Errorf("%s has to wait: its neighbour %s must too, and %s not", tt.ip, tt.neighbour, tt.other)
		}
		// Whoever goes on failing gets as many tries as the rate says, no more.
		tries := 0
		for range 6000 {
			d.at = d.at.Add(10 * time.Millisecond)
			if d.admit(from(tt.ip)) {
				tries++
				d.failed(from(tt.ip), CauseUnknownCA, "x")
			}
		}
		if want := int(60 * tt.rate); tries < want-2 || tries > want+2 {
			t.Errorf("%s had %d tries in a minute of attempts, want %d", tt.ip, tries, want)
		}
		// One that tries now and then, as an honest one does, gets in at once, and with
		// it the address is as good as new.
		d.at = d.at.Add(time.Second)
		if !d.admit(from(tt.ip)) {
			t.Errorf("%s is kept out a second after its last attempt", tt.ip)
		}
		d.passed(from(tt.ip))
		for range tt.most - 1 {
			d.failed(from(tt.ip), CauseUnknownCA, "x")
		}
		if !d.admit(from(tt.ip)) {
			t.Errorf("%s has passed, and is kept out for what was before", tt.ip)
		}
	}
}

// Attempts that are under way together are no more than those one after the other may be.
func TestAttemptsTogether(t *testing.T) {
	for _, ip := range []string{"192.0.2.7", "127.0.0.1"} {
		most, rate := allowance(netip.MustParseAddr(ip))
		d := newRigDoor()
		// together begins as many as the door lets in, of n, and then ends them all.
		together := func(n int, end func(net.Addr)) (tries int) {
			var under []*visitor
			for range n {
				if v, ok := d.doorman.admit(from(ip)); ok {
					under = append(under, v)
				}
			}
			for i := range under {
				end(from(ip))
				d.settle(&under[i])
			}
			return len(under)
		}
		fail := func(a net.Addr) { d.failed(a, CauseUnknownCA, "x") }
		// Whoever has failed nothing may be a whole network of honest hosts that come back at once.
		if n := together(1000, func(net.Addr) {}); n != 1000 {
			t.Errorf("%s: %d of 1000 honest attempts were let in", ip, n)
		}
		for range int(most) {
			fail(from(ip))
		}
		tries := 0
		for range 600 {
			d.at = d.at.Add(100 * time.Millisecond)
			tries += together(64, fail)
		}
		if want := int(60 * rate); tries < want-2 || tries > want+2 {
			t.Errorf("%s had %d tries in a minute, 64 at a time, want %d", ip, tries, want)
		}
		// What is given up, or passes, takes nothing.
		d.at = d.at.Add(time.Second)
		if n := together(64, func(net.Addr) {}); n != int(rate) {
			t.Errorf("%s: %d were under way, want %v", ip, n, rate)
		}
		if n := together(64, d.passed); n != int(rate) {
			t.Errorf("%s: %d were under way after others were given up, want %v", ip, n, rate)
		}
		if n := together(1000, func(net.Addr) {}); n != int(most) {
			t.Errorf("%s: %d were under way after one has passed, want %v", ip, n, most)
		}
	}
}

// One line a minute for an address and a cause, whatever comes.
func TestFailuresAreLoggedSparingly(t *testing.T) {
	d := newRigDoor()
	for range 120 {
		for _, ip := range []string{"192.0.2.7", "192.0.2.8"} {
			d.failed(from(ip), CauseExpired, "x")
			d.failed(from(ip), CausePlaintext, "x")
		}
		d.at = d.at.Add(time.Second)
	}
	if n := strings.Count(d.log.String(), "\n"); n != 2*2*2 {
		t.Errorf("%d lines in two minutes, of two addresses and two causes:\n%s", n, d.log.String())
	}
}

// TestVisitorsAreBounded: what is remembered is bounded, and an address that fails now is remembered.
func TestVisitorsAreBounded(t *testing.T) {
	d := newRigDoor()
	for i := range 3 * visitorsMost {
		d.at = d.at.Add(time.Millisecond)
		d.failed(from(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), CausePlaintext, "x")
	}
	for i := range 100 {
		d.failed(from("10.9.9.9"), fmt.Sprint("cause", i), "x")
	}
	if len(d.visitors) != visitorsMost || len(d.visitors[netip.MustParseAddr("10.9.9.9")].told) != causesMost {
		t.Errorf("%d addresses are remembered, %d causes of the last", len(d.visitors), len(d.visitors[netip.MustParseAddr("10.9.9.9")].told))
	}
}
