package gain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// task is a command of a make: what it takes on a processor of this machine, and the tasks that it needs.
type task struct {
	here  time.Duration
	needs []int
	serve bool // no compile of ours: a script, a test, or what make itself does
}

// site is where a build runs: so many commands at a time, of which a part may run on processors that are faster, with
// some time for the way there.
type site struct {
	jobs  int
	speed float64
	way   time.Duration
}

// build runs tasks as make does, the first that can run whenever a place is free, and returns when it was done and the
// span of each of ours.
func build(tasks []task, s site) (wall time.Duration, spans []span) {
	type running struct {
		i   int
		end time.Duration
	}
	begun, done := make([]bool, len(tasks)), make([]bool, len(tasks))
	var now time.Duration
	var run []running
	for left := len(tasks); left > 0; {
		for i := range tasks {
			ready := !begun[i] && len(run) < s.jobs
			for _, n := range tasks[i].needs {
				ready = ready && done[n]
			}
			if !ready {
				continue
			}
			took := tasks[i].here
			if !tasks[i].serve {
				took = time.Duration(float64(took)/s.speed) + s.way
				spans = append(spans, span{now, now + took, tasks[i].here})
			}
			begun[i] = true
			run = append(run, running{i, now + took})
		}
		first := slices.MinFunc(run, func(x, y running) int { return int(x.end - y.end) })
		now = first.end
		run = slices.DeleteFunc(run, func(x running) bool {
			if x.end > now {
				return false
			}
			done[x.i] = true
			left--
			return true
		})
	}
	return now, spans
}

// shapes are builds as they occur.
func shapes(rnd *rand.Rand) map[string][]task {
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least)) * time.Millisecond
	}
	wide := func(n int) (list []task) {
		for range n {
			list = append(list, task{here: ms(50, 3000)})
		}
		return list
	}
	after := func(list []task, from int, t task) []task {
		for i := from; i < len(list); i++ {
			t.needs = append(t.needs, i)
		}
		return append(list, t)
	}
	linked := after(wide(200), 0, task{here: 4 * time.Second})
	var chain []task
	for i := range 30 {
		t := task{here: ms(20, 400)}
		if i > 0 {
			t.needs = []int{i - 1}
		}
		chain = append(chain, t)
	}
	// A generator that must be built and run before all else, a configure, and tests at the end.
	staged := []task{{here: 2 * time.Second, serve: true}, {here: 1500 * time.Millisecond, needs: []int{0}}, {here: 3 * time.Second, needs: []int{1}, serve: true}}
	for range 150 {
		staged = append(staged, task{here: ms(100, 1500), needs: []int{2}})
	}
	staged = after(staged, 3, task{here: 2 * time.Second})
	staged = append(staged, task{here: 5 * time.Second, needs: []int{len(staged) - 1}, serve: true})
	// Libraries, each linked from its own objects, then a program of all.
	var libs []task
	var archives []int
	for range 12 {
		from := len(libs)
		libs = append(libs, wide(15)...)
		libs = after(libs, from, task{here: ms(200, 1500)})
		archives = append(archives, len(libs)-1)
	}
	libs = append(libs, task{here: 6 * time.Second, needs: archives})
	return map[string][]task{"wide": wide(300), "linked": linked, "chain": chain, "staged": staged, "libraries": libs}
}

// TestAlone compares the estimate, which is made from a build on a farm, with the same build on this machine's
// processors.
func TestAlone(t *testing.T) {
	rnd := rand.New(rand.NewPCG(20, 3))
	n, least, most := 0, 1.0, 1.0
	for name, tasks := range shapes(rnd) {
		for _, cores := range []int{1, 2, 8, 16} {
			for _, farm := range []site{{64, 1, 10 * time.Millisecond}, {24, 2, 30 * time.Millisecond}, {32, 0.5, 0}, {cores, 1, 0}, {1, 1, 0}, {4, 4, time.Millisecond}} {
				t.Run(fmt.Sprintf("%s/%d/-j%d/%g", name, cores, farm.jobs, farm.speed), func(t *testing.T) {
					truth, _ := build(tasks, site{min(cores, farm.jobs), 1, 0})
					wall, spans := build(tasks, farm)
					got := alone(spans, wall, cores)
					ratio := float64(got) / float64(truth)
					n, least, most = n+1, min(least, ratio), max(most, ratio)
					if ratio < 0.95 || ratio > 1.05 {
						t.Errorf("estimated %v, in truth %v (%.2f); on the farm %v", got, truth, ratio, wall)
					}
				})
			}
		}
	}
	t.Logf("%d builds: estimates are %.3f to %.3f of the truth", n, least, most)
}

