package machine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turns lets a limited number of local processes run at a time, in order of
// arrival. The limit comes with each request, as each command's host list may
// name its own (--localslots, --localslots_cpp). Where the machine's memory is
// short, one runs at a time.
type Turns struct {
	Room func() bool // whether there is memory for one more; set once, nil = always; asked with the lock held

	mu      sync.Mutex
	held    int
	waiters []*waiter
	again   *time.Timer // looks for memory while a waiter waits for it
}

// askAgain is when it looks for memory again.
const askAgain = 200 * time.Millisecond

type waiter struct {
	limit int
	turn  chan struct{} // closed when the turn is the waiter's
}

// Try takes a turn if there is one at once.
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

// opensLocked says whether one more may begin. The only one always may: nothing of
// ours would come to an end and give memory back.
func (g *Turns) opensLocked(limit int) bool {
	return g.held < limit && (g.held == 0 || g.Room == nil || g.Room())
}

// Acquire waits for a turn; only ctx's end makes it fail.
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
	} else { // the turn came at the same moment
		g.held--
	}
	g.wakeLocked() // w may have stood before one with a higher limit
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
	if g.again == nil { // it is memory that is waited for
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

// Load is how many hold a turn and how many wait.
func (g *Turns) Load() (held, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, len(g.waiters)
}
