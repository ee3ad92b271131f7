package spans

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var began = time.Date(2026, 11, 26, 12, 0, 0, 123456789, time.UTC)

func at(us int) time.Time { return began.Add(time.Duration(us) * time.Microsecond) }

// says returns a span with its phases in a line, in microseconds.
func says(s Span) string {
	us := func(t time.Time) int64 { return t.Sub(began).Microseconds() }
	text := fmt.Sprintf("%s %d-%d:", s.Name, us(s.Begin), us(s.End))
	for _, p := range s.Phases {
		text += fmt.Sprintf(" %s %d-%d", p.Name, us(p.Begin), us(p.End))
	}
	return text
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		r    report.JobRecord
		want string
	}{
		{report.JobRecord{Source: "x.c", Began: at(0), Ended: at(1000), AnsweredUS: 900, CreditUS: 100, WriteUS: 50, QueueUS: 10, CompileUS: 500, ReturnUS: 40},
			"x.c 0-1000: prepare 0-200 credit 200-300 write 300-350 queue 350-360 compile 360-860 return 860-900 take 900-1000"},
		{report.JobRecord{Source: "x.c", Began: at(0), Ended: at(1000), AnsweredUS: 1000, CompileUS: 1000}, "x.c 0-1000: compile 0-1000"},
		// What cannot be is cut: a phase before the command, and an answer behind its end.
		{report.JobRecord{Source: "x.c", Began: at(0), Ended: at(100), AnsweredUS: 90, WriteUS: 50, CompileUS: 80}, "x.c 0-100: write 0-10 compile 10-90 take 90-100"},
		{report.JobRecord{Source: "x.c", Began: at(0), Ended: at(100), AnsweredUS: 200, CompileUS: 150}, "x.c 0-100: prepare 0-50 compile 50-100"},
		{report.JobRecord{Source: "x.c", Began: at(0), AnsweredUS: 200, CompileUS: 150}, "x.c 0-0:"},
		{report.JobRecord{Source: "x.c", Began: at(0), Ended: at(90), AnsweredUS: 60, CompileUS: 5000, Cached: "farm"}, "x.c 0-90: cache 0-60 take 60-90"},
		{report.JobRecord{Output: "prog", Began: at(5), Ended: at(1000), Local: true, TurnUS: 100, CompileUS: 7}, "prog 5-1000: prepare 5-105 runs 105-1000"},
		{report.JobRecord{ID: 7, Began: at(0), Ended: at(10), Local: true}, "job 7 0-10: runs 0-10"},
	} {
		if got := says(Of(&c.r)); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// random returns commands as they may be, with figures that do not all fit each other.
func random(rnd *rand.Rand, n int) (jobs []report.JobRecord) {
	for i := range n {
		begin := rnd.IntN(20_000)
		r := report.JobRecord{ID: uint64(i), Source: fmt.Sprintf("<%d>\x80\".c", i), Began: at(begin), Ended: at(begin + rnd.IntN(3000) - 10), AnsweredUS: rnd.Uint32N(3000),
			CreditUS: rnd.Uint32N(100), WriteUS: rnd.Uint32N(100), QueueUS: rnd.Uint32N(200), CompileUS: rnd.Uint32N(3000), ReturnUS: rnd.Uint32N(100), TurnUS: rnd.Uint32N(500)}
		switch rnd.IntN(4) {
		case 0:
			r.Local, r.Reason = true, "link"
		case 1:
			r.Cached = "manager"
		default:
			r.Host = fmt.Sprintf("host%d:7632", rnd.IntN(3))
		}
		jobs = append(jobs, r)
	}
	return jobs
}

// TestChrome reads what is written for Perfetto: it is valid JSON, each event lies within the one around it on its
// lane, and each command is there, also in the place where it ran.
func TestChrome(t *testing.T) {
	for seed := range uint64(20) {
		jobs := random(rand.New(rand.NewPCG(seed, 1)), 300)
		var out bytes.Buffer
		if err := WriteChrome(&out, &Build{Name: "make", Began: began, Ended: at(25_000)}, slices.Clone(jobs)); err != nil {
			t.Fatal(err)
		}
		var trace struct {
			TraceEvents []struct {
				Name, Cat, Ph string
				TS, Dur       *float64
				PID, TID      int
				Args          map[string]any
			}
		}
		d := json.NewDecoder(&out)
		if err := d.Decode(&trace); err != nil || d.More() {
			t.Fatal(err)
		}
		type lane struct{ pid, tid int }
		type slice struct{ begin, end int64 } // ns, as Perfetto keeps them
		on, names := map[lane][]slice{}, map[lane]string{}
		groups, count := map[int]string{}, map[string]int{}
		for _, e := range trace.TraceEvents {
			l := lane{e.PID, e.TID}
			switch {
			case e.Ph == "M" && e.Name == "process_name":
				groups[e.PID] = e.Args["name"].(string)
			case e.Ph == "M" && e.Name == "thread_name":
				if names[l] != "" {
					t.Errorf("lane %v has two names", l)
				}
				names[l] = e.Args["name"].(string)
			case e.Ph == "M":
			case e.Ph != "X" || e.TS == nil || e.Dur == nil || *e.Dur < 0 || *e.TS < 0 || e.Name == "":
				t.Fatalf("event %+v", e)
			default:
				if names[l] == "" || groups[e.PID] == "" {
					t.Errorf("%q is on a lane without a name, %v", e.Name, l)
				}
				begin := int64(*e.TS*1e3 + 0.5)
				on[l] = append(on[l], slice{begin, begin + int64(*e.Dur*1e3+0.5)})
				if e.Cat != "phase" {
					count[groups[e.PID]+" "+e.Cat]++
				}
			}
		}
		for l, list := range on {
			slices.SortStableFunc(list, func(x, y slice) int { // as they open: the outer one first
				if x.begin != y.begin {
					return int(x.begin - y.begin)
				}
				return int(y.end - x.end)
			})
			var open []slice
			for _, s := range list {
				for len(open) > 0 && open[len(open)-1].end <= s.begin {
					open = open[:len(open)-1]
				}
				if len(open) > 0 && open[len(open)-1].end < s.end {
					t.Fatalf("lane %v: %v overlaps %v", l, s, open[len(open)-1])
				}
				if open = append(open, s); l.pid != groupBuild && len(open) > 1 {
					t.Fatalf("two at a time in place %v", l)
				}
			}
		}
		for i := range jobs {
			r := &jobs[i]
			s := Of(r)
			count["build: make "+r.Place()]--
			if _, ok := s.phase(Compile); ok && r.Place() == report.PlaceRemote {
				count[r.Host+" remote"]--
			}
			if _, ok := s.phase(Runs); ok {
				count["here local"]--
			}
		}
		count["build: make build"]--
		for what, n := range count {
			if n != 0 {
				t.Errorf("seed %d: %d too many of %s", seed, n, what)
			}
		}
	}
}

// TestLanes: places that follow each other share a lane.
func TestLanes(t *testing.T) {
	var jobs []report.JobRecord
	for i := range 100 {
		jobs = append(jobs, report.JobRecord{Source: "x.c", Host: "a", Began: at(i / 4 * 100), Ended: at(i/4*100 + 100), AnsweredUS: 100, CompileUS: 100})
	}
	var out strings.Builder
	if err := WriteChrome(&out, &Build{Began: began, Ended: at(2500)}, jobs); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"thread_name"`); n != 1+4+4 {
		t.Errorf("%d lanes, want one, four commands, four places", n)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestChromeFails(t *testing.T) {
	if err := WriteChrome(full{}, &Build{Began: began}, random(rand.New(rand.NewPCG(1, 1)), 1000)); err == nil {
		t.Error("written to a full disk")
	}
}
