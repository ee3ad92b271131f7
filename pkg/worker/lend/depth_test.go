package lend

import (
	"testing"
	"time"
)

// TestDepthFollowsTheRoundTrip: while cores are idle although a client has work, more jobs are put on their
// way, and fewer once some are always waiting.
func TestDepthFollowsTheRoundTrip(t *testing.T) {
	s := newSite(Options{Cores: 2})
	starved := func() { s.Starved(s.now, func(*Conn) time.Duration { return 0 }) }
	c := s.add("a", 1)
	c.client.SetDemand(0, 0)
	starved()
	if s.depth.spare != minDepth(2) {
		t.Errorf("depth %d though there is no work", s.depth.spare)
	}
	c.client.SetDemand(100, 0)
	for range 100 {
		starved()
	}
	if s.depth.spare != maxDepth(2) {
		t.Errorf("depth %d, want the most, %d", s.depth.spare, maxDepth(2))
	}
	for range 100 {
		s.queued, s.depth.worked = 5, true
		s.Tick(s.now)
	}
	if s.depth.spare != minDepth(2) {
		t.Errorf("depth %d though five jobs always wait", s.depth.spare)
	}
	starved()
	s.queued, s.depth.lowQueue = 0, 0
	s.depth.worked = true
	s.Tick(s.now)
	if s.depth.spare != minDepth(2)+1 {
		t.Errorf("depth %d while jobs come", s.depth.spare)
	}
	s.Tick(s.now)
	if s.depth.spare != minDepth(2) {
		t.Errorf("depth %d though nobody builds", s.depth.spare)
	}
}
