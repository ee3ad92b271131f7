package lend

import "testing"

// TestUntoldCredits: a Round's credits are the client's only once they are announced, the oldest first; one that comes with
// a result is at once.
func TestUntoldCredits(t *testing.T) {
	s := newSite(Options{Cores: 2, Conns: 4, Credits: 8})
	c := s.add("a", 1)
	r := s.Round(s.now)
	var list []*Credit
	for r.Next() != nil {
		list = append(list, r.Grant())
	}
	if len(list) < 3 {
		t.Fatalf("%d credits, want some", len(list))
	}
	for _, k := range list {
		if k.Told() {
			t.Errorf("credit %d is announced already", k.ID)
		}
	}
	if first := c.Announce(2); len(first) != 2 || first[0] != list[0] || !list[0].Told() || !list[1].Told() || list[2].Told() {
		t.Errorf("two were to be announced: %v of %v", first, list)
	}
	if rest := c.Announce(100); len(rest) != len(list)-2 || c.Untold() {
		t.Errorf("%d were announced then, want the %d others", len(rest), len(list)-2)
	}
	if k := s.Grant(c, s.now); !k.Told() || c.Untold() {
		t.Error("a credit that comes with a result is to be announced once more")
	}
}
