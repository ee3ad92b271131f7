package lend

import (
	"fmt"
	"testing"
	"time"
)

// TestOffendersAreKeptOff: a peer that breaks rules again and again is turned away for a
// time, others are not, and what is remembered is bounded.
func TestOffendersAreKeptOff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o := make(Offenders)
	bad, good := Peer{Name: "192.0.2.7"}, Peer{Name: "192.0.2.8"}
	for range violations - 1 {
		o.Broke(bad, now)
	}
	if d := o.Wait(bad, now); d != 0 {
		t.Errorf("kept off for %v before the last violation", d)
	}
	for range 50 {
		o.Broke(bad, now)
	}
	if d := o.Wait(bad, now); d != 2*time.Second {
		t.Errorf("kept off for %v, want 2s", d)
	}
	if o.Wait(good, now) != 0 {
		t.Error("another peer is kept off")
	}
	now = now.Add(2 * time.Second)
	if d := o.Wait(bad, now); d != 0 {
		t.Errorf("kept off for %v more", d)
	}
	local := Peer{Name: "127.0.0.2", Local: true}
	for range localViolations - 1 {
		o.Broke(local, now)
	}
	if o.Wait(local, now) != 0 {
		t.Error("users of this machine are kept off for what one of them does")
	}
	if o.Broke(local, now); o.Wait(local, now) == 0 {
		t.Error("nothing keeps an address of this machine off")
	}
	for i := range 2 * offendersMost {
		o.Broke(Peer{Name: fmt.Sprintf("10.%d.%d.1", i/256, i%256)}, now)
	}
	if len(o) > offendersMost {
		t.Errorf("%d are remembered", len(o))
	}
	now = now.Add(time.Hour)
	if o.Broke(Peer{Name: "203.0.113.5"}, now); len(o) != 1 {
		t.Errorf("%d are remembered after an hour", len(o))
	}
}
