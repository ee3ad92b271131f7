package scheduler

import (
	"testing"
	"time"
)

func TestConsider(t *testing.T) {
	s := fixed(0.5)
	for _, addr := range []string{"slow", "fast", "draining", "busy"} {
		up(s, t0, addr, 1)
	}
	s.Link(t0, "slow", Link{RTT: time.Second})
	s.Draining(t0, "draining")
	wantRun(t, s.Pick(t0, job(hosts("busy")...)), "busy")
	s.Ensure(t0, hosts("lost"))
	s.Connecting(t0, "lost")
	s.Lost(t0, "lost", "refused", false)
	j := job(hosts("slow", "draining", "lost", "tried", "fast", "busy", "unlisted")...)
	j.Tried = map[string]bool{"tried": true}
	s.Ensure(t0, hosts("tried"))
	d := s.Pick(t0, j)
	wantRun(t, d, "fast")
	list := s.Consider(t0, j, &d)
	got := make(map[string]Considered)
	for _, x := range list {
		got[x.Host] = x
	}
	if len(list) != 7 || list[0].Host != "fast" || list[0].Finish <= 0 {
		t.Errorf("considered %+v, want fast first, of 7", list)
	}
	if x := got["slow"]; x.Why != "" || x.Finish <= list[0].Finish {
		t.Errorf("%+v, want a later end than %v", x, list[0].Finish)
	}
	if x := got["busy"]; x.Why != "busy" || x.Finish <= list[0].Finish {
		t.Errorf("%+v, want a later end than %v, as it is busy", x, list[0].Finish)
	}
	for host, why := range map[string]string{"draining": "draining is draining", "lost": "lost lost (refused)",
		"tried": "tried before", "unlisted": "not known yet"} {
		if x := got[host]; x.Finish != 0 || x.Why != why {
			t.Errorf("%+v, want none as %q", x, why)
		}
	}
}
