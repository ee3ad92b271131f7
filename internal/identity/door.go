package identity

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// What an address may fail: so often in a row, and then so often a second. A build host
// with the wrong certificate dials a few times a second at first, several hosts may
// share an address, and on loopback all users of a machine do.
const (
	failures         = 20
	failureRate      = 2.0
	localFailures    = 200
	localFailureRate = 50.0
)

const (
	// visitorsMost bounds what is remembered, about 200 bytes an address.
	visitorsMost = 4096
	// tellEvery is the pause between two lines of the log about one address and cause.
	tellEvery = time.Minute
	// causesMost bounds what is remembered of one address.
	causesMost = 16
)

// doorman keeps addresses out for a while whose peers failed to prove who they are
// again and again: a handshake costs this side a millisecond of a processor.
type doorman struct {
	now   func() time.Time
	log   func() *slog.Logger
	count func(cause string) // nil: nobody counts; set before the first connection

	mu       sync.Mutex // guards what follows
	visitors map[netip.Addr]*visitor
}

// visitor is one address, or one IPv6 /64.
type visitor struct {
	left float64   // failures that it has
	at   time.Time // when that was so
	told map[string]time.Time
	// trying are handshakes under way that were let in since it failed: each may take one of left. Without that as many as may
	// be under way at a time would fail for the price of one.
	trying int
}

func newDoorman(now func() time.Time, log func() *slog.Logger) *doorman {
	return &doorman{now: now, log: log, visitors: make(map[netip.Addr]*visitor)}
}

// hostOf is whom a connection from a counts for: an IPv6 host has a whole /64.
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

// allowance is what an address may fail.
func allowance(ip netip.Addr) (most, rate float64) {
	if ip.IsLoopback() {
		return localFailures, localFailureRate
	}
	return failures, failureRate
}

// refillLocked brings v up to now.
func (v *visitor) refillLocked(ip netip.Addr, now time.Time) {
	most, rate := allowance(ip)
	if d := now.Sub(v.at); d > 0 {
		v.left = min(v.left+d.Seconds()*rate, most)
	}
	v.at = now
}

// admit says whether a connection from there may try. Once that is decided settle follows, with
// v, which is nil where the address has failed nothing.
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

// settle ends an attempt that admit has let in: it has passed, failed, or was given up. It clears
// *v, so that this happens once.
func (d *doorman) settle(v **visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *v != nil {
		(*v).trying--
		*v = nil
	}
}

// passed forgets what an address has failed: one of those there is ours.
func (d *doorman) passed(remote net.Addr) {
	ip := hostOf(remote)
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.visitors[ip]; v != nil {
		v.left, _ = allowance(ip)
	}
}

// failed counts a failure, and logs the first one a minute of its cause and address.
func (d *doorman) failed(remote net.Addr, cause, detail string) {
	if d.count != nil {
		d.count(cause)
	}
	ip, now := hostOf(remote), d.now()
	d.mu.Lock()
	v := d.visitorLocked(ip, now)
	v.refillLocked(ip, now)
	if cause != CauseTooMany { // whoever is kept out fails nothing
		v.left = max(v.left-1, 0)
	}
	last, known := v.told[cause]
	tell := known && now.Sub(last) >= tellEvery || !known && len(v.told) < causesMost
	if tell {
		v.told[cause] = now
	}
	d.mu.Unlock()
	if tell {
		d.log().Warn("a peer did not prove who it is", "remote", remote.String(), "cause", cause, "detail", detail)
	}
}

// visitorLocked is that of ip. For a new one somebody is forgotten when there are too
// many: of a few, the one that was seen longest ago.
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
