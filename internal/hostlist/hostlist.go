// Package hostlist reads host lists: RDISTCC_HOSTS, distcc's DISTCC_HOSTS, and
// files in the same form. It does no I/O; what it reads is handed to it.
//
//	list    = entry { white-space entry }         '#' starts a comment, to the end of the line
//	entry   = host | source | "localhost" ["/" SLOTS] | switch
//	host    = NAME [":" PORT] ["/" SLOTS] { "," option }
//	        | NAME "/" SLOTS ":" PORT { "," option }        distcc's old form
//	source  = "dns+" NAME [":" PORT] ["/" SLOTS] { "," option }
//	        | "srv+" SERVICE ["/" SLOTS] { "," option }
//	        | "mdns+" [SERVICE] ["/" SLOTS] { "," option }
//	        | "file+" PATH { "," option }
//	NAME    = host name | IPv4 address | "[" IPv6 address "]"
//	option  = "zstd" | "plain" | "down" | "lzo" | "cpp" | "auth" [ "=" NAME ]
//	switch  = "--localslots=" N | "--localslots_cpp=" N | "--randomize"
//
// One grammar serves both variables, so that a list works under either name. The
// port is 7632 unless one is given. A port given in DISTCC_HOSTS was chosen for
// distccd; it is kept as typed, as the user may well have put rdistccd there. The
// options lzo, cpp and auth mean nothing here and are ignored. Hosts behind ssh
// (@host) and distcc's +zeroconf are refused in words.
package hostlist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a list.
const (
	DefaultPort = 7632
	DistccPort  = 3632    // distccd's own; rdistccd may have been put there
	MaxText     = 1 << 20 // bytes; 1,000 hosts take some 30 KB
	MaxHosts    = 4096
	MaxSources  = 16
	MaxSlots    = 10000

	defaultLocalShare = 2 // as distcc's for a bare "localhost"
)

// DistccPortNote is what to say of a host that does not answer as rdistccd would at DistccPort.
var DistccPortNote = fmt.Sprintf("%d is distccd's port, that of rdistccd is %d", DistccPort, DefaultPort)

// Host is one remote entry.
type Host struct {
	Name     string // name or address, without brackets
	Port     int
	Slots    int // jobs at a time that the list allows; 0 = as many as the host grants
	Compress Compression
	Down     bool   // listed, never used
	Text     string // as typed
}

// Compression says what the list asks for on the link to a host.
type Compression uint8

// Compressions.
const (
	CompressAuto  Compression = iota
	CompressZstd              // option zstd
	CompressPlain             // option plain
)

// Addr returns "name:port", with brackets around an IPv6 address.
func (h Host) Addr() string {
	port := ":" + strconv.Itoa(h.Port)
	if strings.Contains(h.Name, ":") {
		return "[" + h.Name + "]" + port
	}
	return h.Name + port
}

// List is a parsed host list.
type List struct {
	Hosts     []Host   // in the list's order, each address once
	Sources   []Source // of further hosts: see With
	Share     int      // localhost/N: compiles at a time that may run here though a host could take them
	Local     int      // --localslots: local commands at a time; 0 = not given
	LocalCPP  int      // --localslots_cpp: preprocessors at a time; 0 = not given
	Randomize bool
	Notes     []string // what was left out, one line each, for a person
	// Words holds the entries as typed, in order, without switches: what distcc's --show-hosts prints. A
	// list that cannot be used has them, too.
	Words []string
}

// Slots returns the sum of the slots that the list names, counting a host without a number as perHost, and
// of the local share.
func (l List) Slots(perHost int) int {
	n := l.Share
	for _, h := range l.Hosts {
		switch {
		case h.Down:
		case h.Slots > 0:
			n += h.Slots
		default:
			n += perHost
		}
	}
	return n
}

// Usable returns how many hosts are not down.
func (l List) Usable() int {
	n := 0
	for _, h := range l.Hosts {
		if !h.Down {
			n++
		}
	}
	return n
}

