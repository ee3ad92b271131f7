package scheduler

import (
	"math"
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
