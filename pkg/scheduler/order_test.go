package scheduler

import (
	"slices"
	"testing"
	"time"
)

func TestOrder(t *testing.T) {
	at := func(build uint64, since, took int) *Job {
		return &Job{Build: build, Since: t0.Add(time.Duration(since) * time.Second), Cost: Cost{Time: time.Duration(took) * time.Second}}
	}
	s := fixed(0)
	for _, c := range []struct {
		what string
		jobs []*Job
		want []int
	}{
		{"none", nil, nil},
		{"as they came", []*Job{at(1, 2, 1), at(1, 0, 1), at(1, 1, 1)}, []int{1, 2, 0}},
		{"all at once: the longest first", []*Job{at(1, 0, 1), at(1, 0, 5), at(1, 0, 3)}, []int{1, 2, 0}},
		{"who waited longer than the other takes is not overtaken", []*Job{at(1, 0, 1), at(1, 10, 8)}, []int{0, 1}},
		{"nor by the longest of all", []*Job{at(1, 0, 1), at(1, 31, 9999)}, []int{0, 1}},
		{"builds take turns", []*Job{at(1, 0, 1), at(1, 0, 1), at(1, 0, 1), at(2, 5, 1), at(2, 5, 1)}, []int{0, 3, 1, 4, 2}},
	} {
		if got := s.Order(t0, c.jobs); !slices.Equal(got, c.want) {
			t.Errorf("%s: order is %v, want %v", c.what, got, c.want)
		}
	}
	// What runs already counts.
	up(s, t0, "a", 4)
	for id := range uint64(2) {
		j := job(hosts("a")...)
		j.Build = 1
		s.Pick(t0, j)
		s.Started(t0, id, "a", j)
	}
	if got, want := s.Order(t0, []*Job{at(1, 0, 1), at(1, 0, 1), at(2, 5, 1), at(2, 5, 1), at(2, 5, 1)}), []int{2, 3, 0, 4, 1}; !slices.Equal(got, want) {
		t.Errorf("order is %v, want %v", got, want)
	}
}
