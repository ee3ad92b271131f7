package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// lead is the most by which a long job overtakes earlier ones.
const lead = 30 * time.Second

// Order returns the order in which to ask Pick for the waiting jobs, as indices of waiting
// that are valid until the next call. Builds take turns, the one with the fewest jobs running
// first (as far as hosts know; see Started). Within a build, a job counts as asked for earlier
// by the time that it takes: long ones go first, as they would end the build, and no job is
// overtaken for ever.
func (s *Scheduler) Order(now time.Time, waiting []*Job) []int {
	s.newRound(s.clock(now))
	s.order = s.order[:0]
	for i := range waiting {
		s.order = append(s.order, i)
	}
	if len(waiting) < 2 {
		return s.order
	}
	key := make([]time.Time, len(waiting))
	turn := make([]int, len(waiting))
	for i, j := range waiting {
		since := j.Since
		if since.IsZero() {
			since = now
		}
		key[i] = since.Add(-min(s.time(j), lead))
	}
	byKey := func(a, b int) int { return cmp.Or(key[a].Compare(key[b]), cmp.Compare(a, b)) }
	slices.SortFunc(s.order, byKey)
	taken := make(map[uint64]int)
	for _, i := range s.order {
		b := waiting[i].Build
		turn[i] = s.builds[b] + taken[b]
		taken[b]++
	}
	slices.SortFunc(s.order, func(a, b int) int { return cmp.Or(cmp.Compare(turn[a], turn[b]), byKey(a, b)) })
	return s.order
}
