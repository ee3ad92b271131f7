package discover

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

func addrsOf(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func testOffer(name string, port uint16, addrs ...string) *offer {
	return &offer{service: hostlist.Service, instance: name, host: name, port: port, addrs: addrsOf(addrs...)}
}

func mustRecords(t testing.TB, o *offer, ttl uint32) []byte {
	t.Helper()
	b, err := o.records(ttl, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names2(hosts []hostlist.Host) (out []string) {
	for _, h := range hosts {
		out = append(out, h.Addr())
	}
	return out
}

func TestAnnouncementsAreHeard(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOffers(hostlist.Service)
	a := testOffer("build7-a1b2c3-7632", 7632, "fe80::1", "2001:db8::1", "192.0.2.7")
	b := testOffer("build8-d4e5f6-7000", 7000, "2001:db8::2")
	o.heard(now, mustRecords(t, a, announceTTL))
	o.heard(now, mustRecords(t, b, announceTTL))
	o.heard(now, mustRecords(t, testOffer("nowhere", 7000, "fe80::9"), announceTTL)) // an address without its interface
	if got, want := names2(o.hosts(now)), []string{"192.0.2.7:7632", "[2001:db8::2]:7000"}; !slices.Equal(got, want) {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	a.addrs = addrsOf("192.0.2.17") // it has moved: its older addresses are gone at once
	now = now.Add(60 * time.Second)
	o.heard(now, mustRecords(t, a, announceTTL))
	if got, want := names2(o.hosts(now)), []string{"192.0.2.17:7632", "[2001:db8::2]:7000"}; !slices.Equal(got, want) {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	now = now.Add(70 * time.Second) // b was not heard of again
	if got, want := names2(o.hosts(now)), []string{"192.0.2.17:7632"}; !slices.Equal(got, want) {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	o.heard(now, mustRecords(t, a, 0))
	if got := o.hosts(now); len(got) != 0 {
		t.Errorf("hosts are %q after a goodbye, want none", names2(got))
	}
	if n := len(o.instances) + len(o.places) + len(o.addrs); n != 0 {
		t.Errorf("%d records are kept, want none", n)
	}
}

func TestOffersAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOffers(hostlist.Service)
	for i := range hostlist.MaxHosts + 500 {
		o.heard(now, mustRecords(t, testOffer(fmt.Sprintf("h%d", i), 7632, "192.0.2.7"), announceTTL))
	}
	if len(o.instances) > hostlist.MaxHosts || len(o.places) > hostlist.MaxHosts || len(o.addrs) > hostlist.MaxHosts {
		t.Errorf("%d instances, %d places, %d hosts are kept, want at most %d of each", len(o.instances), len(o.places), len(o.addrs), hostlist.MaxHosts)
	}
}

// question packs a query; known are answers that the asker has.
func question(t testing.TB, name string, typ dnsmessage.Type, known ...dnsmessage.Resource) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Answers: known,
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET | flush}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhoIsAsked(t *testing.T) {
	o := testOffer("build7-a1b2c3-7632", 7632, "192.0.2.7")
	known := func(ttl uint32) dnsmessage.Resource {
		return dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("_rdistcc._tcp.local."), Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName("BUILD7-a1b2c3-7632._rdistcc._tcp.local.")},
		}
	}
	mine, err := query(hostlist.Service)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		msg  []byte
		want bool
	}{
		{"a browser's question", mine, true},
		{"the service", question(t, "_RDISTCC._tcp.local.", dnsmessage.TypePTR), true},
		{"all services", question(t, "_services._dns-sd._udp.local.", dnsmessage.TypePTR), true},
		{"the instance", question(t, "build7-a1b2c3-7632._rdistcc._tcp.local.", dnsmessage.TypeSRV), true},
		{"the host", question(t, "build7-a1b2c3-7632.local.", dnsmessage.TypeA), true},
		{"another host", question(t, "build8.local.", dnsmessage.TypeA), false},
		{"another service", question(t, "_ipp._tcp.local.", dnsmessage.TypePTR), false},
		{"what is known already", question(t, "_rdistcc._tcp.local.", dnsmessage.TypePTR, known(100)), false},
		{"what is known but old", question(t, "_rdistcc._tcp.local.", dnsmessage.TypePTR, known(30)), true},
		{"an answer", mustRecords(t, o, announceTTL), false},
		{"nonsense", []byte("nonsense"), false},
	} {
		if id, asked, yes := o.asks(c.msg); yes != c.want || yes && len(asked) != 1 {
			t.Errorf("%s: answered %v with %d questions (id %d), want %v", c.what, yes, len(asked), id, c.want)
		}
	}
	// A resolver that knows no mDNS wants its own question and ID back, and no flush bits.
	id, asked, _ := o.asks(question(t, "_rdistcc._tcp.local.", dnsmessage.TypePTR))
	b, err := o.records(10, id, asked)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || len(m.Questions) != 1 || m.Questions[0].Class != dnsmessage.ClassINET {
		t.Errorf("the answer has id %d and questions %v", m.ID, m.Questions)
	}
	for _, r := range m.Answers {
		if r.Header.Class != dnsmessage.ClassINET || r.Header.TTL > 10 {
			t.Errorf("answer %v has another class or lives long", r.Header)
		}
	}
}

// On the loopback interface, with real sockets: a daemon is found, says goodbye, and
// another one comes.
func TestDaemonsAreFoundInTheNetwork(t *testing.T) {
	unique := make([]byte, 3)
	_, _ = rand.Read(unique)
	service := "_rd" + hex.EncodeToString(unique) + "._tcp.local"
	lo := []string{"lo"}
	m := newMulticast(lo)
	_, err := m.refresh()
	m.close()
	if err != nil {
		t.Skipf("no multicast on lo: %v", err)
	}
	announce := func(addr string) *Announcer {
		t.Helper()
		a, err := Announce(Announcement{Listen: []netip.AddrPort{netip.MustParseAddrPort(addr)}, Service: service, Interfaces: lo})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		return a
	}
	first := announce("0.0.0.0:7001")
	f := New(Options{Interfaces: lo})
	t.Cleanup(f.Close)
	l := mustParse(t, "mdns+"+service+"/3")
	wantSoon(t, f, l, "127.0.0.1:7001/3")
	announce("127.0.0.1:7002")
	announce("192.0.2.1:7003") // which is no address of the interface
	for end := time.Now().Add(2 * time.Minute); len(found(f, l)) < 2 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	got := found(f, l)
	slices.Sort(got)
	if want := []string{"127.0.0.1:7001/3", "127.0.0.1:7002/3"}; !slices.Equal(got, want) {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	first.Close()
	wantSoon(t, f, l, "127.0.0.1:7002/3")
}

func TestNobodyAnnounces(t *testing.T) {
	f := New(Options{Interfaces: []string{"lo"}, FirstWait: 50 * time.Millisecond})
	t.Cleanup(f.Close)
	if got := found(f, mustParse(t, "mdns+_rd-none._tcp.local build7")); !slices.Equal(got, []string{"build7:7632/0"}) {
		t.Errorf("hosts are %q, want build7", got)
	}
}

func FuzzHeard(f *testing.F) {
	o := testOffer("build7-a1b2c3-7632", 7632, "192.0.2.7", "2001:db8::1")
	b := mustRecords(f, o, announceTTL)
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add(mustRecords(f, o, 0))
	f.Fuzz(func(t *testing.T, msg []byte) {
		now := time.Unix(1000, 0)
		o := newOffers(hostlist.Service)
		for range 2 {
			o.heard(now, msg)
			for _, h := range o.hosts(now) {
				if _, err := hostlist.Parse(h.Addr()); err != nil {
					t.Errorf("host %q cannot be listed: %v", h.Addr(), err)
				}
			}
			now = now.Add(time.Minute)
		}
		if now = now.Add(48 * time.Hour); len(o.hosts(now)) > 0 || len(o.addrs)+len(o.places) > 0 {
			t.Error("something is kept for ever")
		}
	})
}

func FuzzAsked(f *testing.F) {
	q, err := query(hostlist.Service)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	f.Add(question(f, "build7-a1b2c3-7632.local.", dnsmessage.TypeA))
	o := testOffer("build7-a1b2c3-7632", 7632, "192.0.2.7")
	f.Fuzz(func(t *testing.T, msg []byte) {
		id, asked, yes := o.asks(msg)
		if !yes {
			return
		}
		b, err := o.records(10, id, asked)
		if err != nil {
			return // more questions than a message holds
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			t.Errorf("the answer is no message: %v", err)
		}
	})
}
