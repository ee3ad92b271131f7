package slots

import (
	"context"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// Hold is a slot or a sink. Several use it, the wrapper's connection and each
// attempt at its job, and it goes back to its pool with the last of them: an
// attempt that lost a race ends when its host has said so, long after the wrapper
// has gone with the winner's result.
type Hold struct {
	*shm.Buffer
	x       *Memory
	users   atomic.Int32
	spoiled atomic.Bool
	large   atomic.Int64 // bytes of x.large that are counted for it
}

// hold puts b in the hands of one user.
func (x *Memory) hold(b *shm.Buffer) *Hold {
	h := &Hold{Buffer: b, x: x}
	h.users.Store(1)
	return h
}

// Share adds a user.
func (h *Hold) Share() *Hold {
	h.users.Add(1)
	return h
}

// Spoil says that somebody else may still write to the memory: it is used for nothing any more.
func (h *Hold) Spoil() { h.spoiled.Store(true) }

// TryCount counts n bytes as large ones until the last Drop, if there is room for them now.
func (h *Hold) TryCount(n int64) bool {
	if !h.x.large.TryAcquire(n) {
		return false
	}
	h.count(n)
	return true
}

// Count waits for that room; an error is ctx's end, and nothing is counted then.
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

// Drop ends one user's part.
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
