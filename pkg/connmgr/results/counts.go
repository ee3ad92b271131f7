package results

import (
	"errors"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Counts are what has become of the looks into a tier, and of what was to be kept there, since the Cache was made.
type Counts struct {
	Tier                string
	Looks, Hits, Errors uint64 // looks with an error; all others have missed
	Untrusted           uint64 // looks with a result that was not taken, as nobody has signed it whose signature counts
	Kept                uint64 // results that were written
	Read, Written       uint64 // bytes of results, as they are kept
	Time                time.Duration
	SavedCPU            time.Duration // what the compiles of its hits took when they were made
	Ahead, AheadHits    uint64        // results that were fetched before they were asked for, and those of Hits that came so
}

// counts are the Counts of a tier.
type counts struct {
	lock sync.Mutex
	sums Counts
}

// looked counts a look that took d and has returned e, of n bytes as it is kept, or err.
func (c *counts) looked(d time.Duration, e *resultcache.Entry, n int, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.sums.Looks++
	c.sums.Time += d
	switch {
	case err == nil:
		c.hitLocked(e)
		c.sums.Read += uint64(n)
	case errors.Is(err, errUntrusted):
		c.sums.Untrusted++
	case !errors.Is(err, resultcache.ErrMiss) && !errors.Is(err, resultcache.ErrVersion):
		c.sums.Errors++
	}
}

// second counts that a look which had missed has led to e in its second step.
func (c *counts) second(e *resultcache.Entry) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.hitLocked(e)
}

func (c *counts) hitLocked(e *resultcache.Entry) {
	c.sums.Hits++
	c.sums.SavedCPU += e.CPU
}

// fetched counts n results that were fetched before they were asked for.
func (c *counts) fetched(n int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.sums.Ahead += uint64(n)
}

// cameAhead counts that a look has found one of them.
func (c *counts) cameAhead() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.sums.AheadHits++
}

// wrote counts a result of n bytes that was written.
func (c *counts) wrote(n int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.sums.Kept++
	c.sums.Written += uint64(n)
}

// Counts returns those of all tiers, in the order in which they are asked.
func (c *Cache) Counts() (all []Counts) {
	for _, t := range c.tiers {
		t.lock.Lock()
		sums := t.sums
		t.lock.Unlock()
		sums.Tier = t.Name
		all = append(all, sums)
	}
	return all
}