// TestAloneOfFew has cases that can be worked out by hand.
func TestAloneOfFew(t *testing.T) {
	s := time.Second
	for name, c := range map[string]struct {
		list  []span
		wall  time.Duration
		cores int
		want  time.Duration
	}{
		"nothing":                      {nil, 7 * s, 4, 7 * s},
		"one, twice as fast elsewhere": {[]span{{s, 2 * s, 2 * s}}, 3 * s, 4, 4 * s},
		"four at a time on two":        {[]span{{0, s, s}, {0, s, s}, {0, s, s}, {0, s, s}}, s, 2, 2 * s},
		"one after the other on two":   {[]span{{0, s, s}, {s, 2 * s, s}}, 2 * s, 2, 2 * s},
		"an end that is noted late":    {[]span{{0, s + slack, s}, {s, 2 * s, s}}, 2 * s, 2, 2 * s},
		"a script in between":          {[]span{{0, s, 3 * s}, {5 * s, 6 * s, 3 * s}}, 7 * s, 2, 11 * s},
		"without a length":             {[]span{{0, 0, 0}, {0, 0, 0}}, s, 1, s},
		"no processors":                {[]span{{0, s, s}}, s, 0, s},
	} {
		if got := alone(c.list, c.wall, c.cores); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTally(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	var tally Tally
	for _, r := range []report.JobRecord{
		{Began: at(100), Ended: at(600), Host: "a", Finished: true, HereUS: 900e3, BytesOut: 10, BytesIn: 20, Asked: true},
		{Began: at(100), Ended: at(600), Host: "b", Finished: true, Exit: 1, HereUS: 900e3},
		{Began: at(150), Ended: at(600), Host: "b", Finished: true, HereUS: 900e3},
		{Began: at(600), Ended: at(610), Host: "b", Cached: "farm", Finished: true, HereUS: 800e3, Asked: true},
		{Began: at(610), Ended: at(700), Local: true, Reason: "link", Finished: true, HereUS: 90e3, Output: "prog"},
		{Began: at(610), Ended: at(620), Local: true, Reason: "link", Finished: true, HereUS: 10e3, Output: "small"},
		{Began: at(610), Ended: at(800), Local: true, Reason: "host-lost", Finished: true, Exit: 1, HereUS: 190e3, Source: "x.c", Twice: true},
	} {
		tally.Add(&r)
	}
	got := tally.Sum(began, at(1000), 2)
	want := Sum{Jobs: 7, Failed: 2, Twice: 1, Asked: 2, BytesOut: 10, BytesIn: 20, Work: 3790 * time.Millisecond,
		// Two of the first three on two processors, then the third; what was kept; three beside each other; 100 ms
		// before and 200 ms after them.
		Alone: 100*time.Millisecond + 1800*time.Millisecond + 800*time.Millisecond + 200*time.Millisecond + 200*time.Millisecond}
	if got.Jobs != want.Jobs || got.Failed != want.Failed || got.Twice != want.Twice || got.Asked != want.Asked || got.BytesOut != want.BytesOut || got.BytesIn != want.BytesIn || got.Work != want.Work || got.Alone != want.Alone {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	places := fmt.Sprint(got.Places)
	if want := fmt.Sprint([]Place{{"remote", "b", 2, 1, 1800 * time.Millisecond}, {"remote", "a", 1, 0, 900 * time.Millisecond},
		{"cached", "farm", 1, 0, 800 * time.Millisecond}, {"local", "", 3, 1, 290 * time.Millisecond}}); places != want {
		t.Errorf("places %s\nwant %s", places, want)
	}
	if r := got.Reasons; len(r) != 2 || r[0].Reason != "host-lost" || r[0].File != "x.c" || r[1].Jobs != 2 || r[1].File != "prog" || r[1].Took != 100*time.Millisecond {
		t.Errorf("reasons %+v", r)
	}
	tally.Add(&report.JobRecord{Began: at(800), Ended: at(900), Local: true, Reason: "manager", Source: "interrupted.c"})
	if s := tally.Sum(began, at(1000), 2); s.Failed != 3 || len(s.Reasons) != 2 {
		t.Errorf("with one that was interrupted: %+v", s)
	}
	if got.Of(report.PlaceRemote) != 3 || got.Of(report.PlaceCached) != 1 || got.Of(report.PlaceLocal) != 3 {
		t.Errorf("of the places: %+v", got.Places)
	}
	if none := new(Tally).Sum(began, at(500), 4); none.Alone != 500*time.Millisecond || none.Places == nil {
		t.Errorf("without commands: %+v", none)
	}
}
