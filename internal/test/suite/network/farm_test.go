package network

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// size is n in full, and less where the tests shall not take long: RDISTCC_NETNS is
// "full" or "ci".
func size(n, ci int) int {
	if os.Getenv("RDISTCC_NETNS") == "full" {
		return n
	}
	return ci
}

// strict lets nothing be compiled here: a job that no host does is a failed one.
const strict = "RDISTCC_MODE=remote"

// TestHerd: `make -j512` on a farm of eight places. No command is refused, none is
// lost, the manager's memory and descriptors are bounded.
func TestHerd(t *testing.T) {
	s := newSite(t, 1, 2, 4)
	each := 400 * time.Millisecond
	n := size(1024, 512)
	m := s.managers[0]
	idle, stop := held(m.Manager), peak(m.Manager)
	b := s.start(m, n, 512, job{sleep: each, output: 4000, source: 20000}, strict)
	all := b.wait(10 * time.Minute)
	most := stop()
	t.Logf("make -j512 of %d jobs of %v on %d places: %v", n, each, s.slots, measure(all, s.slots, each))
	t.Logf("by host: %v", places(all))
	t.Logf("manager: %v idle, at most %v", idle, most)
	if more := most.resident - idle.resident; more > 64<<20 {
		t.Errorf("the manager took %d MiB more than idle, want at most 64", more>>20)
	}
	if most.descriptors > 512*8 {
		t.Errorf("the manager had %d descriptors", most.descriptors)
	}
	picture(t, "herd", "make -j512 on 8 places", s.slots, map[string][]compiled{"farm": all})
}

// TestFarm: 32 daemons, 8 managers, `make -j64` by each at a time. No job fails or is
// lost, and none of the managers gets much less than its share. In the small size the jobs
// take longer, and fewer are at it: where hundreds of commands start every few seconds two slow cores
// keep all 40 hosts waiting for seconds, and that is not what is tried here.
func TestFarm(t *testing.T) {
	s := newSite(t, 8, 32, 4)
	each := time.Duration(size(2, 20)) * time.Second
	n, jobs := size(400, 48), size(64, 20)
	for _, m := range s.managers {
		s.connected(m.Manager, len(s.daemons.Daemons))
	}
	var processes []farm.Process
	for _, m := range s.managers {
		processes = append(processes, m.Manager)
	}
	mgrs, dmns := peak(processes...), peak(s.daemons.Daemons...)
	var builds []*build
	for _, m := range s.managers {
		builds = append(builds, s.prepare(m, n, jobs, job{sleep: each, spread: each / 4, output: 4000, source: 20000}, strict))
	}
	for _, b := range builds {
		b.start()
	}
	var all []compiled
	var ends [][]float64 // of each build's compiles, in milliseconds since 1970
	for _, b := range builds {
		one := b.wait(15 * time.Minute)
		all = append(all, one...)
		var e []float64
		for i := range one {
			e = append(e, one[i].Start+one[i].MS.Total)
		}
		slices.Sort(e)
		ends = append(ends, e)
	}
	t.Logf("8 managers, 32 daemons, %d jobs of %v on %d places: %v", len(all), each, s.slots, measure(all, s.slots, each))
	t.Logf("a manager held at most %v, a daemon %v", mgrs(), dmns())
	var counts []int
	for _, n := range places(all) {
		counts = append(counts, n)
	}
	t.Logf("jobs by daemon: %d to %d", slices.Min(counts), slices.Max(counts))
	if len(places(all)) != 32 {
		t.Errorf("%d of 32 daemons had jobs: %v", len(places(all)), places(all))
	}

	// Fair: between the moments when the last of them has had its first jobs done and
	// the first of them its last, each gets about as much.
	from, to := 0.0, ends[0][len(ends[0])-1]
	for _, e := range ends {
		from, to = max(from, e[min(8, len(e)-1)]), min(to, e[len(e)-1])
	}
	var done []int
	for _, e := range ends {
		a, _ := slices.BinarySearch(e, from)
		b, _ := slices.BinarySearch(e, to)
		done = append(done, max(0, b-a))
	}
	t.Logf("while all of them built, the managers had these numbers of jobs done: %v", done)
	if most := slices.Max(done); most >= 20 && slices.Min(done) < most/4 {
		t.Errorf("one manager got %d jobs done while another got %d", slices.Min(done), most)
	}
	picture(t, "farm", "8 managers, 32 daemons, 128 places", s.slots, map[string][]compiled{"farm": all})
}

// TestFarAway: with 50 ms there and back, and 200, the hosts stay busy: the next job's
// source is there before a place is free.
func TestFarAway(t *testing.T) {
	part.Skip(t)
	each := 200 * time.Millisecond
	n := size(600, 200)
	for _, rtt := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(rtt.String(), func(t *testing.T) {
			s := newSiteAway(t, 1, 2, 4, rtt)
			// Once for what a connection learns in its youth, and the manager of its jobs.
			for _, what := range []string{"first build", "second"} {
				all := s.start(s.managers[0], n, 32, job{sleep: each, output: 20000, source: 100000}, strict).wait(10 * time.Minute)
				t.Logf("round trip of %v, %s, %d jobs of %v on %d places: %v", rtt, what, n, each, s.slots, measure(all, s.slots, each))
				picture(t, "away-"+rtt.String(), "hosts "+rtt.String()+" away", s.slots, map[string][]compiled{"farm": all})
			}
		})
	}
}
