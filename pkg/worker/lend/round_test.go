package lend

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// deal carries out a round. It returns what it grants and what it asks for, by connection.
func (s *site) deal() (granted, asked map[*Conn]int) {
	granted, asked = map[*Conn]int{}, map[*Conn]int{}
	r := s.Round(s.now)
	for c := r.Next(); c != nil; c = r.Next() {
		r.Grant()
		granted[c]++
	}
	for _, x := range r.Recalls() {
		asked[x.Conn] = x.Count
	}
	return granted, asked
}

// give returns the oldest credits of a connection.
func (c *Conn) give(n int) {
	for range n {
		c.Spent(c.credits[0])
	}
}

// TestRoundSharesCredits: a single client has all credits; two have half each, once the first has returned
// what it was asked for.
func TestRoundSharesCredits(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited}) // 8 spare credits
	a := s.add("a", 1)
	if granted, asked := s.deal(); granted[a] != 9 || len(asked) != 0 {
		t.Fatalf("alone: %v granted, %v asked for", granted, asked)
	}
	b := s.add("b", 1)
	if granted, asked := s.deal(); granted[b] != 1 || asked[a] != 4 || len(asked) != 1 {
		t.Fatalf("two: %v granted, %v asked for; want 1 and 4", granted, asked)
	}
	a.give(4)
	if granted, asked := s.deal(); granted[b] != 4 || len(asked) != 0 {
		t.Errorf("after the first has returned some: %v granted, %v asked for; want 4 and none", granted, asked)
	}
	if n := s.Free(s.now); n != 0 {
		t.Errorf("%d credits are free, want none", n)
	}
}

// TestRoundWithHoarder: credits that a client keeps for a second after it was asked for them count as if they
// had been returned.
func TestRoundWithHoarder(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited})
	a := s.add("a", 1)
	s.deal()
	b := s.add("b", 1)
	s.deal()
	s.now = s.now.Add(hoardTime - time.Millisecond)
	if granted, asked := s.deal(); len(granted) != 0 || asked[a] != 4 {
		t.Errorf("before its time: %v granted, %v asked for", granted, asked)
	}
	s.now = s.now.Add(time.Millisecond)
	if granted, _ := s.deal(); granted[b] != 4 {
		t.Errorf("after a second: %v granted, want 4", granted)
	}
	if granted, asked := s.deal(); len(granted) != 0 || asked[a] != 4 {
		t.Errorf("then: %v granted, %v asked for; want none and still 4", granted, asked)
	}
}

// TestRoundOfClosedHost: a host that takes no work asks for all credits, and grants none.
func TestRoundOfClosedHost(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited})
	a := s.add("a", 1)
	s.deal()
	s.Close(&job.Refusal{Cause: job.CauseDisk})
	b := s.add("b", 1)
	if granted, asked := s.deal(); len(granted) != 0 || asked[a] != 9 {
		t.Errorf("%v granted, %v asked for; want none and 9", granted, asked)
	}
	if s.Due(b, s.now) {
		t.Error("a credit rides on a result")
	}
	a.give(9)
	s.Close(nil)
	if granted, _ := s.deal(); granted[a] != 5 || granted[b] != 5 {
		t.Errorf("open again: %v granted, want 5 each", granted)
	}
}

// TestRoundWithoutSlots: if the host has no slot for a client, it is the next one's turn, and clients above
// their share are asked to return credits.
func TestRoundWithoutSlots(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited})
	a := s.add("a", 1)
	s.deal()
	b, c := s.add("b", 1), s.add("c", 1)
	r := s.Round(s.now)
	if got := r.Next(); got != b {
		t.Fatal("the second client has no turn")
	}
	r.Lack()
	if got := r.Next(); got != c {
		t.Fatal("the third client has no turn")
	}
	if r.Grant(); r.Next() != c {
		t.Error("the third client has no second turn")
	}
	if r.Grant(); r.Next() != nil { // of three connections and 8 spare ones the first has 9
		t.Error("more is granted than there is")
	}
	if list := r.Recalls(); len(list) != 1 || list[0].Conn != a {
		t.Errorf("%v is asked for", list)
	}
}

// TestRoundWithoutPatience: a tenant that has had too many lapses gets no credit for a moment.
func TestRoundWithoutPatience(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited})
	a := s.add("a", 1)
	for range lapses {
		a.Tenant().Lapsed(s.now)
	}
	if granted, _ := s.deal(); len(granted) != 0 {
		t.Errorf("%v granted", granted)
	}
	s.now = s.now.Add(time.Second)
	if granted, _ := s.deal(); granted[a] != 9 {
		t.Errorf("later: %v granted, want 9", granted)
	}
}
