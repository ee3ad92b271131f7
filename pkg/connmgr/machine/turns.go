package machine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turns lets a limited number of local processes run at a time, in order of arrival. The limit comes with
// each request, because each command's host list may set its own (--localslots, --localslots_cpp). If the
// machine is short of memory, one process runs at a time.
type Turns struct {
	Room func() bool // whether there is memory for one more; nil = always; set once; called under the lock

	mu      sync.Mutex
	held    int
	waiters []*waiter
	again   *time.Timer // checks for memory while a waiter needs some
}

// askAgain is the time until Turns checks for memory again.
const askAgain = 200 * time.Millisecond

type waiter struct {
	limit int
	turn  chan struct{} // closed when the waiter has its turn
}

// Try takes a turn if one is free at once, and reports whether it did.
func (g *Turns) Try(limit int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tryLocked(limit)
}

func (g *Turns) tryLocked(limit int) bool {
	if len(g.waiters) > 0 || !g.opensLocked(limit) {
		return false
	}
	g.held++
	return true
}

// opensLocked reports whether one more process may begin. If none runs, one may in any case: no end of another
// would free memory.
func (g *Turns) opensLocked(limit int) bool {
	return g.held < limit && (g.held == 0 || g.Room == nil || g.Room())
}

// Acquire waits for a turn. It returns an error only if ctx ends first.
func (g *Turns) Acquire(ctx context.Context, limit int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	if g.tryLocked(limit) {
		g.mu.Unlock()
		return nil
	}
	w := &waiter{limit: limit, turn: make(chan struct{})}
	g.waiters = append(g.waiters, w)
	g.wakeLocked()
	g.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiters, w); i >= 0 {
		g.waiters = slices.Delete(g.waiters, i, i+1)
	} else { // the turn was granted as ctx ended
		g.held--
	}
	g.wakeLocked() // w may have been ahead of a waiter with a higher limit
	return ctx.Err()
}

// Release ends a turn.
func (g *Turns) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held--
	g.wakeLocked()
}

func (g *Turns) wakeLocked() {
	for len(g.waiters) > 0 && g.opensLocked(g.waiters[0].limit) {
		close(g.waiters[0].turn)
		g.waiters = slices.Delete(g.waiters, 0, 1)
		g.held++
	}
	if len(g.waiters) == 0 || g.held >= g.waiters[0].limit {
		return
	}
	if g.again == nil { // the first waiter needs memory
		g.again = time.AfterFunc(askAgain, g.wake)
	} else {
		g.again.Reset(askAgain)
	}
}

func (g *Turns) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakeLocked()
}

// Load returns how many turns are held and how many callers wait for one.
func (g *Turns) Load() (held, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, len(g.waiters)
}
