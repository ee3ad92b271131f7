package connmgr

import (
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// hold is the memory of a slot. Several use it, the wrapper's connection and each
// attempt at its job, and it goes back to its pool with the last of them: an
// attempt that lost a race ends when its host has said so, long after the wrapper
// has gone with the winner's result.
type hold struct {
	*shm.Buffer
	m       *Manager
	users   atomic.Int32
	spoiled atomic.Bool  // somebody else may still write to it: nobody gets it again
	large   atomic.Int64 // bytes of memory.large that are counted for it
}

// newHold is b in the hands of one user.
func newHold(m *Manager, b *shm.Buffer) *hold {
	h := &hold{Buffer: b, m: m}
	h.users.Store(1)
	return h
}

// share adds a user.
func (h *hold) share() *hold {
	h.users.Add(1)
	return h
}

// count notes bytes that were taken of memory.large, until the last drop.
func (h *hold) count(n int64) {
	h.large.Add(n)
	h.m.memory.largeUsed.Add(n)
}

// drop ends one user's part.
func (h *hold) drop() {
	if h.users.Add(-1) > 0 {
		return
	}
	if n := h.large.Load(); n > 0 {
		h.m.memory.largeUsed.Add(-n)
		h.m.memory.large.Release(n)
	}
	if h.spoiled.Load() {
		h.Discard()
	} else {
		h.Put()
	}
}
