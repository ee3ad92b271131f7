package iwarp

import (
	"math"
	"sync"
	"sync/atomic"
)

// gate counts the users of a region and lets its owner wait for the last one. Entering and
// leaving are one atomic operation each, as every segment does both.
type gate struct {
	n    atomic.Int64 // users; shutGate more once shut
	mu   sync.Mutex   // guards what follows
	idle chan struct{}
}

// shutGate makes the count of a shut gate negative, however many users are inside.
const shutGate = math.MinInt64

// enter returns false once the gate is shut; otherwise the caller must call leave.
func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) != shutGate {
		return
	}
	g.mu.Lock() // the last one: a waiter has made idle by now, or sees the count
	if g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	g.mu.Unlock()
}

func (g *gate) isShut() bool { return g.n.Load() < 0 }

// shut refuses further entries. It does not wait for those inside.
func (g *gate) shut() {
	g.mu.Lock()
	g.shutLocked()
	g.mu.Unlock()
}

func (g *gate) shutLocked() {
	if !g.isShut() {
		g.n.Add(shutGate)
	}
}

// close shuts the gate and waits until no user is inside.
func (g *gate) close() {
	g.mu.Lock()
	idle := g.closeLocked()
	g.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// closeLocked shuts the gate. Once idle, if it is not nil, is closed, no user is inside.
func (g *gate) closeLocked() (idle <-chan struct{}) {
	g.shutLocked()
	if g.n.Load() == shutGate {
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	return g.idle
}
