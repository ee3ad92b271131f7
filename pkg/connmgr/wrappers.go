package connmgr

import (
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// wrappers are those that are served.
type wrappers struct {
	places *semaphore.Weighted // for them; set once

	mu      sync.Mutex
	open    map[*client]struct{}
	lastUse time.Time // a compile came or went
}

func (w *wrappers) add(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = struct{}{}
}

func (w *wrappers) remove(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	if c.counts {
		w.lastUse = time.Now()
	}
}

// hangUp closes the connections of all.
func (w *wrappers) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.conn.Close() // closing twice is all that can go wrong
	}
}

// idleFor returns how long no command has been under way.
func (w *wrappers) idleFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		if c.counts {
			return 0
		}
	}
	return time.Since(w.lastUse)
}
