package link

import (
	"slices"
	"time"
)

// Messages of a connection do not interleave, so sources are cut into Writes of
// some milliseconds each, of which few are posted: a short job then waits for
// these, not for all of a long one that came before it.
const (
	chunkTime  = 20 * time.Millisecond // what a Write may take
	chunkMin   = 64 << 10              // bytes: less costs more in handling than it saves
	chunkMax   = 1 << 20
	chunkFirst = 256 << 10 // while nothing is known of the network

	// chunksPosted keep the wire busy while one of them completes: of one flight, and,
	// as bytes, of all together.
	chunksPosted = 2

	// unsent is what may wait in the socket behind that, in bytes: half of it covers
	// the time until the next is written.
	unsent = 128 << 10
)

// turns says which flight's bytes are posted next: those that had no turn yet and
// the others, each in their order, by turns. So a short job overtakes long ones, and
// many short ones do not starve a long one.
//
// It is guarded by Link.mu.
type turns struct {
	fresh, going []*Flight
	other        bool      // the last one was fresh: it is the others' turn
	posted       uint64    // bytes of Writes that are not completed
	busy         time.Time // when posted was 0 last
	moved        uint64    // bytes completed since
}

// next takes out the flight whose turn it is, or nil.
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

// again puts f back: it has more to post.
func (t *turns) again(f *Flight) {
	if f.off == 0 {
		t.fresh = append(t.fresh, f)
	} else {
		t.going = append(t.going, f)
	}
}

// drop takes f out, wherever it is.
func (t *turns) drop(f *Flight) {
	same := func(g *Flight) bool { return g == f }
	t.fresh, t.going = slices.DeleteFunc(t.fresh, same), slices.DeleteFunc(t.going, same)
}

// backlog is how many bytes are to be posted or under way.
func (t *turns) backlog() uint64 {
	n := t.posted
	for _, q := range [][]*Flight{t.fresh, t.going} {
		for _, f := range q {
			n += f.Length - f.off
		}
	}
	return n
}
