package link

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// chunk returns how many bytes the next Write may have.
func (l *Link) chunk() uint64 {
	if l.path.rate == 0 || l.path.floor && l.path.rate*chunkTime.Seconds() < chunkFirst {
		return chunkFirst
	}
	return uint64(min(max(l.path.rate*chunkTime.Seconds(), chunkMin), chunkMax))
}

// How jobs travel is chosen by what experiments E1, E2b and E13 (lab/experiments.md) say of the ways.

// postLocked posts what may be posted now: Writes by turns, and behind the last Write of a flight its Job, or
// only a Job if that carries the source.
// An error ends the link, which ends all flights.
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
		if f.Eager {
			l.jobLocked(f)
			continue
		}
		if !l.writeLocked(f, min(f.Length-f.off, chunk)) {
			return
		}
		switch {
		case f.off == f.Length:
			l.jobLocked(f)
		case f.leg.Writes() < chunksPosted: // otherwise a completion queues it again
			l.turns.again(f)
		}
	}
}

// writeLocked posts one Write of f's next n bytes. It reports whether that worked; otherwise the link ends.
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
	l.wroteOutLocked(f, n)
	return true
}

// wroteOutLocked counts f's next n bytes as posted in one request.
func (l *Link) wroteOutLocked(f *Flight, n uint64) {
	if l.turns.posted == 0 {
		l.turns.busy, l.turns.moved = time.Now(), 0
	}
	l.turns.posted += n
	f.sizes[f.leg.Writes()] = n
	f.off += n
	f.leg.Write()
}

// wroteLocked handles the completion of f's oldest Write. It returns how many bytes to report by Owner.Moved:
// the whole source with its last Write, otherwise 0.
func (l *Link) wroteLocked(f *Flight, ok bool) (moved uint64) {
	n := f.sizes[0]
	copy(f.sizes[:], f.sizes[1:])
	then := f.leg.Written()
	l.turns.posted -= n
	if !ok {
		return 0 // the QP ends, and f with it
	}
	if l.turns.moved += n; l.turns.posted == 0 {
		l.path.wrote(l.turns.moved, time.Since(l.turns.busy))
	}
	if f.leg.Writes() == 0 && f.off == f.Length {
		f.Wrote = time.Now()
		moved = f.Length
	}
	if f.cancelled.IsZero() && f.off < f.Length && f.leg.Writes() == chunksPosted-1 {
		l.turns.again(f)
	}
	l.goOnLocked(f, then)
	l.postLocked()
	return moved
}
