package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

// flush is the top bit of a record's class: the record replaces all older ones with its name and type (RFC
// 6762 §10.2). In a question it asks for an answer to the asking host only.
const flush = 1 << 15

// announceTTL is how long records are valid without being heard again. RFC 6762 §10 specifies 75 minutes
// for those without a host name in them; a host that was switched off should not stay listed for that long.
const announceTTL = 120 // s

// query returns a question for the instances of a service.
func query(service string) ([]byte, error) {
	name, err := dnsmessage.NewName(service + ".")
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", service, err)
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{}) // the ID is 0 (RFC 6762 §18.1)
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(dnsmessage.Question{Name: name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}); err != nil {
		return nil, err
	}
	return b.Finish()
}

// offers holds the instances of a service that were heard of, as a browser keeps them.
type offers struct {
	service   string                 // lower case, with a final dot
	instances map[string]time.Time   // expiry, by name
	places    map[string]place       // by instance
	addrs     map[string][]addressOf // by host name
}

type place struct {
	target string
	port   uint16
	until  time.Time
}

type addressOf struct {
	addr  netip.Addr
	until time.Time
}

func newOffers(service string) *offers {
	return &offers{
		service: strings.ToLower(service) + ".", instances: make(map[string]time.Time), places: make(map[string]place), addrs: make(map[string][]addressOf),
	}
}

// maxAddrs bounds the addresses kept for one host.
const maxAddrs = 16

// heard processes a message from the network. A malformed one has no effect from the first error on.
func (o *offers) heard(now time.Time, msg []byte) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || p.SkipAllQuestions() != nil {
		return
	}
	fresh := map[string]bool{} // host names whose older addresses this message has replaced
	o.section(now, fresh, p.AnswerHeader, &p, p.SkipAnswer)
	if p.SkipAllAuthorities() != nil {
		return
	}
	o.section(now, fresh, p.AdditionalHeader, &p, p.SkipAdditional)
}

func (o *offers) section(now time.Time, fresh map[string]bool, next func() (dnsmessage.ResourceHeader, error), p *dnsmessage.Parser, skip func() error) {
	for {
		h, err := next()
		if err != nil {
			return
		}
		name := strings.ToLower(h.Name.String())
		until := now.Add(time.Duration(min(h.TTL, 24*3600)) * time.Second)
		switch {
		case h.Type == dnsmessage.TypePTR && name == o.service:
			r, err := p.PTRResource()
			if err != nil {
				return
			}
			instance := strings.ToLower(r.PTR.String())
			if strings.HasSuffix(instance, "."+o.service) && (len(o.instances) < hostlist.MaxHosts || !o.instances[instance].IsZero()) {
				o.instances[instance] = until
			}
		case h.Type == dnsmessage.TypeSRV && strings.HasSuffix(name, "."+o.service):
			r, err := p.SRVResource()
			if err != nil {
				return
			}
			if _, ok := o.places[name]; ok || len(o.places) < hostlist.MaxHosts {
				o.places[name] = place{target: strings.ToLower(r.Target.String()), port: r.Port, until: until}
			}
		case h.Type == dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return
			}
			o.address(name, netip.AddrFrom4(r.A), h.Class&flush != 0, fresh, until)
		case h.Type == dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return
			}
			o.address(name, netip.AddrFrom16(r.AAAA).Unmap(), h.Class&flush != 0, fresh, until)
		default:
			if skip() != nil {
				return
			}
		}
	}
}

func (o *offers) address(name string, a netip.Addr, replace bool, fresh map[string]bool, until time.Time) {
	if replace && !fresh[name] {
		fresh[name] = true
		delete(o.addrs, name)
	}
	list := o.addrs[name]
	if i := slices.IndexFunc(list, func(x addressOf) bool { return x.addr == a }); i >= 0 {
		list[i].until = until
	} else if len(list) < maxAddrs && (len(list) > 0 || len(o.addrs) < hostlist.MaxHosts) {
		o.addrs[name] = append(list, addressOf{a, until})
	}
}

// expire drops what was not heard again in time, and what has said goodbye (a time to live of 0).
func (o *offers) expire(now time.Time) {
	for k, until := range o.instances {
		if !until.After(now) {
			delete(o.instances, k)
		}
	}
	for k, p := range o.places {
		if !p.until.After(now) {
			delete(o.places, k)
		}
	}
	for k, list := range o.addrs {
		if list = slices.DeleteFunc(list, func(a addressOf) bool { return !a.until.After(now) }); len(list) == 0 {
			delete(o.addrs, k)
		} else {
			o.addrs[k] = list
		}
	}
}

