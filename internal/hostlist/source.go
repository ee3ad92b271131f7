package hostlist

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Kind says how the hosts of a Source are found.
type Kind string

// Kinds, as they are written before the '+'.
const (
	ByDNS  Kind = "dns"  // all addresses of a name
	BySRV  Kind = "srv"  // the hosts and ports that SRV records name (RFC 2782)
	ByMDNS Kind = "mdns" // hosts that announce themselves on the local network (RFC 6762, 6763)
	ByFile Kind = "file" // a host list in a file, read again when it changes
)

// Service is the name under which daemons announce themselves.
const Service = "_rdistcc._tcp.local"

// Source is an entry that stands for hosts to be found. Its port, slots and options apply to every host
// that is found without its own.
type Source struct {
	Kind     Kind
	Name     string // to look up; for a file its path
	Port     int    // 0 = as found, else DefaultPort
	Slots    int
	Compress Compression
	Down     bool
	Text     string // as typed
	at       int    // its hosts are inserted before Hosts[at]

	// Set in a list that With returned.
	Found   int    // number of hosts found
	Problem string // why nothing (newer) was found; one line, or empty
}

// Key returns a key that is equal for sources that find the same hosts.
func (s *Source) Key() string { return string(s.Kind) + "+" + s.Name }

// source parses an entry that starts with a kind; ok is false for any other.
func (p *parser) source(entry string) (err *Error, ok bool) {
	kind, rest, ok := strings.Cut(entry, "+")
	if !ok || !slices.Contains([]Kind{ByDNS, BySRV, ByMDNS, ByFile}, Kind(kind)) {
		return nil, false
	}
	s := Source{Kind: Kind(kind), Text: entry, at: len(p.list.Hosts)}
	words := strings.Split(rest, ",")
	var h Host // port, slots and options are parsed as a host's
	switch {
	case s.Kind == ByFile:
		s.Name = words[0]
		if !path.IsAbs(s.Name) {
			return &Error{Problem: fmt.Sprintf("%q is not an absolute path", clip(s.Name)), Remedy: "write file+/etc/rdistcc/farm, one host a line in it"}, true
		}
		s.Name = path.Clean(s.Name)
		err = options(&h, words[1:])
	case s.Kind == ByMDNS && (words[0] == "" || words[0][0] == '/'):
		s.Name = Service
		err = h.read("x"+words[0], words[1:])
	default:
		err = h.read(words[0], words[1:])
		s.Name = strings.TrimSuffix(h.Name, ".")
		if h.Port != 0 && s.Kind != ByDNS {
			return &Error{Problem: "has a port", Remedy: fmt.Sprintf("leave it out: %s says which port each host has", kind)}, true
		}
		if s.Kind != ByDNS && !strings.HasPrefix(s.Name, "_") {
			return &Error{Problem: fmt.Sprintf("%q is not a service", clip(s.Name)), Remedy: "write srv+_rdistcc._tcp.example.org, or mdns+"}, true
		}
	}
	if err != nil {
		return err, true
	}
	s.Port, s.Slots, s.Compress, s.Down = h.Port, h.Slots, h.Compress, h.Down
	for i := range p.list.Sources {
		if p.list.Sources[i].Key() == s.Key() {
			p.list.Notes = append(p.list.Notes, fmt.Sprintf("%s is listed twice; the first one counts", clip(s.Key())))
			return nil, true
		}
	}
	if len(p.list.Sources) == MaxSources {
		return &Error{Problem: fmt.Sprintf("more than %d places to look for hosts", MaxSources), Remedy: "shorten the list"}, true
	}
	p.list.Sources = append(p.list.Sources, s)
	return nil, true
}

// With returns the list with the hosts that its sources have found, in their places. found returns a
// source's hosts, and may set its Problem; zero Ports, Slots and Compress of these are replaced by the
// source's. What is found beyond MaxHosts is left out, and an address that occurs twice is one host.
func (l List) With(found func(s *Source) []Host) List {
	if len(l.Sources) == 0 {
		return l
	}
	p := parser{list: l, seen: make(map[string]int)}
	p.list.Hosts, p.list.Notes, p.list.Sources = nil, slices.Clip(l.Notes), slices.Clone(l.Sources)
	next := 0
	add := func(h Host) {
		if err := p.add(h); err != nil && next >= 0 {
			p.list.Notes = append(p.list.Notes, err.Problem+": the others are left out")
			next = -1
		}
	}
	for i := 0; i <= len(l.Hosts); i++ {
		for k := range p.list.Sources {
			s := &p.list.Sources[k]
			if s.at != i || s.Down {
				continue
			}
			hosts := found(s)
			s.Found = len(hosts)
			for _, h := range hosts {
				if h.Port == 0 {
					h.Port = s.Port
				}
				if h.Port == 0 {
					h.Port = DefaultPort
				}
				if h.Slots == 0 {
					h.Slots = s.Slots
				}
				if h.Compress == CompressAuto {
					h.Compress = s.Compress
				}
				h.Text = s.Text
				add(h)
			}
		}
		if i < len(l.Hosts) {
			add(l.Hosts[i])
		}
	}
	return p.list
}
