package results

import (
	"context"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// distrust remembers hosts that were found to compile wrongly, and when.
type distrust struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// distrusts reports whether a result is one that its host made before it was found to compile wrongly.
func (d *distrust) distrusts(o *resultcache.Origin) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := d.since[o.Host]
	return known && !o.Made.After(at)
}

// Distrust makes the results that a host has made until now be neither used nor kept: it compiles wrongly. Those
// in the directory of this machine are removed in the background; from other tiers each is removed when it is met.
func (c *Cache) Distrust(host string) {
	c.distrust.mu.Lock()
	if c.since == nil {
		c.since = make(map[string]time.Time)
	}
	c.since[host] = time.Now()
	c.distrust.mu.Unlock()
	for _, t := range c.tiers {
		s, ok := t.Store.(interface {
			DropWhere(context.Context, func(*resultcache.Origin) bool) (int, error)
		})
		if !ok || !t.Write {
			continue
		}
		c.writing.Go(func() {
			n, err := s.DropWhere(c.ctx, c.distrusts)
			if err != nil && c.ctx.Err() == nil {
				c.trouble(t, "results of a host that compiles wrongly are not removed", err)
				return
			}
			c.log.Warn("the results of a host that compiles wrongly are removed", "host", host, "tier", t.Name, "results", n)
		})
	}
}
