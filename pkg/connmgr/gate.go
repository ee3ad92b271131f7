package connmgr

import (
	"context"
	"slices"
	"sync"
	"time"
)

// gate lets a limited number of local processes run at a time, in order of
// arrival. The limit comes with each request, as each command's host list may
// name its own (--localslots, --localslots_cpp). Where the machine's memory is
// short, one runs at a time.
type gate struct {
	room func() bool // whether there is memory for one more; set once, nil = always

	mu      sync.Mutex
	held    int
	waiters []*gateWaiter
	again   *time.Timer // looks for memory while someone waits for it
}

// askAgain is when a gate looks for memory again.
const askAgain = 200 * time.Millisecond

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
	if len(g.waiters) > 0 || !g.opensLocked(limit) {
		return false
	}
	g.held++
	return true
}

// opensLocked says whether one more may begin. The only one always may: nothing of
// ours would come to an end and give memory back.
func (g *gate) opensLocked(limit int) bool {
	return g.held < limit && (g.held == 0 || g.room == nil || g.room())
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

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held--
	g.wakeLocked()
}

func (g *gate) wakeLocked() {
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

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakeLocked()
}

// load is how many hold a turn and how many wait.
func (g *gate) load() (held, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, len(g.waiters)
}
