package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSpeedIsLearned from what jobs took beside what they were expected to take.
func TestSpeedIsLearned(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 4)
	if v := s.Speed("a", tool); v != 1 {
		t.Errorf("speed is %v before any job, want 1", v)
	}
	for id := range uint64(20) {
		start(t, s, t0, id, 10*time.Second, hosts("a")...)
		s.Done(t0, "a", OK, Report{ID: id, CPU: 5 * time.Second})
		s.Credits(t0, "a", 4)
	}
	if v := s.Speed("a", tool); math.Abs(v-2) > 0.1 {
		t.Errorf("speed is %v of a host that takes half the time, want 2", v)
	}
	if v := s.Speed("a", [16]byte{9}); math.Abs(v-2) > 0.1 {
		t.Errorf("speed with another compiler is %v, want as with the first", v)
	}
	was := s.Speed("a", tool)
	for id, r := range []Report{{CPU: time.Millisecond, Failed: true}, {}} {
		r.ID = uint64(id)
		start(t, s, t0, r.ID, 10*time.Second, hosts("a")...)
		s.Done(t0, "a", OK, r)
	}
	if v := s.Speed("a", tool); v != was {
		t.Errorf("speed went from %v to %v by reports that say nothing", was, v)
	}
	if v := s.Speed("none", tool); v != 1 {
		t.Errorf("speed of an unknown host is %v", v)
	}
}

// TestDepth follows the way there and back beside what a compile takes.
func TestDepth(t *testing.T) {
	for _, c := range []struct {
		took, rtt time.Duration
		rate      float64
		bytes     uint64
		cores     int
		want      int
	}{
		{time.Second, 0, 0, 0, 8, 0},
		{time.Second, 200 * time.Microsecond, 1e9, 1 << 20, 8, 0}, // the next room
		{time.Second, 50 * time.Millisecond, 0, 0, 8, 1},
		{100 * time.Millisecond, 50 * time.Millisecond, 0, 0, 8, 4},
		{100 * time.Millisecond, 50 * time.Millisecond, 1e6, 50e3, 8, 8}, // the bytes take as long as the way
		{10 * time.Millisecond, 50 * time.Millisecond, 0, 0, 8, 8},       // as many again and no more
	} {
		s := fixed(0)
		up(s, t0, "a", c.cores)
		s.Link(t0, "a", Link{RTT: c.rtt, Rate: c.rate})
		start(t, s, t0, 1, c.took, hosts("a")...)
		s.Done(t0, "a", OK, Report{ID: 1, CPU: c.took, Bytes: c.bytes})
		if got := s.Depth("a"); got != c.want {
			t.Errorf("%+v: depth is %d", c, got)
		}
	}
	if n := fixed(0).Depth("none"); n != 0 {
		t.Errorf("depth of an unknown host is %d", n)
	}
}

// ended lets n jobs that should take a second each take as long as said at a.
func ended(t *testing.T, s *Scheduler, addr string, n int, sure bool, took time.Duration) {
	t.Helper()
	for range n {
		j := known(time.Second, hosts(addr)...)
		j.Cost.Known = sure
		s.Credits(t0, addr, 1)
		launch(t, s, t0, 1, j)
		s.Done(t0, addr, OK, Report{ID: 1, CPU: took})
	}
}

// TestNewHostIsAsOthers: nothing known of a host, it is taken for one like the others.
func TestNewHostIsAsOthers(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	ended(t, s, "a", 20, true, 250*time.Millisecond)
	up(s, t0, "new", 1)
	if v := s.Speed("new", tool); math.Abs(v-4) > 0.4 {
		t.Errorf("speed is %v beside others of 4", v)
	}
	s.Up(t0, "new", Capacity{Jobs: 1, Toolchains: 1, Speed: map[[16]byte]float64{tool: 2}})
	if v := s.Speed("new", tool); v != 2 {
		t.Errorf("speed is %v, it says 2", v)
	}
	// What it does counts, whatever it says.
	s.Toolchains("new", tool)
	ended(t, s, "new", 20, true, 10*time.Second)
	if v := s.Speed("new", tool); v > 0.12 {
		t.Errorf("speed is %v, its jobs say 0.1", v)
	}
}

