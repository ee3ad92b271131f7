package purse

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

// TestLegs: what becomes of a job and its credit, whatever happens in which order.
func TestLegs(t *testing.T) {
	write := func(g *Leg) Then { g.Write(); return Nothing }
	send := func(g *Leg) Then { g.Send(); return Nothing }
	written, answer, cancel := (*Leg).Written, (*Leg).Answer, (*Leg).Cancel
	for name, x := range map[string]struct {
		do   []func(*Leg) Then
		want []Then
	}{
		"written, sent, answered":           {[]func(*Leg) Then{write, send, written, answer}, []Then{Nothing, Nothing, Nothing, Land}},
		"answered before it is known there": {[]func(*Leg) Then{write, send, answer, written}, []Then{Nothing, Nothing, Nothing, Land}},
		"cancelled before anything":         {[]func(*Leg) Then{cancel}, []Then{GiveBack}},
		"cancelled while it is written":     {[]func(*Leg) Then{write, write, cancel, written, written}, []Then{Nothing, Nothing, Hold, Nothing, GiveBack}},
		"cancelled between two writes":      {[]func(*Leg) Then{write, written, cancel}, []Then{Nothing, Nothing, GiveBack}},
		"cancelled once it is sent":         {[]func(*Leg) Then{send, cancel, cancel, answer}, []Then{Nothing, Ask, Nothing, Land}},
	} {
		var g Leg
		var got []Then
		for _, do := range x.do {
			got = append(got, do(&g))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: got %v, want %v", name, got, x.want)
		}
	}
	var g Leg
	if g.Due() {
		t.Error("a result is due before the job is sent")
	}
	g.Send()
	if !g.Due() {
		t.Error("no result is due")
	}
	if g.Answer(); g.Due() {
		t.Error("a second result is due")
	}
}

// TestCancels: one Cancel is under way at a time, with as many jobs as it can name.
func TestCancels(t *testing.T) {
	var c Cancels
	if m := c.Next(); m != nil {
		t.Errorf("got %+v of no job", m)
	}
	for id := range uint64(job.MaxCancels + 2) {
		c.Add(id)
	}
	first := c.Next()
	if first == nil || len(first.Jobs) != job.MaxCancels || first.Jobs[0] != 0 {
		t.Fatalf("got %+v", first)
	}
	if m := c.Next(); m != nil {
		t.Errorf("got %+v before the Ack", m)
	}
	c.Acked(first.Seq)
	if m := c.Next(); m == nil || !slices.Equal(m.Jobs, []uint64{job.MaxCancels, job.MaxCancels + 1}) || m.Seq == first.Seq {
		t.Errorf("got %+v, want the two others", m)
	}
}

// TestPurse: the credit that came last is used first.
func TestPurse(t *testing.T) {
	var p Purse
	p.Put(job.Credit{ID: 1})
	p.Put(job.Credit{ID: 2})
	if k := p.Take(); k.ID != 2 || p.Len() != 1 {
		t.Errorf("took %d, and %d are left", k.ID, p.Len())
	}
}
