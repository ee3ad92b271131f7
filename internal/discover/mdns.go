package discover

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

// A browser asks at once and then after pauses that double (RFC 6762 §5.2), up to half of the lifetime of
// announcements. Newcomers announce themselves.
const (
	firstPause = time.Second
	longPause  = announceTTL / 2 * time.Second
	lookAround = 5 * time.Second // interval of checking the interfaces
)

// browse follows the announcements of a service.
func (w *watch) browse() {
	q, err := query(w.source.Name)
	if err != nil {
		w.set(nil, err)
		for w.sleep(w.f.o.Interval) {
		}
		return
	}
	m := newMulticast(w.f.o.Interfaces)
	defer m.close()
	o := newOffers(w.source.Name)
	// The first answer counts once the hosts present have had time to respond.
	settle := time.Now().Add(w.f.o.FirstWait * 3 / 4)
	pause := firstPause
	ask, look := time.Now(), time.Now()
	deaf := false
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		now := time.Now()
		if !now.Before(look) {
			look = now.Add(lookAround)
			changed, err := m.refresh()
			if deaf = err != nil; deaf {
				w.set(nil, err)
			}
			if changed {
				ask, pause = now, firstPause
			}
			if !w.wanted() {
				return
			}
		}
		if !now.Before(ask) {
			m.each(func(s *member) { s.send(s.to, q) })
			ask = now.Add(pause)
			pause = min(2*pause, longPause)
		}
		if hosts := o.hosts(now); !deaf && (len(hosts) > 0 || !now.Before(settle)) {
			w.found(hosts)
		}
		next := min(ask.Sub(now), look.Sub(now))
		if left := settle.Sub(now); left > 0 {
			next = min(next, left)
		}
		tick.Reset(max(next, time.Millisecond))
		select {
		case <-w.f.ctx.Done():
			return
		case <-tick.C:
		case p := <-m.in:
			// Everything that arrived together at once: evaluating what is known takes longer.
			for more := len(m.in); more >= 0; more-- {
				if p.from.Port() == mdnsPort { // others do not speak for the group (RFC 6762 §6)
					o.heard(time.Now(), p.data)
				}
				if more > 0 {
					p = <-m.in // there is no other receiver
				}
			}
		}
	}
}

// found sets a browser's current hosts; none is an answer like any other.
func (w *watch) found(hosts []hostlist.Host) {
	w.f.mu.Lock()
	same := w.err == nil && !w.good.IsZero() && slices.Equal(hosts, w.hosts)
	w.f.mu.Unlock()
	if !same {
		w.set(hosts, nil)
	}
}

// Announcement is what a daemon announces about itself.
type Announcement struct {
	Listen     []netip.AddrPort // where it takes jobs; an unspecified address means all of an interface's
	Service    string           // (hostlist.Service)
	Interfaces []string         // (all that are up and support multicast, except loopback)
	Log        *slog.Logger     // (none)
}

// Announcer announces a daemon until it is closed.
type Announcer struct {
	a     Announcement
	name  string // of this machine, as one label
	m     *multicast
	stop  chan struct{}
	run   sync.WaitGroup
	close sync.Once
}

// Announce announces on the local network that a daemon takes jobs here (RFC 6762, 6763): at once, in
// response to queries, and when an interface or address is new. Names have a random part, so that no two
// are equal and no probing is needed.
func Announce(a Announcement) (*Announcer, error) {
	a.Service = cmp.Or(a.Service, hostlist.Service)
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	unique := make([]byte, 3)
	if _, err := rand.Read(unique); err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	host = strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, host)
	an := &Announcer{a: a, name: host[:min(len(host), 40)] + "-" + hex.EncodeToString(unique), m: newMulticast(a.Interfaces), stop: make(chan struct{})}
	if _, err := an.m.refresh(); err != nil {
		a.Log.Warn("announce", "err", err)
	}
	an.run.Go(an.serve)
	return an, nil
}

// Close says goodbye, so that no browser counts on this host any more.
func (an *Announcer) Close() {
	an.close.Do(func() { close(an.stop) })
	an.run.Wait()
}

// offers returns what is announced on an interface: one offer for each port, with the addresses of the
// interface on which the port is served.
func (an *Announcer) offers(s *member) []offer {
	var out []offer
	for _, l := range an.a.Listen {
		name := fmt.Sprintf("%s-%d", an.name, l.Port())
		o := offer{service: an.a.Service, instance: name, host: name, port: l.Port()}
		for _, a := range s.addrs {
			fits := l.Addr().IsUnspecified() && (a.Is4() || l.Addr().Is6()) || l.Addr().Unmap() == a
			if fits && usable(a) && len(o.addrs) < maxAddrs {
				o.addrs = append(o.addrs, a)
			}
		}
		if len(o.addrs) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// speak sends all offers; ttl 0 withdraws them.
func (an *Announcer) speak(ttl uint32) {
	an.m.each(func(s *member) {
		for _, o := range an.offers(s) {
			if msg, err := o.records(ttl, 0, nil); err == nil {
				s.send(s.to, msg)
			}
		}
	})
}

func (an *Announcer) serve() {
	defer an.m.close()
	defer an.speak(0)
	again := 1 // announcements still due, a second apart (RFC 6762 §8.3)
	an.speak(announceTTL)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	look := time.Now().Add(lookAround)
	var due <-chan time.Time // time of an answer to the group
	for {
		select {
		case <-an.stop:
			return
		case now := <-tick.C:
			if now.After(look) {
				look = now.Add(lookAround)
				changed, err := an.m.refresh()
				if err != nil {
					an.a.Log.Debug("announce", "err", err)
				}
				if changed {
					again = 2
				}
			}
			if again > 0 {
				again--
				an.speak(announceTTL)
			}
		case <-due:
			due = nil
			an.speak(announceTTL)
		case p := <-an.m.in:
			if an.answer(p) && due == nil {
				// Others will answer too: spread the answers (RFC 6762 §6).
				due = time.After(20*time.Millisecond + mathrand.N(100*time.Millisecond))
			}
		}
	}
}

// answer handles a packet, and reports whether the group must be answered.
func (an *Announcer) answer(p heardPacket) bool {
	all := false
	for _, o := range an.offers(p.on) {
		id, asked, yes := o.asks(p.data)
		switch {
		case !yes:
		case p.from.Port() == mdnsPort:
			all = true
		case local(p): // a simple resolver, which hears only one answer
			if msg, err := o.records(10, id, asked); err == nil {
				p.on.send(p.from, msg)
			}
		}
	}
	return all
}

// local reports whether a packet comes from the interface's own network: hosts farther away are not answered
// (RFC 6762 §11).
func local(p heardPacket) bool {
	ifi, err := net.InterfaceByIndex(p.on.index)
	if err != nil {
		return false
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return false
	}
	from := p.from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, err := netip.ParsePrefix(a.String())
		return err == nil && n.Contains(from)
	})
}