// TestChangedHostIsNoticed within a few jobs, and one odd job moves little.
func TestChangedHostIsNoticed(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	ended(t, s, "a", 40, true, time.Second)
	ended(t, s, "a", 1, true, 30*time.Second)
	if v := s.Speed("a", tool); v < 0.8 {
		t.Errorf("speed is %v after one odd job", v)
	}
	ended(t, s, "a", 2, true, 30*time.Second)
	if v := s.Speed("a", tool); v > 0.3 {
		t.Errorf("speed is %v after three that took 30 times as long", v)
	}
	ended(t, s, "a", 4, true, 30*time.Second)
	if v := s.Speed("a", tool); v > 0.06 {
		t.Errorf("speed is %v after seven of them, want about 0.03", v)
	}
	ended(t, s, "a", 8, true, time.Second)
	if v := s.Speed("a", tool); v < 0.7 {
		t.Errorf("speed is %v when it is well again", v)
	}
	for i := range 40 { // in turns is no change
		ended(t, s, "a", 1, true, []time.Duration{4, 1}[i%2]*500*time.Millisecond)
	}
	if v := s.Speed("a", tool); math.Abs(v-1) > 0.15 {
		t.Errorf("speed is %v between 0.5 and 2", v)
	}
}

// TestGuessedTimesTellLess of a host than known ones.
func TestGuessedTimesTellLess(t *testing.T) {
	after := func(sure bool) float64 {
		s := fixed(0)
		up(s, t0, "a", 1)
		ended(t, s, "a", 10, true, time.Second)
		ended(t, s, "a", 2, sure, 500*time.Millisecond)
		return s.Speed("a", tool) - 1
	}
	// Some bad luck with them does not make another host of it.
	s := fixed(0)
	up(s, t0, "a", 1)
	ended(t, s, "a", 10, true, time.Second)
	ended(t, s, "a", 3, false, 30*time.Second)
	if v := s.Speed("a", tool); v < 0.7 {
		t.Errorf("speed is %v after three guesses", v)
	}
	if sure, guess := after(true), after(false); guess <= 0 || guess > sure/3 {
		t.Errorf("speed moves by %v after guessed times, by %v after known ones", guess, sure)
	}
}

// TestEqualHostsLookEqual: in a first build, without predictions, equal hosts look equal and are scheduled
// equally, however long the first jobs took compared with a mere guess.
func TestEqualHostsLookEqual(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, ms := range []int{10, 30, 300, 5000} { // of an ordinary job
		for _, jobs := range []int{2, 6, 40} {
			s := fixed(0)
			for _, a := range []string{"a", "b"} {
				up(s, t0, a, 1)
			}
			for id := range uint64(jobs) {
				a := []string{"a", "b"}[id%2]
				size := 1000 + rnd.IntN(100_000)
				took := time.Duration(float64(ms) * float64(time.Millisecond) * float64(size) / 50_000 * (0.7 + 0.6*rnd.Float64()))
				j := job(hosts(a)...)
				j.Size = uint64(size)
				s.Credits(t0, a, 1)
				launch(t, s, t0, id, j)
				s.Done(t0, a, OK, Report{ID: id, CPU: took})
			}
			var shown []float64
			for _, h := range s.Snapshot(t0) {
				shown = append(shown, h.Speed)
			}
			a, b := s.Speed("a", tool), s.Speed("b", tool)
			if math.Abs(math.Log(a/b)) > 0.25 || shown[0] > 0 && shown[1] > 0 && math.Abs(math.Log(shown[0]/shown[1])) > 0.25 {
				t.Errorf("%d jobs of about %d ms: speeds %.2f and %.2f of hosts that are alike, shown as %.2f", jobs, ms, a, b, shown)
			}
			if a < 0.5 || a > 2 {
				t.Errorf("%d jobs of about %d ms: speed %.2f where nothing says that it is not 1", jobs, ms, a)
			}
		}
	}
}
