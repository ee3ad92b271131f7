package lend

import (
	"math"
	"testing"
	"time"
)

// simulated clients keep the queue of a host full, each with jobs of its own length,
// in simulated time. It returns the core time that each got.
func simulate(weights []int, lengths []time.Duration, expect bool, cores int, until time.Duration) []time.Duration {
	s := newSite(Options{Cores: cores})
	got := make([]time.Duration, len(weights))
	number := map[*Client]int{}
	var conns []*Conn
	for i, w := range weights {
		c := s.add("a", w)
		number[c.client] = i
		conns = append(conns, c)
	}
	start := s.now
	for s.now.Sub(start) < until {
		for i, c := range conns {
			for len(c.client.queue) < 4 {
				var j Job
				if expect {
					j.Expect = lengths[i]
				}
				s.submit(c, lengths[i], j)
			}
		}
		for s.Running() < cores {
			j, _ := s.next()
			s.end[j] = s.now.Add(lengths[number[j.client]])
		}
		first := s.now.Add(time.Hour)
		for _, e := range s.end {
			if e.Before(first) {
				first = e
			}
		}
		s.now = first
		for j, e := range s.end {
			if e.Equal(s.now) {
				got[number[j.client]] += s.now.Sub(j.started)
				s.Ended(j, false, s.now)
				delete(s.end, j)
			}
		}
	}
	return got
}

// TestCoresAreSharedByWeight: a client with short jobs gets as much core time as one with long jobs, and one
// with twice the weight gets twice as much, whether or not the lengths are known beforehand. No core is idle:
// simulate would not end.
func TestCoresAreSharedByWeight(t *testing.T) {
	const span = 2000 * time.Second
	weights := []int{1, 1, 2, 4}
	lengths := []time.Duration{100 * time.Millisecond, 5 * time.Second, 700 * time.Millisecond, 3 * time.Second}
	for _, expect := range []bool{false, true} {
		for _, cores := range []int{1, 4} {
			got := simulate(weights, lengths, expect, cores, span)
			for i, w := range weights {
				want := span.Seconds() * float64(cores) * float64(w) / 8
				if d := got[i].Seconds() - want; math.Abs(d) > 0.03*want+10 {
					t.Errorf("%d cores, lengths known %v: client %d got %.0f s of them, want %.0f", cores, expect, i, got[i].Seconds(), want)
				}
			}
		}
	}
}

// A client that comes late is served at once, but is not compensated for the time before.
func TestLateClientIsServedNext(t *testing.T) {
	s := newSite(Options{Cores: 1})
	run := func() *Client {
		j, _ := s.next()
		s.now = s.now.Add(time.Second)
		s.Ended(j, false, s.now)
		return j.client
	}
	add := func(c *Conn, n int) {
		for range n {
			s.submit(c, time.Second, Job{})
		}
	}
	early, late := s.add("a", 1), s.add("a", 1)
	add(early, 200)
	for range 100 {
		run()
	}
	add(late, 50)
	got := map[*Client]int{}
	for i := range 40 {
		cl := run()
		if got[cl]++; i == 1 && got[late.client] == 0 {
			t.Error("the late client's first job waits behind two others")
		}
	}
	if d := got[early.client] - got[late.client]; d < -2 || d > 2 {
		t.Errorf("of 40 jobs the early client had %d, the late one %d", got[early.client], got[late.client])
	}
}