// Error means that a list cannot be used: exit status 106 where one is needed.
type Error struct {
	Where   string // variable, or file and line
	Entry   string // as typed
	Problem string
	Remedy  string
	Distcc  bool // the entry is valid for distcc

	line int // of the text; 0 = it has only one
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("host list")
	switch {
	case e.Where != "":
		b.WriteString(" " + e.Where)
	case e.line > 0:
		fmt.Fprintf(&b, " line %d", e.line)
	}
	if e.Entry != "" {
		fmt.Fprintf(&b, ": %q", e.Entry)
	}
	b.WriteString(": " + e.Problem)
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// ParseEntries is Parse for a list whose entries are already separate words, as in the configuration file.
func ParseEntries(entries []string) (List, error) {
	return Parse(strings.Join(entries, "\n"))
}

// Parse reads a list. An error is an *Error that names the entry and the remedy.
func Parse(text string) (List, error) { return parse(text, false) }

// parse reads a list. foreign means that it is from a file that belongs to distcc. Packages install one on
// every machine, with "+zeroconf" or, on Debian, a bare "127.0.0.1" to try things out. Those were not
// chosen for rdistcc, so there they become notes, not errors or hosts.
func parse(text string, foreign bool) (List, error) {
	if len(text) > MaxText {
		return List{}, &Error{Problem: fmt.Sprintf("longer than %d bytes", MaxText), Remedy: "is this the right file?"}
	}
	p := parser{foreign: foreign, seen: make(map[string]int)}
	var words []string
	var bad *Error // the first one
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, entry := range strings.Fields(line) {
			if !strings.HasPrefix(entry, "--") && !p.leftOut(entry) {
				words = append(words, entry)
			}
			if bad != nil {
				continue
			}
			if bad = p.entry(entry); bad != nil {
				bad.Entry = clip(entry)
				if i > 0 || strings.Contains(text, "\n") {
					bad.line = i + 1
				}
			}
		}
	}
	if bad != nil {
		return List{Words: words}, bad
	}
	p.list.Words = words
	return p.list, nil
}

// clip shortens a message to one readable line.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// leftOut reports whether an entry of distcc's own file is not meant for us.
func (p *parser) leftOut(s string) bool { return p.foreign && (s == "+zeroconf" || s == "127.0.0.1") }

type parser struct {
	list    List
	foreign bool
	seen    map[string]int // address to index in list.Hosts
}

func (p *parser) entry(s string) *Error {
	switch {
	case p.leftOut(s):
		p.list.Notes = append(p.list.Notes, s+" of distcc's host file is left out; for rdistcc name hosts in a list of its own")
		return nil
	case strings.HasPrefix(s, "--"):
		return p.flag(s)
	case strings.HasPrefix(s, "+"):
		return &Error{Distcc: s == "+zeroconf", Problem: "finding hosts by zeroconf is distcc's own", Remedy: "write mdns+ for daemons that announce themselves, or name the hosts, as in build7:7632/8"}
	}
	if err, ok := p.source(s); ok {
		return err
	}
	if strings.Contains(s, "@") {
		name := s[strings.Index(s, "@")+1:]
		if name == "" {
			return &Error{Problem: "names no host", Remedy: "write HOST[:PORT][/SLOTS][,OPTION...]"}
		}
		if i := strings.IndexAny(name, ":/,"); i >= 0 {
			name = name[:i]
		}
		return &Error{Distcc: true, Problem: "hosts behind ssh are not supported", Remedy: fmt.Sprintf("run rdistccd there and write %q, or forward a port to it", name)}
	}
	return p.host(s)
}

func (p *parser) flag(s string) *Error {
	name, value, has := strings.Cut(s, "=")
	number := func(dst *int) *Error {
		n, err := slots(value)
		if !has || err != nil {
			return &Error{Problem: "needs a number of slots", Remedy: fmt.Sprintf("write %s=N with N from 1 to %d", name, MaxSlots)}
		}
		*dst = n
		return nil
	}
	switch name {
	case "--localslots":
		return number(&p.list.Local)
	case "--localslots_cpp":
		return number(&p.list.LocalCPP)
	case "--randomize":
		if has {
			return &Error{Problem: "takes no value", Remedy: "write --randomize"}
		}
		p.list.Randomize = true
		return nil
	}
	return &Error{Problem: fmt.Sprintf("unknown option %q", clip(name)), Remedy: "known are --localslots=N, --localslots_cpp=N, --randomize"}
}

func (p *parser) host(s string) *Error {
	h := Host{Text: s}
	words := strings.Split(s, ",")
	if err := h.read(words[0], words[1:]); err != nil {
		return err
	}
	local := h.Port == 0 && h.Name == "localhost"
	if h.Port == 0 {
		h.Port = DefaultPort
	}
	if local {
		if h.Slots == 0 {
			h.Slots = defaultLocalShare
		}
		if !h.Down {
			p.list.Share = min(p.list.Share+h.Slots, MaxSlots)
		}
		return nil
	}
	return p.add(h)
}

