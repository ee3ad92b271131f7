package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

func TestLikeness(t *testing.T) {
	for _, c := range []struct {
		file, cwd, name string
		want            int
	}{
		{"x.c", "/src", "/src/x.c", 3}, {"../lib/x.c", "/src/a", "/src/lib/x.c", 3}, {"/src/x.c", "", "/src/x.c", 3},
		{"lib/x.c", "", "/src/lib/x.c", 2}, {"/src/lib/x.c", "", "lib/x.c", 2}, {"x.c", "/src", "x.c", 2},
		{"x.c", "/src", "/other/x.c", 1}, {"ax.c", "/src", "x.c", 0}, {"", "/src", "x.c", 0}, {"x.c", "/src", "", 0},
	} {
		if got := likeness(c.file, c.cwd, c.name); got != c.want {
			t.Errorf("%q in %q is like %q: %d, want %d", c.file, c.cwd, c.name, got, c.want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for v := uint64(1); v <= 100_000; v++ {
		h.add(v)
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		got, want := float64(h.quantile(q)), q*100_000
		if got < 0.95*want || got > 1.1*want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	h.add(1 << 50)
	if h.max != 1<<50 {
		t.Error("the largest is forgotten")
	}
}

// TestForesight: a prediction is judged by the ratio to the time expected on that host.
func TestForesight(t *testing.T) {
	var s sums
	for _, r := range []JobRecord{
		{Expected: time.Second, CPUUS: 1_100_000, Finished: true},
		{Expected: time.Second, CPUUS: 1_900_000, Finished: true, Attempts: 2, Hedged: "b", Host: "b"},
		{Expected: time.Second, CPUUS: 9_000_000, Finished: true, Attempts: 3, Hedged: "b", Host: "a"},
		{CompileUS: 100, Finished: true},
		{Local: true, Trouble: true},
	} {
		s.add(&r)
	}
	if s.near != 1 || s.twice != 2 || s.ratio.n != 3 || s.unknown != 1 || s.hedges != 2 || s.won != 1 || s.retries != 1 || s.troubles != 1 || s.gone != 1 {
		t.Errorf("%+v", struct{ near, twice, n, unknown, hedges, won, retries, troubles, gone uint64 }{
			s.near, s.twice, s.ratio.n, s.unknown, s.hedges, s.won, s.retries, s.troubles, s.gone})
	}
}

// TestInputsAreCounted: each way to know the inputs is counted, and each reason why they were not known,
// wherever the job ended. The counts that the book returns are copies.
func TestInputsAreCounted(t *testing.T) {
	var b Book
	for _, r := range []JobRecord{
		{Inputs: "scan"}, {Inputs: "scan", Local: true}, {Inputs: "memo"}, {Inputs: "list", Doubt: "time"}, {Inputs: "text", Doubt: "asked"},
		{Doubt: "time", Local: true}, {Local: true, Reason: "link"},
	} {
		b.Add(&r)
	}
	c := b.Inputs()
	if c.Scan != 2 || c.Memo != 1 || c.List != 1 || c.Text != 1 || c.All() != 5 || len(c.Doubts) != 2 || c.Doubts["time"] != 2 || c.Doubts["asked"] != 1 {
		t.Errorf("%+v", c)
	}
	c.Doubts["time"] = 7
	if b.Inputs().Doubts["time"] != 2 {
		t.Error("the book shares its map")
	}
	for _, how := range InputWords {
		if c.Of(how) == 0 {
			t.Errorf("%s is not counted", how)
		}
	}
}

// TestPredictionIsCounted: compiles predicted within a factor of two, and commands compiled twice, are two
// different counts.
func TestPredictionIsCounted(t *testing.T) {
	var b Book
	ran := func(took time.Duration) *JobRecord {
		return &JobRecord{Finished: true, Host: "a:1", Expected: 100 * time.Millisecond, CPUUS: uint32(took.Microseconds())}
	}
	for _, took := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		b.Add(ran(took))
	}
	b.Add(&JobRecord{Finished: true, Local: true, Reason: "diagnostics", Twice: true})
	s := b.Stats()
	if p := s.Prediction; p.Count != 3 || p.Near != 1 || p.Twice != 2 {
		t.Errorf("%+v, want 3 foreseen, 1 of them within a quarter, 2 within a factor of two", p)
	}
	if s.Twice != 1 {
		t.Errorf("%d compiled twice, want 1", s.Twice)
	}
}

// TestEachEnded: a reader sees each command once and in order, except those that the book no longer has; one that
// continues with another book starts again.
func TestEachEnded(t *testing.T) {
	b, next, last := new(Book), uint64(0), uint64(0)
	read := func() (n int) {
		next = b.EachEnded(next, func(r *JobRecord) {
			if n++; r.ID <= last {
				t.Errorf("command %d after %d", r.ID, last)
			}
			last = r.ID
		})
		return n
	}
	id := uint64(0)
	for _, add := range []int{0, 3, 0, maxRecent, maxRecent + 5} {
		for range add {
			id++
			b.Add(&JobRecord{ID: id})
		}
		if got := read(); got != min(add, maxRecent) || last != id {
			t.Errorf("after %d more commands: %d, the last is %d, want %d", add, got, last, id)
		}
	}
	b, last = new(Book), 0
	b.Add(&JobRecord{ID: 1})
	if got := read(); got != 1 || next != 1 {
		t.Errorf("%d commands of another book, next %d", got, next)
	}
}

// TestOfBuild: a reader that comes often enough gets each command of its build once, in answers that fit a frame; one
// that comes late is told how many it has missed.
func TestOfBuild(t *testing.T) {
	b, next, got := new(Book), uint64(0), 0
	take := func() (lost uint64) {
		for {
			x := b.OfBuild(7, next)
			for i := range x.Jobs {
				if got++; x.Jobs[i].ID != uint64(got) || x.Jobs[i].Considered != nil {
					t.Fatalf("command %d of the build is job %d", got, x.Jobs[i].ID)
				}
			}
			data, err := json.Marshal(&x)
			if err != nil || len(data) > 2<<20 {
				t.Fatalf("an answer of %d bytes, %v", len(data), err)
			}
			next, lost = x.Next, lost+x.Lost
			if !x.More {
				return lost
			}
		}
	}
	own := uint64(0)
	for range 3 {
		for i := range maxRecent {
			r := &JobRecord{Build: uint64(7 + i%2), Source: strings.Repeat("x", 4096), Considered: make([]Considered, 3)}
			if r.Build == 7 {
				own++
				r.ID = own
			}
			b.Add(r)
		}
		if lost := take(); lost != 0 || got != int(own) {
			t.Errorf("%d of %d commands, %d lost", got, own, lost)
		}
	}
	for range maxRecent + 5 {
		b.Add(&JobRecord{Build: 9})
	}
	if lost := take(); lost != 5 {
		t.Errorf("%d lost, want 5", lost)
	}
}

// TestSlotNote: a status says when the bound on jobs at a time is below the places of its hosts.
func TestSlotNote(t *testing.T) {
	up := func(jobs uint16) HostStatus { return HostStatus{State: "up", Tools: 1, Load: &job.Load{Jobs: jobs}} }
	s := Status{Slots: SlotStatus{Max: 64}, Hosts: []HostStatus{up(40), up(24), {State: "down", Load: &job.Load{Jobs: 100}}}}
	if note := s.SlotNote(); note != "" {
		t.Errorf("%q, and all places can be used", note)
	}
	s.Hosts = append(s.Hosts, up(8))
	if note := s.SlotNote(); note != "at most 64 jobs are under way at a time (buffers.slots), and the hosts have 72 places" {
		t.Errorf("%q", note)
	}
}
