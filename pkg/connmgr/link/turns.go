package link

import (
	"slices"
	"time"
)

// Messages of a connection do not interleave, so sources are cut into Writes of some milliseconds each, and
// only a few are posted at a time. A short job then waits for these Writes, not for all of a long source: experiment
// E14 (lab/experiments.md) shows what that is worth.
const (
	chunkTime  = 20 * time.Millisecond // how long a Write may take
	chunkMin   = 64 << 10              // bytes; smaller Writes cost more in handling than they save
	chunkMax   = 1 << 20
	chunkFirst = 256 << 10 // while the rate of the network is not known

	// chunksPosted bounds the posted Writes of one flight and, as bytes, of all flights together. Two keep the
	// wire busy while one of them completes.
	chunksPosted = 2

	// unsent is how many bytes may wait in the socket behind that. Half of it covers the time until the next
	// Write is posted.
	unsent = 128 << 10
)

// turns decides which flight's bytes are posted next. It alternates between flights that have had no turn
// yet and the others, each kind in order of arrival. So a short job overtakes long ones, and many short ones
// do not starve a long one.
//
// It is guarded by Link.mu.
type turns struct {
	fresh, going []*Flight
	other        bool      // the last turn was a fresh flight's; a going one is next
	posted       uint64    // bytes of Writes that have not completed
	busy         time.Time // when posted was last 0
	moved        uint64    // bytes completed since
}

// next removes and returns the flight whose turn it is, or nil if none waits.
func (t *turns) next() *Flight {
	q := &t.fresh
	if len(t.fresh) == 0 || t.other && len(t.going) > 0 {
		q = &t.going
	}
	if len(*q) == 0 {
		return nil
	}
	t.other = q == &t.fresh
	f := (*q)[0]
	*q = slices.Delete(*q, 0, 1)
	return f
}

// again queues f, which has bytes to post.
func (t *turns) again(f *Flight) {
	if f.off == 0 {
		t.fresh = append(t.fresh, f)
	} else {
		t.going = append(t.going, f)
	}
}

// drop removes f, wherever it is.
func (t *turns) drop(f *Flight) {
	same := func(g *Flight) bool { return g == f }
	t.fresh, t.going = slices.DeleteFunc(t.fresh, same), slices.DeleteFunc(t.going, same)
}

// backlog returns how many bytes are still to be posted or are under way.
func (t *turns) backlog() uint64 {
	n := t.posted
	for _, q := range [][]*Flight{t.fresh, t.going} {
		for _, f := range q {
			n += f.Length - f.off
		}
	}
	return n
}
