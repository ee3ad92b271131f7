package slots

import (
	"context"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// Hold is a slot or a sink with several users: the wrapper's connection and each attempt at its job. It goes
// back to its pool when the last user drops it. An attempt that has lost a race ends only when its host says
// so, which may be long after the wrapper has taken the winner's result.
type Hold struct {
	*shm.Buffer
	x       *Memory
	users   atomic.Int32
	spoiled atomic.Bool
	large   atomic.Int64 // bytes counted for it in x.large
}

// hold returns b as a Hold with one user.
func (x *Memory) hold(b *shm.Buffer) *Hold {
	h := &Hold{Buffer: b, x: x}
	h.users.Store(1)
	return h
}

// Share adds a user, which must call Drop, and returns h.
func (h *Hold) Share() *Hold {
	h.users.Add(1)
	return h
}

// Spoil records that the memory may still be written to from outside. It is discarded instead of used again.
func (h *Hold) Spoil() { h.spoiled.Store(true) }

// TryCount counts n bytes as large until the last Drop, if there is room for them now. It reports whether it
// did.
func (h *Hold) TryCount(n int64) bool {
	if !h.x.large.TryAcquire(n) {
		return false
	}
	h.count(n)
	return true
}

// Count is like TryCount but waits for room. It returns an error, and counts nothing, if ctx ends first.
func (h *Hold) Count(ctx context.Context, n int64) error {
	if err := h.x.large.Acquire(ctx, n); err != nil {
		return err
	}
	h.count(n)
	return nil
}

func (h *Hold) count(n int64) {
	h.large.Add(n)
	h.x.largeUsed.Add(n)
}

// Drop removes one user. The last one returns the memory to its pool, or discards it if it is spoiled.
func (h *Hold) Drop() {
	if h.users.Add(-1) > 0 {
		return
	}
	if n := h.large.Load(); n > 0 {
		h.x.largeUsed.Add(-n)
		h.x.large.Release(n)
	}
	if h.spoiled.Load() {
		h.Discard()
	} else {
		h.Put()
	}
}