// read parses a host's words: its name with port and slots, and its options.
func (h *Host) read(word string, more []string) *Error {
	name, rest, err := cutName(word)
	if err != nil {
		return err
	}
	h.Name = name
	for rest != "" {
		mark := rest[0]
		end := strings.IndexAny(rest[1:], ":/") + 1
		if end == 0 {
			end = len(rest)
		}
		value := rest[1:end]
		rest = rest[end:]
		switch {
		case mark == ':' && h.Port == 0:
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil || n == 0 {
				return &Error{Problem: fmt.Sprintf("%q is not a port", value), Remedy: "write HOST:PORT with a port from 1 to 65535, an IPv6 address in brackets"}
			}
			h.Port = int(n)
		case mark == '/' && h.Slots == 0:
			n, err := slots(value)
			if err != nil {
				return &Error{Problem: fmt.Sprintf("%q is not a number of slots", value), Remedy: fmt.Sprintf("write HOST/SLOTS with 1 to %d, or HOST,down for a host to leave out", MaxSlots)}
			}
			h.Slots = n
		default:
			return &Error{Problem: "has a port or a number of slots twice", Remedy: "write HOST:PORT/SLOTS; an IPv6 address goes in brackets, as in [::1]:7632"}
		}
	}
	return options(h, more)
}

// add appends h. An address named twice is one host: the first entry keeps its place, and the larger number
// of slots counts.
func (p *parser) add(h Host) *Error {
	addr := h.Addr()
	if i, ok := p.seen[addr]; ok {
		old := &p.list.Hosts[i]
		if old.Slots != 0 && (h.Slots == 0 || h.Slots > old.Slots) {
			old.Slots = h.Slots
		}
		old.Down = old.Down || h.Down
		p.list.Notes = append(p.list.Notes, fmt.Sprintf("%s is listed twice; taken as one host", clip(addr)))
		return nil
	}
	if len(p.list.Hosts) == MaxHosts {
		return &Error{Problem: fmt.Sprintf("more than %d hosts", MaxHosts), Remedy: "shorten the list"}
	}
	p.seen[addr] = len(p.list.Hosts)
	p.list.Hosts = append(p.list.Hosts, h)
	return nil
}

// cutName splits an entry without its options into the host's name and the rest, which is empty or starts
// with ':' or '/'.
func cutName(s string) (name, rest string, e *Error) {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", &Error{Problem: "has a '[' without a ']'", Remedy: "write an IPv6 address as [::1] or [::1]:PORT"}
		}
		name, rest = s[1:end], s[end+1:]
		if !strings.Contains(name, ":") || !only(name, "0123456789abcdefABCDEF:.", true) {
			return "", "", &Error{Problem: fmt.Sprintf("%q is not an IPv6 address", clip(name)), Remedy: "brackets are for IPv6 addresses, as in [::1]:7632"}
		}
		if rest != "" && rest[0] != ':' && rest[0] != '/' {
			return "", "", &Error{Problem: fmt.Sprintf("unexpected %q after the address", clip(rest)), Remedy: "write [ADDRESS]:PORT/SLOTS"}
		}
		return name, rest, nil
	}
	end := strings.IndexAny(s, ":/")
	if end < 0 {
		end = len(s)
	}
	name, rest = s[:end], s[end:]
	switch {
	case strings.HasPrefix(rest, "::") || strings.Count(rest, ":") > 1:
		return "", "", &Error{Problem: "has too many colons", Remedy: "an IPv6 address goes in brackets, as in [::1]:7632; a command after the port is for ssh only"}
	case name == "":
		return "", "", &Error{Problem: "names no host", Remedy: "write HOST[:PORT][/SLOTS][,OPTION...]"}
	case len(name) > 253:
		return "", "", &Error{Problem: "name is longer than 253 bytes", Remedy: "write HOST[:PORT][/SLOTS][,OPTION...]"}
	case name[0] == '-' || !only(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_", false):
		return "", "", &Error{Problem: fmt.Sprintf("%q is not a host name", clip(name)), Remedy: "names have letters, digits, '.', '-' and '_'; hosts are separated by blanks"}
	}
	return name, rest, nil
}

// only reports whether s consists of the bytes in set; with zone, a "%zone" of letters and digits may follow.
func only(s, set string, zone bool) bool {
	if zone {
		addr, z, has := strings.Cut(s, "%")
		if has && (z == "" || !only(z, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_", false)) {
			return false
		}
		s = addr
	}
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func options(h *Host, words []string) *Error {
	for _, w := range words {
		name, _, has := strings.Cut(w, "=")
		switch {
		case w == "zstd":
			h.Compress = CompressZstd
		case w == "plain":
			h.Compress = CompressPlain
		case w == "down":
			h.Down = true
		case w == "lzo", w == "cpp", w == "auth", name == "auth" && has:
			// distcc's options, which do not concern our connections.
		default:
			return &Error{Problem: fmt.Sprintf("unknown option %q", clip(w)), Remedy: "known are zstd, plain, down; lzo, cpp and auth are ignored; hosts are separated by blanks"}
		}
	}
	return nil
}

var errSlots = errors.New("not a number of slots")

func slots(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || n > MaxSlots {
		return 0, errSlots
	}
	return int(n), nil
}