// hosts returns the instances whose place and address are known, sorted by name.
func (o *offers) hosts(now time.Time) []hostlist.Host {
	o.expire(now)
	var hosts []hostlist.Host
	names := make([]string, 0, len(o.instances))
	for k := range o.instances {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		p, ok := o.places[k]
		if !ok || p.port == 0 {
			continue
		}
		best := netip.Addr{}
		for _, a := range o.addrs[p.target] {
			// A link-local address is useless without its interface.
			if usable(a.addr) && (!best.IsValid() || a.addr.Less(best)) {
				best = a.addr
			}
		}
		if best.IsValid() {
			hosts = append(hosts, hostlist.Host{Name: best.String(), Port: int(p.port)})
		}
	}
	return hosts
}

func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}

// offer is one port of a daemon, as announced on one interface.
type offer struct {
	service  string // as hostlist.Service
	instance string // one label
	host     string // one label, under .local
	port     uint16
	addrs    []netip.Addr
}

// names holds the names in an offer's records.
type names struct {
	all, service, instance, host dnsmessage.Name
}

func (o *offer) names() (n names, err error) {
	for _, x := range []struct {
		to   *dnsmessage.Name
		name string
	}{
		{&n.all, "_services._dns-sd._udp.local."},
		{&n.service, o.service + "."},
		{&n.instance, o.instance + "." + o.service + "."},
		{&n.host, o.host + ".local."},
	} {
		if *x.to, err = dnsmessage.NewName(x.name); err != nil {
			return n, fmt.Errorf("%q: %w", x.name, err)
		}
	}
	return n, nil
}

// records returns the message with all records of an offer; ttl 0 withdraws it. The reply to a legacy
// resolver, which does not speak mDNS itself, repeats its question and its ID (RFC 6762 §6.7).
func (o *offer) records(ttl uint32, id uint16, asked []dnsmessage.Question) ([]byte, error) {
	n, err := o.names()
	if err != nil {
		return nil, err
	}
	unique := dnsmessage.Class(dnsmessage.ClassINET | flush)
	if len(asked) > 0 {
		unique = dnsmessage.ClassINET
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true, Authoritative: true})
	b.EnableCompression()
	head := func(name dnsmessage.Name, class dnsmessage.Class) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name, Class: class, TTL: ttl}
	}
	steps := []func() error{b.StartQuestions}
	for _, q := range asked {
		steps = append(steps, func() error { return b.Question(q) })
	}
	steps = append(steps, b.StartAnswers,
		func() error {
			return b.PTRResource(head(n.service, dnsmessage.ClassINET), dnsmessage.PTRResource{PTR: n.instance})
		},
		func() error {
			return b.PTRResource(head(n.all, dnsmessage.ClassINET), dnsmessage.PTRResource{PTR: n.service})
		},
		func() error {
			return b.SRVResource(head(n.instance, unique), dnsmessage.SRVResource{Port: o.port, Target: n.host})
		},
		func() error {
			return b.TXTResource(head(n.instance, unique), dnsmessage.TXTResource{TXT: []string{"txtvers=1"}})
		})
	for _, a := range o.addrs {
		steps = append(steps, func() error {
			if a.Is4() {
				return b.AResource(head(n.host, unique), dnsmessage.AResource{A: a.As4()})
			}
			return b.AAAAResource(head(n.host, unique), dnsmessage.AAAAResource{AAAA: a.As16()})
		})
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("announce %s: %w", o.instance, err)
		}
	}
	return b.Finish()
}

// asks reports whether a message asks for something of the offer that it does not list as known (RFC 6762
// §7.1), and returns its questions.
func (o *offer) asks(msg []byte) (id uint16, asked []dnsmessage.Question, yes bool) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response || h.OpCode != 0 {
		return 0, nil, false
	}
	n, err := o.names()
	if err != nil {
		return 0, nil, false
	}
	same := func(a, b dnsmessage.Name) bool { return strings.EqualFold(a.String(), b.String()) }
	list := false // only the list of instances was asked for
	for {
		q, err := p.Question()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil {
			return 0, nil, false
		}
		q.Class &^= flush
		if q.Class != dnsmessage.ClassINET && q.Class != dnsmessage.ClassANY {
			continue
		}
		switch {
		case same(q.Name, n.service), same(q.Name, n.all):
			if q.Type == dnsmessage.TypePTR || q.Type == dnsmessage.TypeALL {
				list = list || !yes
				yes = true
				asked = append(asked, q)
			}
		case same(q.Name, n.instance), same(q.Name, n.host):
			list, yes = false, true
			asked = append(asked, q)
		}
	}
	for list {
		h, err := p.AnswerHeader()
		if err != nil {
			break
		}
		if h.Type != dnsmessage.TypePTR {
			if p.SkipAnswer() != nil {
				break
			}
			continue
		}
		r, err := p.PTRResource()
		if err != nil {
			break
		}
		if same(r.PTR, n.instance) && h.TTL >= announceTTL/2 {
			return 0, nil, false
		}
	}
	return h.ID, asked, yes
}
