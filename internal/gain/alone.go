package gain

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// span is one command of a build: when it began and ended, counted from the begin of the build, and what it would have
// taken here.
type span struct{ began, ended, here time.Duration }

// slack is by how much a command may seem to begin before one ended that it has waited for: the manager takes note of
// an end a moment after the build has gone on.
const slack = 5 * time.Millisecond

// settled returns when s has certainly ended for a command that begins later.
func (s *span) settled() time.Duration { return s.ended - min(slack, (s.ended-s.began)/2) }

// alone estimates how long a build that took wall would have taken on cores processors of this machine, without a farm
// and without a cache of results. It runs the commands once more, in the order in which they began:
//
//   - a command starts when a processor is free and all commands have ended that had ended in the build before it
//     began, and takes span.here;
//   - while none of the build's commands ran, something else did, which takes as long and waits for all that began
//     before.
//
// The former keeps the order of what depends on each other, as a link of objects, and a -j that is smaller than cores.
// Where many commands ran at a time it hardly binds: those that ended before one began are done by then here as well.
func alone(list []span, wall time.Duration, cores int) time.Duration {
	byBegin := slices.Clone(list)
	slices.SortStableFunc(byBegin, func(x, y span) int { return cmp.Compare(x.began, y.began) })
	bySettled := make([]int, len(list))
	for i := range bySettled {
		bySettled[i] = i
	}
	slices.SortStableFunc(bySettled, func(i, j int) int { return cmp.Compare(byBegin[i].settled(), byBegin[j].settled()) })

	free := make(processors, max(cores, 1)) // when each is free
	ends := make([]time.Duration, len(list))
	var reach, last, ready time.Duration // the last end in the build; the last end here; the earliest begin here
	next := 0
	for i, s := range byBegin {
		if s.began > reach {
			ready = max(ready, last+s.began-reach)
		}
		reach = max(reach, s.ended)
		for ; next < len(bySettled) && byBegin[bySettled[next]].settled() <= s.began; next++ {
			ready = max(ready, ends[bySettled[next]])
		}
		ends[i] = max(ready, free[0]) + s.here
		last = max(last, ends[i])
		free[0] = ends[i]
		heap.Fix(&free, 0)
	}
	return last + max(wall-reach, 0)
}

// processors is a heap of when they are free, the earliest first.
type processors []time.Duration

func (p processors) Len() int           { return len(p) }
func (p processors) Less(i, j int) bool { return p[i] < p[j] }
func (p processors) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *processors) Push(x any)        { *p = append(*p, x.(time.Duration)) }
func (p *processors) Pop() any          { panic("gain: a processor was taken away") }
