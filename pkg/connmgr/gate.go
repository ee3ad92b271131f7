package connmgr

import (
	"context"
	"slices"
	"sync"
)

// gate lets a limited number of local processes run at a time, in order of
// arrival. The limit comes with each request, as each command's host list may
// name its own (--localslots, --localslots_cpp).
type gate struct {
	mu      sync.Mutex
	held    int
	waiters []*gateWaiter
}

type gateWaiter struct {
	limit int
	turn  chan struct{} // closed when the turn is the waiter's
}

// try takes a turn if there is one at once.
func (g *gate) try(limit int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tryLocked(limit)
}

func (g *gate) tryLocked(limit int) bool {
	if len(g.waiters) > 0 || g.held >= limit {
		return false
	}
	g.held++
	return true
}

// acquire waits for a turn; only ctx's end makes it fail.
func (g *gate) acquire(ctx context.Context, limit int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	if g.tryLocked(limit) {
		g.mu.Unlock()
		return nil
	}
	w := &gateWaiter{limit: limit, turn: make(chan struct{})}
	g.waiters = append(g.waiters, w)
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

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held--
	g.wakeLocked()
}

func (g *gate) wakeLocked() {
	for len(g.waiters) > 0 && g.held < g.waiters[0].limit {
		close(g.waiters[0].turn)
		g.waiters = slices.Delete(g.waiters, 0, 1)
		g.held++
	}
}

// load is how many hold a turn and how many wait.
func (g *gate) load() (held, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, len(g.waiters)
}
