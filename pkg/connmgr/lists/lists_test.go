package lists

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// A list with sources keeps its array as long as it has the same hosts, because the scheduler recognizes it
// by that.
func TestListsWithSources(t *testing.T) {
	var found []hostlist.Host
	stamp := uint64(1)
	problem := ""
	own := hostlist.List{}
	m := New(Options{
		Own: func() HostList { return HostList{List: own} },
		Find: func(l hostlist.List) (hostlist.List, uint64) {
			return l.With(func(s *hostlist.Source) []hostlist.Host {
				s.Problem = problem
				return found
			}), stamp
		},
	})
	const text = "build7 mdns+/2"
	first := m.Of(text)
	if len(first.Sched) != 1 {
		t.Fatalf("hosts are %v, want build7", first.Sched)
	}
	stamp++ // something else has changed, and there are other messages
	problem = "nobody answers"
	second := m.Of(text)
	if &second.Sched[0] != &first.Sched[0] || second.Sources[0].Problem != problem {
		t.Error("the same hosts are another array, or what is said of them is old")
	}
	found = []hostlist.Host{{Name: "192.0.2.7", Port: 7000}}
	if got := m.Of(text); len(got.Sched) != 1 {
		t.Error("other hosts without another stamp are looked at")
	}
	stamp++
	third := m.Of(text)
	if len(third.Sched) != 2 || third.Sched[1].Addr != "192.0.2.7:7000" || third.Sched[1].Slots != 2 {
		t.Errorf("hosts are %v, want the one that was found too", third.Sched)
	}
	stamp = 1 // an answer that took long to arrive
	if got := m.Of(text); got != third {
		t.Error("an old answer comes after a newer one")
	}

	var err error
	if own, err = hostlist.Parse("mdns+"); err != nil {
		t.Fatal(err)
	}
	if got := m.Of(""); len(got.Sched) != 1 {
		t.Errorf("hosts of the manager's own list are %v, want the one that was found", got.Sched)
	}
	found, stamp = nil, stamp+1
	if got := m.Of(""); !got.Empty() || !strings.Contains(got.WhyEmpty(), "mdns+: nobody answers") {
		t.Errorf("the list is %v: %s", got.Sched, got.WhyEmpty())
	}
}

func TestNoFilesForOtherUsers(t *testing.T) {
	own, err := hostlist.Parse("file+/etc/farm")
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{AnyUser: true, Own: func() HostList { return HostList{List: own} }})
	if l := m.Of("file+/etc/shadow"); l.Err == nil || !strings.Contains(l.Err.Error(), "several users") {
		t.Errorf("a user's file is read: %v", l.Err)
	}
	if l := m.Of(""); l.Err != nil {
		t.Errorf("the manager's own list is refused: %v", l.Err)
	}
}

// TestListOfDistcc: $DISTCC_DIR/hosts comes after what was written for rdistcc, and before distcc's other
// files.
func TestListOfDistcc(t *testing.T) {
	own := HostList{}
	m := New(Options{Own: func() HostList { return own }})
	const text = ipc.DistccList + "+zeroconf\na/3 # mine\n"
	for _, tt := range []struct {
		entries, where string
		distcc         bool
		want           string
	}{
		{"", "", false, "a:7632"},
		{"b", "/etc/distcc/hosts", true, "a:7632"},
		{"b", "/etc/rdistcc/hosts", false, "b:7632"},
		{"", "/etc/rdistcc/hosts", false, ""}, // there are to be none
	} {
		list, err := hostlist.Parse(tt.entries)
		own = HostList{List: list, Where: tt.where, Distcc: tt.distcc, Err: err}
		got := m.Of(text)
		if addr := strings.Join(addrs(got), " "); addr != tt.want || got.Err != nil {
			t.Errorf("beside %q of %s: %q, %v; want %q", tt.entries, tt.where, addr, got.Err, tt.want)
		}
	}
	own = HostList{}
	if got := m.Of(ipc.DistccList + "a\nb:x\n"); got.Err == nil || !strings.Contains(got.Err.Error(), "$DISTCC_DIR/hosts:2: ") {
		t.Errorf("a bad list: %v", got.Err)
	}
}

func addrs(p *List) (out []string) {
	for i := range p.Sched {
		out = append(out, p.Sched[i].Addr)
	}
	return out
}
