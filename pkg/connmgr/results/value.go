package results

import (
	"context"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// KeepValue keeps a value of another program in all tiers but those that are lent, and waits until the first one of this
// machine has it: that program may ask for it at once. It returns whether any tier keeps it.
func (c *Cache) KeepValue(ctx context.Context, key resultcache.Key, entry []byte) (kept bool) {
	var here <-chan struct{}
	for _, t := range c.tiers {
		if t.Lent {
			continue
		}
		done := c.put(t, key, entry, own)
		if done == nil {
			continue
		}
		if kept = true; here == nil && !t.Shared {
			here = done
		}
	}
	if here != nil {
		select {
		case <-here:
		case <-ctx.Done():
		}
	}
	return kept
}

// DropValue removes a value from all tiers but those that are lent, in the background.
func (c *Cache) DropValue(key resultcache.Key) {
	for _, t := range c.tiers {
		if !t.Lent && t.Store != nil {
			c.drop(t, key)
		}
	}
}
