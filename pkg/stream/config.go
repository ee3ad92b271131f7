package stream

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// ErrPeer is wrapped by all errors about a peer that has broken the rules of the algorithm, or of its messages.
var ErrPeer = exs.ErrPeer

// SendMode says what Write does with the caller's memory. ZeroCopy takes less of the sender's processor for long data (E7 of
// lab/experiments.md) on the software device. Buffered is the default all the same: it returns while the data waits, and
// a device that pins what it registers is faster with a copy up to 1 MiB (E3).
type SendMode uint8

const (
	// Buffered copies it to registered memory. Write returns when all of it is copied.
	Buffered SendMode = iota
	// ZeroCopy sends what has at least Config.ZeroCopyMin bytes from where it is. Write returns when it has left.
	ZeroCopy
)

// Config says how one side of a stream works. The zero value works.
type Config struct {
	// Ring is the bytes of the hidden ring that the peer sends into: as much as it sends in a round trip while no Read waits.
	// 0 = 1 MiB: over 10 ms that has more than twice the rate of 256 KiB (E5).
	Ring   int
	Policy exs.Policy // which way the bytes of this side may go. Dynamic is as fast as the better one (E5), and waits for nobody (E6)
	Mode   SendMode
	// ZeroCopyMin is the length from which ZeroCopy does not copy. 0 = 256 KiB: at 64 KiB a copy takes less of the processor (E7).
	ZeroCopyMin int
	// DirectMin is the length from which a Read that waits is offered to the peer. A shorter one waits for data in the ring. It
	// does not hold for a peer whose policy is exs.Direct. 0 = 16 KiB: up to 256 KiB either is as good on the software device (E5b).
	DirectMin int
	// Depth is how many messages of the peer's may wait here. 0 = 32; at least 8.
	Depth int
	// Grace is how long a peer may take to give back the memory of a Read that has timed out, or was closed. The connection
	// ends after that. 0 = 5 s, as SDP waits for the answer to a SrcAvailCancel.
	Grace time.Duration
	// Linger is how long the connection stays after Close to send what was written. 0 = 30 s.
	Linger time.Duration
}

const (
	slotLen = 128 << 10 // of memory that Buffered copies to: half of it takes a sixth more CPU time (E7)
	slots   = 4

	maxRing  = 1 << 30
	maxDepth = 4096
	// reserve is how many receives of the peer's only a message that returns receives may use, so that two sides that have
	// used up all others do not wait for each other.
	reserve = 2
)

func (c Config) withDefaults() (Config, error) {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Ring, 1<<20)
	set(&c.ZeroCopyMin, 256<<10)
	set(&c.DirectMin, 16<<10)
	set(&c.Depth, 32)
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = 30 * time.Second
	}
	switch {
	case c.Ring < 0 || c.Ring > maxRing:
		return c, fmt.Errorf("%w: a ring of %d bytes; at most %d", iwarp.ErrInvalid, c.Ring, maxRing)
	case c.Depth < 8 || c.Depth > maxDepth:
		return c, fmt.Errorf("%w: a depth of %d; from 8 to %d", iwarp.ErrInvalid, c.Depth, maxDepth)
	case c.Policy > exs.Indirect || c.Mode > ZeroCopy:
		return c, fmt.Errorf("%w: policy %d, mode %d", iwarp.ErrInvalid, c.Policy, c.Mode)
	}
	return c, nil
}
