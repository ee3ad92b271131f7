package report

import (
	"maps"
	"time"
)

// CacheCounts counts what the cache of results has done since the manager started.
type CacheCounts struct {
	Asked uint64            `json:"asked"`          // commands for which the cache was asked
	Hits  map[string]uint64 `json:"hits,omitempty"` // those that it had, by tier
	// Second is how many of Hits were found by the second step: what differs had not been read.
	Second uint64           `json:"second,omitempty"`
	Bytes  map[string]int64 `json:"bytes,omitempty"` // of results in tiers of this machine, estimated
	// SavedCPUUS and SavedWallUS are what the compiles of the hits took when they were made, in microseconds.
	SavedCPUUS  uint64 `json:"saved_cpu_us"`
	SavedWallUS uint64 `json:"saved_wall_us"`
	// Tiers is what has become of the looks into each tier, in the order in which they are asked. A command may take several
	// looks, and what other programs keep in the cache counts too.
	Tiers []TierCounts `json:"tiers,omitempty"`
	// Unsigned are the tiers that others use, and whose results need no signature: whoever can write there can make wrong hits.
	Unsigned []string `json:"unsigned,omitempty"`
}

// TierCounts counts the looks into a tier of the cache, and what was written there.
type TierCounts struct {
	Name   string `json:"name"`
	Looks  uint64 `json:"looks"`
	Hits   uint64 `json:"hits"`
	Errors uint64 `json:"errors"`
	// Untrusted is how many looks had a result that was not taken, as nobody has signed it whose signature counts.
	Untrusted uint64 `json:"untrusted,omitempty"`
	Kept      uint64 `json:"kept"`    // results that were written
	Read      uint64 `json:"read"`    // bytes of results, as they are kept
	Written   uint64 `json:"written"` // likewise
	TimeUS    uint64 `json:"time_us"` // of all looks, in microseconds
	// Ahead is how many results were fetched before they were asked for, and AheadHits how many of Hits came so.
	Ahead     uint64 `json:"ahead,omitempty"`
	AheadHits uint64 `json:"ahead_hits,omitempty"`
	SavedUS   uint64 `json:"saved_us"` // CPU time that the compiles of its hits took when they were made, in microseconds
}

// add counts a command that has ended.
func (c *CacheCounts) add(r *JobRecord) {
	if r.Asked {
		c.Asked++
	}
	if r.Place() != PlaceCached {
		return
	}
	if c.Hits == nil {
		c.Hits = make(map[string]uint64)
	}
	c.Hits[r.Cached]++
	if r.Second {
		c.Second++
	}
	c.SavedCPUUS += uint64(r.CPUUS)
	c.SavedWallUS += uint64(r.CompileUS)
}

// AllHits returns the number of hits in all tiers.
func (c *CacheCounts) AllHits() (n uint64) {
	for _, k := range c.Hits {
		n += k
	}
	return n
}

// Rate returns the part of the commands for which the cache was asked that it had, from 0 to 1.
func (c *CacheCounts) Rate() float64 {
	if c.Asked == 0 {
		return 0
	}
	return float64(c.AllHits()) / float64(c.Asked)
}

// SavedCPU returns the CPU time that hosts did not spend because of hits.
func (c *CacheCounts) SavedCPU() time.Duration { return time.Duration(c.SavedCPUUS) * time.Microsecond }

// Cache returns what the cache of results has done.
func (b *Book) Cache() CacheCounts {
	c := b.sums.cache
	c.Hits = maps.Clone(c.Hits)
	return c
}
