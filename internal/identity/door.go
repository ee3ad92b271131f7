package identity

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Failures that an address is allowed: a number in a row, and then a number per second. A build host
// with the wrong certificate dials a few times a second at first, several hosts may share an address,
// and on loopback all users of a machine do.
const (
	failures         = 20
	failureRate      = 2.0
	localFailures    = 200
	localFailureRate = 50.0
)

const (
	// visitorsMost bounds how many addresses are remembered, at about 200 bytes each.
	visitorsMost = 4096
	// tellEvery is the least time between two log lines about the same address and cause.
	tellEvery = time.Minute
	// causesMost bounds the causes remembered for one address.
	causesMost = 16
)

// doorman keeps out, for a while, addresses whose peers repeatedly failed to prove their identity: a
// handshake costs this side a millisecond of CPU.
type doorman struct {
	now   func() time.Time
	log   func() *slog.Logger
	count func(cause string) // nil: no metrics; set before the first connection

	mu       sync.Mutex // guards what follows
	visitors map[netip.Addr]*visitor
}

// visitor is one address, or one IPv6 /64.
type visitor struct {
	left float64   // failures that it is still allowed
	at   time.Time // time of left
	told map[string]time.Time
	// trying counts the handshakes under way that were admitted since the address failed: each may take one of left.
	// Otherwise as many as can be under way at once would fail for the price of one.
	trying int
}

func newDoorman(now func() time.Time, log func() *slog.Logger) *doorman {
	return &doorman{now: now, log: log, visitors: make(map[netip.Addr]*visitor)}
}

// hostOf returns the address under which a connection from a counts: an IPv6 host has a whole /64.
func hostOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		p, _ := ip.Prefix(64) // never fails: 64 bits are there
		ip = p.Addr()
	}
	return ip
}

// allowance returns how many failures an address is allowed.
func allowance(ip netip.Addr) (most, rate float64) {
	if ip.IsLoopback() {
		return localFailures, localFailureRate
	}
	return failures, failureRate
}

// refillLocked updates v to the time now.
func (v *visitor) refillLocked(ip netip.Addr, now time.Time) {
	most, rate := allowance(ip)
	if d := now.Sub(v.at); d > 0 {
		v.left = min(v.left+d.Seconds()*rate, most)
	}
	v.at = now
}

// admit reports whether a connection from remote may try. Once the attempt is decided, settle must be called
// with v, which is nil if the address has no failures.
func (d *doorman) admit(remote net.Addr) (v *visitor, ok bool) {
	ip := hostOf(remote)
	d.mu.Lock()
	v = d.visitors[ip]
	if v == nil {
		d.mu.Unlock()
		return nil, true
	}
	v.refillLocked(ip, d.now())
	if ok = v.left-float64(v.trying) >= 1; ok {
		v.trying++
	}
	d.mu.Unlock()
	if !ok {
		d.failed(remote, CauseTooMany, "closed unheard: too many failed attempts from there; it may try again in a moment")
		return nil, false
	}
	return v, true
}

// settle ends an attempt that admit let in: it passed, failed, or was given up. It clears *v, so that it
// takes effect once.
func (d *doorman) settle(v **visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *v != nil {
		(*v).trying--
		*v = nil
	}
}

// passed forgets the failures of an address: one of its peers is ours.
func (d *doorman) passed(remote net.Addr) {
	ip := hostOf(remote)
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.visitors[ip]; v != nil {
		v.left, _ = allowance(ip)
	}
}

// failed counts a failure, and logs the first one per minute for its cause and address.
func (d *doorman) failed(remote net.Addr, cause, detail string) {
	if d.count != nil {
		d.count(cause)
	}
	ip, now := hostOf(remote), d.now()
	d.mu.Lock()
	v := d.visitorLocked(ip, now)
	v.refillLocked(ip, now)
	if cause != CauseTooMany { // an address that is kept out does not fail
		v.left = max(v.left-1, 0)
	}
	last, known := v.told[cause]
	tell := known && now.Sub(last) >= tellEvery || !known && len(v.told) < causesMost
	if tell {
		v.told[cause] = now
	}
	d.mu.Unlock()
	if tell {
		d.log().Warn("a peer did not prove its identity", "remote", remote.String(), "cause", cause, "detail", detail)
	}
}

// visitorLocked returns the visitor for ip. If there are too many, a new one replaces another: among a few
// candidates, the one seen longest ago.
func (d *doorman) visitorLocked(ip netip.Addr, now time.Time) *visitor {
	if v := d.visitors[ip]; v != nil {
		return v
	}
	if len(d.visitors) >= visitorsMost {
		var oldest netip.Addr
		n := 0
		for a, v := range d.visitors { // in random order
			if n == 0 || v.at.Before(d.visitors[oldest].at) {
				oldest = a
			}
			if n++; n == 8 {
				break
			}
		}
		delete(d.visitors, oldest)
	}
	most, _ := allowance(ip)
	v := &visitor{left: most, at: now, told: make(map[string]time.Time)}
	d.visitors[ip] = v
	return v
}
