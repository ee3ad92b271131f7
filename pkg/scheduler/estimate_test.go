package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPlan: the core that is free first takes the next job, whatever the order.
func TestPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := plan{free: make([]time.Duration, 1+r.IntN(20))}
		naive := slices.Clone(p.free)
		for range 60 {
			arrive, length := time.Duration(r.IntN(1000)), time.Duration(r.IntN(1000))
			p.add(arrive, length)
			i := slices.Index(naive, slices.Min(naive))
			naive[i] = max(naive[i], arrive) + length
			if p.free[0] != slices.Min(naive) {
				t.Fatalf("the first core is free at %v, want %v", p.free[0], slices.Min(naive))
			}
		}
	}
}

// TestCoresOfAHost are free by what runs there.
func TestCoresOfAHost(t *testing.T) {
	at := func(now time.Duration, view Load, cores int, ours ...time.Duration) time.Duration {
		s := fixed(0)
		up(s, t0, "a", cores)
		s.Credits(t0, "a", 100)
		s.hosts["a"].deep = 100
		for i, took := range ours {
			launch(t, s, t0, uint64(i+1), known(took, hosts("a")...))
		}
		if view.Running > 0 {
			s.Load(t0, "a", view)
		}
		return s.freeAt(s.hosts["a"], now) - now
	}
	for _, c := range []struct {
		what string
		got  time.Duration
		want time.Duration
	}{
		{"nothing runs", max(at(0, Load{}, 2), 0), 0},
		{"a core is left", max(at(0, Load{}, 2, time.Second), 0), 0},
		{"the shorter one ends first", at(0, Load{}, 2, 3*time.Second, 2*time.Second), 2 * time.Second},
		{"a while later", at(time.Second, Load{}, 2, 3*time.Second, 2*time.Second), time.Second},
		{"one waits for that", at(0, Load{}, 2, 3*time.Second, 2*time.Second, 2*time.Second), 3 * time.Second},
		{"it should be done by now: a tenth", at(2*time.Second, Load{}, 1, 2*time.Second), 200 * ms},
		{"long ago: half of that more", at(6*time.Second, Load{}, 1, 2*time.Second), 200*ms + 2*time.Second},
		{"others have all cores, one after the other for a job's usual second", at(0, Load{Running: 4}, 4), 125 * ms},
		{"and two wait", at(0, Load{Running: 4, Queued: 2}, 4), 625 * ms},
	} {
		if c.got != c.want {
			t.Errorf("%s: free in %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestLag: by how much the jobs of a host are late, in the middle.
func TestLag(t *testing.T) {
	for _, c := range []struct {
		what  string
		known bool
		took  []time.Duration // should have; 12 s are over
		want  float64
	}{
		{"none is late", true, []time.Duration{20 * time.Second, 20 * time.Second}, 1},
		{"two of two", true, []time.Duration{2 * time.Second, 3 * time.Second}, 6},
		{"three of three", true, []time.Duration{2 * time.Second, 3 * time.Second, 6 * time.Second}, 4},
		{"one of one may be that one", true, []time.Duration{2 * time.Second}, 1},
		{"guessed: two of two", false, []time.Duration{2 * time.Second, 3 * time.Second}, 1},
		{"guessed: three of three", false, []time.Duration{2 * time.Second, 3 * time.Second, 6 * time.Second}, 4},
		{"guessed: three of four", false, []time.Duration{2 * time.Second, 3 * time.Second, 6 * time.Second, 20 * time.Second}, 1},
	} {
		s := fixed(0)
		up(s, t0, "a", 4)
		for i, took := range c.took {
			j := known(took, hosts("a")...)
			j.Cost.Known = c.known
			launch(t, s, t0, uint64(i+1), j)
		}
		h := s.hosts["a"]
		h.plan.ok = false
		s.freeAt(h, 12*time.Second)
		if h.plan.lag != c.want {
			t.Errorf("%s: it lags by %v, want %v", c.what, h.plan.lag, c.want)
		}
	}
}

// TestContentionIsSmoothed and ends when the jobs do not show it any more.
func TestContentionIsSmoothed(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	h := s.hosts["a"]
	s.clock(t0)
	now := t0.Add(time.Second)
	for i, want := range []float64{4, 3.1, 2.47, 2.029} {
		wall := time.Second
		if i == 0 {
			wall *= 4
		}
		launch(t, s, now, 1, known(time.Second, hosts("a")...))
		s.Done(now, "a", OK, Report{ID: 1, CPU: time.Second, Wall: wall})
		s.Credits(now, "a", 1)
		if d := h.stretch - want; d > 1e-9 || d < -1e-9 {
			t.Errorf("after %d jobs the contention is %v, want %v", i+1, h.stretch, want)
		}
	}
}

// TestPauseIsNoView: what a host was like before a pause in looking says nothing about the time between.
func TestPauseIsNoView(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 4)
	s.Load(t0, "a", Load{Running: 8})
	s.Load(t0.Add(time.Hour), "a", Load{})
	if v := s.hosts["a"].usual; v < 1 || v > 1.5 {
		t.Errorf("usual are %v jobs of others, want what 10 s of 8 come to in a minute", v)
	}
	for i := range 600 {
		s.Load(t0.Add(time.Hour+time.Duration(i)*time.Second), "a", Load{Running: 8})
	}
	if v := s.hosts["a"].usual; v < 7.9 || v > 8 {
		t.Errorf("usual are %v jobs of others, where there are 8 all the time", v)
	}
}
