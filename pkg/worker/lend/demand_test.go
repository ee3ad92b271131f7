package lend

import "testing"

// TestWaiting: what clients keep for want of a place is what they say that they can use, without the jobs that they have here, on
// all of their connections together. A client that has said nothing, or less than it has here, does not lower the others' number.
func TestWaiting(t *testing.T) {
	s := newSite(Options{Cores: 2, Conns: 8, Credits: 8})
	silent, told, less := s.add("a", 1), s.add("b", 1), s.add("c", 1)
	second := s.Connect("d", false)
	s.Join(second, [16]byte{1}, 1, 0)
	third := s.Connect("d", false)
	s.Join(third, [16]byte{1}, 1, 0)
	if got := s.Waiting(); got != 0 {
		t.Errorf("%d jobs wait before anybody has said so", got)
	}
	told.Client().SetDemand(5, 1)
	told.Came(s.now)
	silent.Came(s.now)
	less.Client().SetDemand(1, 1)
	less.Came(s.now)
	less.Came(s.now)
	third.Client().SetDemand(7, 1)
	second.Came(s.now)
	third.Came(s.now)
	if got := s.Waiting(); got != 4+5 {
		t.Errorf("%d jobs wait, want 9", got)
	}
	told.Answered()
	told.Client().SetDemand(0, 1)
	if got := s.Waiting(); got != 5 {
		t.Errorf("%d jobs wait after a build has ended, want 5", got)
	}
}
