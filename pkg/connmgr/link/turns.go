package link

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
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

// chunk is how many bytes a Write may have now.
func (l *Link) chunk() uint64 {
	if l.path.rate == 0 || l.path.floor && l.path.rate*chunkTime.Seconds() < chunkFirst {
		return chunkFirst
	}
	return uint64(min(max(l.path.rate*chunkTime.Seconds(), chunkMin), chunkMax))
}

// postLocked posts what may be posted now: Writes by turns, and behind the last one
// of a flight its Job. An error ends the link, which ends all flights.
func (l *Link) postLocked() {
	for l.cause == nil {
		chunk := l.chunk()
		if l.turns.posted >= chunksPosted*chunk {
			return
		}
		f := l.turns.next()
		if f == nil {
			return
		}
		if !l.writeLocked(f, min(f.Length-f.off, chunk)) {
			return
		}
		switch {
		case f.off == f.Length:
			l.jobLocked(f)
		case f.writes < chunksPosted: // or a completion puts it back
			l.turns.again(f)
		}
	}
}

// writeLocked posts one Write of f; false says that the link ends.
func (l *Link) writeLocked(f *Flight, n uint64) bool {
	var more iwarp.SendFlags
	if f.off+n == f.Length {
		more = iwarp.More // the Job follows
	}
	err := l.qp.PostSend(&iwarp.SendWR{
		ID:    wrWrite | f.ID,
		Op:    iwarp.OpWrite,
		Flags: more,
		SGL:   []iwarp.SGE{{Addr: f.Source.Base() + f.off, Length: uint32(n), LKey: f.Source.STag()}},
		STag:  iwarp.STag(f.Credit.Slot.STag),
		TO:    f.Credit.Slot.TO + f.off,
	})
	if err != nil {
		l.failLocked(fmt.Errorf("post a source: %w", err))
		return false
	}
	if l.turns.posted == 0 {
		l.turns.busy, l.turns.moved = time.Now(), 0
	}
	l.turns.posted += n
	f.sizes[f.writes] = n
	f.off += n
	f.writes++
	return true
}

// wroteLocked counts one completed Write, the oldest of f's, and returns how many bytes
// have moved with it that the owner has not been told of.
func (l *Link) wroteLocked(f *Flight, ok bool) (moved uint64) {
	n := f.sizes[0]
	copy(f.sizes[:], f.sizes[1:])
	f.writes--
	l.turns.posted -= n
	if !ok {
		return 0 // the QP ends, and f with it
	}
	if l.turns.moved += n; l.turns.posted == 0 {
		l.path.wrote(l.turns.moved, time.Since(l.turns.busy))
	}
	if f.writes == 0 && f.off == f.Length {
		f.Wrote = time.Now()
		moved = f.Length
	}
	switch {
	case !f.cancelled.IsZero() && !f.sent:
		l.unspentLocked(f)
	case f.off < f.Length && f.writes == chunksPosted-1:
		l.turns.again(f)
	}
	l.postLocked()
	l.landLocked(f)
	return moved
}
