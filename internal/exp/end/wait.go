package end

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Waiting is how a completion is waited for: by spinning, for so long, and then by blocking.
//
// It polls from outside of the queue. A CQ that waits by a policy of its own takes the place of Next.
type Waiting struct {
	Spin time.Duration // negative: until there is one
}

// Ways of waiting.
var (
	Event = Waiting{}
	Poll  = Waiting{Spin: -1}
)

// ParseWaiting returns the way of that name: "event", "poll", or "spin-50us".
func ParseWaiting(s string) (Waiting, error) {
	switch s {
	case "event":
		return Event, nil
	case "poll":
		return Poll, nil
	}
	n, spin := strings.CutPrefix(s, "spin-")
	n, us := strings.CutSuffix(n, "us")
	if v, err := strconv.Atoi(n); spin && us && err == nil && v > 0 {
		return Waiting{time.Duration(v) * time.Microsecond}, nil
	}
	return Event, fmt.Errorf("no way of waiting %q: event, poll or spin-Nus", s)
}

// spins is how often the queue is polled before the clock is read, and other goroutines of this processor get a turn.
const spins = 64

// Next moves at least one completion into wcs.
func (w Waiting) Next(ctx context.Context, cq iwarp.CQ, wcs []iwarp.WC) (int, error) {
	n := cq.Poll(wcs)
	if n > 0 {
		return n, nil
	}
	if w.Spin != 0 {
		for start := time.Now(); w.Spin < 0 || time.Since(start) < w.Spin; runtime.Gosched() {
			for range spins {
				if n := cq.Poll(wcs); n > 0 {
					return n, nil
				}
			}
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
	}
	for {
		if n := cq.Poll(wcs); n > 0 {
			return n, nil
		}
		if err := cq.Wait(ctx); err != nil {
			return 0, err
		}
	}
}
