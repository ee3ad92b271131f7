package hostlist

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSources(t *testing.T) {
	l, err := Parse("a dns+farm.example.org.:7700/8,zstd b srv+_rdistcc._tcp.example.org/4 mdns+/2,plain mdns+_x._tcp.local,down file+/etc/farm/../hosts,zstd")
	if err != nil {
		t.Fatal(err)
	}
	want := []Source{
		{Kind: ByDNS, Name: "farm.example.org", Port: 7700, Slots: 8, Compress: CompressZstd, at: 1},
		{Kind: BySRV, Name: "_rdistcc._tcp.example.org", Slots: 4, at: 2},
		{Kind: ByMDNS, Name: "_rdistcc._tcp.local", Slots: 2, Compress: CompressPlain, at: 2},
		{Kind: ByMDNS, Name: "_x._tcp.local", Down: true, at: 2},
		{Kind: ByFile, Name: "/etc/hosts", Compress: CompressZstd, at: 2},
	}
	for i := range l.Sources {
		l.Sources[i].Text = ""
	}
	if !slices.Equal(l.Sources, want) || len(l.Hosts) != 2 {
		t.Errorf("sources are\n%+v, want\n%+v; hosts %v", l.Sources, want, l.Hosts)
	}
}

func TestSourcesThatMakeNoSense(t *testing.T) {
	for entry, want := range map[string]string{
		"dns+":                        "names no host",
		"dns+/8":                      "names no host",
		"dns+a b+c":                   "is not a host name",
		"dns+farm:0":                  "is not a port",
		"dns+farm,fast":               "unknown option",
		"srv+farm.example.org":        "is not a service",
		"srv+_rdistcc._tcp.x:7632":    "has a port",
		"mdns+_rdistcc._tcp.local:80": "has a port",
		"mdns+/x":                     "is not a number of slots",
		"file+farm":                   "is not an absolute path",
		"file+":                       "is not an absolute path",
		"+zeroconf":                   "zeroconf",
	} {
		if _, err := Parse(entry); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ";") {
			t.Errorf("%s: error is %v, want one about %q with a remedy", entry, err, want)
		}
	}
	var b strings.Builder
	for i := range MaxSources + 1 {
		fmt.Fprintf(&b, "dns+farm%d ", i)
	}
	if _, err := Parse(b.String()); err == nil {
		t.Errorf("%d sources are taken", MaxSources+1)
	}
}

func TestWhatSourcesFindStandsInTheirPlaces(t *testing.T) {
	l, err := Parse("a dns+farm:7700/8,zstd b/3 file+/hosts mdns+,down dns+farm")
	if err != nil {
		t.Fatal(err)
	}
	many := make([]Host, MaxHosts)
	for i := range many {
		many[i] = Host{Name: fmt.Sprint("n", i)}
	}
	got := l.With(func(s *Source) []Host {
		switch s.Kind {
		case ByDNS:
			return []Host{{Name: "x"}, {Name: "y", Port: 1, Slots: 2, Compress: CompressPlain}, {Name: "x"}}
		case ByFile:
			s.Problem = "too many"
			return many
		default:
			t.Errorf("%v is asked for", s)
			return nil
		}
	})
	for i, want := range []string{"a:7632/0", "x:7700/8", "y:1/2", "b:7632/3", "n0:7632/0"} {
		if h := got.Hosts[i]; fmt.Sprintf("%s/%d", h.Addr(), h.Slots) != want {
			t.Errorf("host %d is %+v, want %s", i, h, want)
		}
	}
	if got.Hosts[1].Compress != CompressZstd || got.Hosts[2].Compress != CompressPlain {
		t.Error("options of the entry and of what is found are mixed up")
	}
	if len(got.Hosts) != MaxHosts || len(got.Notes) < 2 {
		t.Errorf("%d hosts with notes %q, want %d and what was left out", len(got.Hosts), got.Notes, MaxHosts)
	}
	if s := got.Sources; len(s) != 3 || s[0].Found != 3 || s[1].Problem != "too many" || l.Sources[1].Problem != "" {
		t.Errorf("sources are %+v", s)
	}
}
