package results

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// coldTime is how long after a command the connections to a store may be gone, as servers end idle ones.
const coldTime = 20 * time.Second

// Comes says that a command has come which may look for its result: meanwhile stores that are far away are connected.
func (c *Cache) Comes() {
	for _, t := range c.tiers {
		if t.ahead != nil {
			t.ahead.comes()
		}
	}
}

func (a *ahead) comes() {
	store, can := a.t.Store.(resultcache.Warmer)
	if !can {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	cold := now.Sub(a.warm) > coldTime
	if a.warm = now; !cold || a.closed || a.t.paused(now) {
		return
	}
	a.c.writing.Go(func() {
		ctx, cancel := a.t.within(a.c.ctx, aheadPatience)
		defer cancel()
		store.Warm(ctx)
	})
}
