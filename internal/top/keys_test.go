package top

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// press presses keys and returns what the last one asks for.
func press(m *Model, keys ...string) (a Action) {
	for _, k := range keys {
		a = m.Key(k)
	}
	return a
}

// line returns the line of a frame that begins with a text, without blanks around.
func line(m *Model, now time.Time, start string) string {
	for _, l := range strings.Split(m.View(now).String(), "\n") {
		if strings.HasPrefix(strings.TrimLeft(l, " "), start) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// TestSelectionFollowsItsHost: a host stays selected when rows move, so that a key never hits its neighbour.
func TestSelectionFollowsItsHost(t *testing.T) {
	m, now := model(80, 24)
	press(m, "end", "up")
	if got := line(m, now, ">"); !strings.HasPrefix(got, "> build12:7632") {
		t.Fatalf("selected: %q", got)
	}
	for _, keys := range []string{"r", "s s", "S", "/ b u i l d enter", "esc"} {
		press(m, strings.Fields(keys)...)
		if got := line(m, now, ">"); !strings.HasPrefix(got, "> build12:7632") {
			t.Errorf("after %s: %q", keys, got)
		}
	}
	s := answer(6)
	s.Hosts = s.Hosts[5:]
	m.Take(Answer{Status: s}, now)
	if got := line(m, now, ">"); !strings.HasPrefix(got, "> build12:7632") {
		t.Errorf("with other hosts: %q", got)
	}
}

func TestOrdersAreConfirmed(t *testing.T) {
	for _, c := range []struct {
		keys string
		want *Order
	}{
		{"d", nil},
		{"d y", &Order{"drain", "build1:7632"}},
		{"d n", nil},
		{"d d", nil},
		{"d esc y", nil},
		{"d enter", nil},
		{"y", nil},
		{"down d y", &Order{"undrain", "build2:7632"}}, // it is drained
		{"down down u Y", &Order{"undrain", "build3:7632"}},
		{"end d y", nil}, // an entry that names hosts
		{"tab d y", nil}, // the files
		{"tab d d y", &Order{"drain", "build1:7632"}}, // back among the hosts
		{"/ 1 2 enter d y", &Order{"drain", "build12:7632"}},
		{"/ d y", nil}, // that is text
		{"/ q q", nil},
	} {
		m, _ := model(80, 24)
		a := press(m, strings.Fields(c.keys)...)
		switch {
		case a.Quit || a.Ask:
			t.Errorf("%s: %+v", c.keys, a)
		case (a.Order == nil) != (c.want == nil), a.Order != nil && *a.Order != *c.want:
			t.Errorf("%s: %+v", c.keys, a.Order)
		}
	}
	// The host of the question is meant, whatever comes in between.
	m, now := model(80, 24)
	press(m, "d")
	s := answer(6)
	s.Hosts = s.Hosts[1:]
	m.Take(Answer{Status: s}, now)
	if a := press(m, "y"); a.Order == nil || a.Order.Host != "build1:7632" {
		t.Errorf("ordered %+v", a.Order)
	}
	// A host that is drained and on no list can be had back.
	s = answer(7)
	s.Drained = append(s.Drained, "old:7632")
	m.Take(Answer{Status: s}, now)
	if a := press(m, "/", "o", "l", "d", "enter", "d", "y"); a.Order == nil || *a.Order != (Order{"undrain", "old:7632"}) {
		t.Errorf("ordered %+v", a.Order)
	}
}

func TestPause(t *testing.T) {
	m, _ := model(80, 24)
	if a := press(m, "p"); a.Ask || !m.Paused() {
		t.Errorf("paused %v, %+v", m.Paused(), a)
	}
	if a := press(m, "p"); !a.Ask || m.Paused() {
		t.Errorf("paused %v, %+v", m.Paused(), a)
	}
	if !press(m, "q").Quit || !press(m, "ctrl+c").Quit || press(m, "?", "q").Quit || !press(m, "?", "ctrl+c").Quit {
		t.Error("keys that quit")
	}
}

// TestManagerComesBack: trouble is shown, and gone with the next answer; another manager's counters begin anew.
func TestManagerComesBack(t *testing.T) {
	m, now := model(80, 24)
	m.Take(Answer{Trouble: "no connection manager runs at X"}, now)
	if f := m.View(now.Add(time.Minute)).String(); !strings.Contains(f, "no connection manager runs at X (for 1m0s)") || !strings.Contains(f, "build7:7632") {
		t.Errorf("without a manager:\n%s", f)
	}
	s := answer(0)
	s.PID++
	m.Take(Answer{Status: s}, now)
	f := m.View(now).String()
	if strings.Contains(f, "no connection manager") || !strings.Contains(f, "process 4712") || !strings.Contains(f, "- jobs/s") {
		t.Errorf("with a new one:\n%s", f)
	}
}

func TestRates(t *testing.T) {
	var r rates
	if _, ok := r.jobs(); ok {
		t.Error("a rate without answers")
	}
	for n := range 60 {
		r.add(answer(n), began.Add(time.Duration(n)*time.Second))
	}
	jobs, _ := r.jobs()
	host, _ := r.host("build1:7632")
	out, in := r.bytes()
	if jobs != 24 || host != 24 || out != 1<<19 || in != 1<<16 || len(r.samples) > 12 {
		t.Errorf("%v jobs/s, %v on a host, %v and %v bytes/s, from %d answers", jobs, host, out, in, len(r.samples))
	}
	r.add(answer(0), began.Add(time.Minute)) // counters that fall, as when a host is forgotten
	if jobs, ok := r.jobs(); jobs != 0 || !ok {
		t.Errorf("%v jobs/s", jobs)
	}
}

func TestNaturalOrder(t *testing.T) {
	for _, c := range [][2]string{{"build2", "build10"}, {"a", "b"}, {"a", "a1"}, {"a01", "a2"}, {"a9:7632", "a10:1"}, {"", "a"}} {
		if natural(c[0], c[1]) >= 0 || natural(c[1], c[0]) <= 0 || natural(c[0], c[0]) != 0 {
			t.Errorf("%q and %q", c[0], c[1])
		}
	}
}

// hostile is a text with all that a terminal could take for something else.
const hostile = "a\x1b]0;owned\x07\x1b[2J\u009b31m\x7f\x00\r\n\tb\u202e\u200b\xff\U000e0041"

func TestText(t *testing.T) {
	if got, want := Text(hostile), "a?]0;owned??[2J?31m??   b????"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, s := range []string{"", "plain", "häuser/日本.c", "a b"} {
		if Text(s) != s {
			t.Errorf("%q became %q", s, Text(s))
		}
	}
}

// TestNothingReachesTheTerminal fills every text of an answer with commands for terminals.
func TestNothingReachesTheTerminal(t *testing.T) {
	s := answer(3)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Addr = fmt.Sprint(i, hostile)
		h.Version, h.Error, h.Refused, h.Doubt, h.State = hostile, hostile, hostile, hostile, hostile
		h.Lacks, h.Compilers = []string{hostile}, []string{hostile}
		h.Load = &job.Load{}
	}
	for i := range s.Underway {
		u := &s.Underway[i]
		u.Source, u.Phase, u.Hosts = hostile, hostile, []string{hostile}
	}
	for i := range s.Jobs {
		s.Jobs[i].Reason, s.Jobs[i].Host = hostile, hostile
	}
	s.Recent = []report.JobRecord{{Source: hostile, Local: true, Reason: hostile, Detail: hostile}}
	s.Cache.Hits = map[string]uint64{hostile: 3}
	s.Version, s.ListError, s.Drained = hostile, hostile, []string{hostile}
	s.Config = &report.Configuration{Error: hostile}
	m, now := model(140, 40)
	m.Take(Answer{Status: s}, now)
	m.Say(hostile, true, now)
	for range views {
		for _, k := range []string{"down", "d", "n", "/", "x", "esc"} {
			m.Key(k)
			check(t, m, m.View(now))
		}
		m.Key("tab")
	}
	m.Key("/")
	m.Type(hostile)
	check(t, m, m.View(now))
	m.Take(Answer{Trouble: hostile}, now)
	check(t, m, m.View(now))
}

// TestAnySize presses keys at random on screens of all sizes.
func TestAnySize(t *testing.T) {
	keys := []string{"tab", "shift+tab", "s", "S", "r", "/", "x", "1", "backspace", "enter", "esc", "p", "d", "u", "n", "up", "down", "pgup", "pgdown", "home", "end", "?", "é", "ctrl+u", " "}
	rnd := rand.New(rand.NewPCG(1, 2))
	m, now := model(80, 24)
	for i := range 5000 {
		m.Key(keys[rnd.IntN(len(keys))])
		if i%5 == 0 {
			m.Resize(rnd.IntN(40), rnd.IntN(14))
		}
		if i%50 == 0 {
			s := answer(i)
			s.Hosts = s.Hosts[:rnd.IntN(len(s.Hosts)+1)]
			s.Underway = s.Underway[:rnd.IntN(len(s.Underway)+1)]
			m.Take(Answer{Status: s}, now)
		}
		check(t, m, m.View(now))
		if t.Failed() {
			t.Fatalf("on a screen of %dx%d:\n%s", m.width, m.height, m.View(now))
		}
	}
}
