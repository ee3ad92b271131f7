package lend

import (
	"slices"
	"testing"
	"time"
)

// TestPausesKeepAPart: between two jobs of a build, its part of the cores is not given to another tenant,
// whose jobs take longer; when the build is over, that tenant gets all cores.
func TestPausesKeepAPart(t *testing.T) {
	s := newSite(Options{Cores: 4})
	honest, hostile := s.add("10.0.0.1", 1), s.add("10.0.0.2", 1)
	submit := func() {
		for hostile.tenant.queued < 8 {
			s.submit(hostile, 10*time.Second, Job{Expect: time.Millisecond})
		}
	}
	start := func() (list []*Job) {
		for {
			j, _ := s.next()
			if j == nil {
				return list
			}
			list = append(list, j)
		}
	}
	end := func(list []*Job) {
		for _, j := range list {
			s.Ended(j, false, s.now)
			s.Learn(j, 100*time.Millisecond, 0)
		}
	}
	// Two jobs at a time of 100 ms, 10 ms apart; the other one's run for as long.
	var mine []*Job
	for range 2 {
		mine = append(mine, s.submit(honest, 0, Job{}))
	}
	start()
	submit()
	if n := len(start()); n != 2 {
		t.Fatalf("%d jobs of the flood began beside two, want 2", n)
	}
	for round := range 50 {
		s.now = s.now.Add(100 * time.Millisecond)
		if round%10 == 9 {
			s.Tick(s.now) // as often as it looks around
		}
		end(mine)
		if list := start(); len(list) > 0 {
			t.Fatalf("round %d: %d jobs of the flood got a core in a pause of 10 ms", round, len(list))
		}
		s.now = s.now.Add(10 * time.Millisecond)
		mine = mine[:0]
		for range 2 {
			mine = append(mine, s.submit(honest, 0, Job{}))
		}
		if list := start(); len(list) != 2 || list[0].client != honest.client || list[1].client != honest.client {
			t.Fatalf("round %d: %d jobs began, want the two of the build", round, len(list))
		}
	}
	end(mine)
	s.now = s.now.Add(pauseMost)
	if n := len(start()); n != 2 {
		t.Errorf("after the build %d jobs of the flood began, want 2", n)
	}
	// One that had to yield waits for longer.
	for _, r := range slices.Clone(s.running) {
		if r.client == hostile.client {
			end([]*Job{r})
		}
	}
	hostile.tenant.held = s.now.Add(time.Hour)
	honest.tenant.ended = s.now.Add(-pauseMost)
	if n := len(start()); n != 2 {
		t.Errorf("held, %d of its jobs began in a pause of the other's, want 2", n)
	}
	s.now = s.now.Add(heldPause)
	if n := len(start()); n != 2 {
		t.Errorf("held, %d more began when nobody builds, want 2", n)
	}
}
