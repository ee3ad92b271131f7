package lend

import "time"

const (
	// lapses is how many lapses a tenant may have without a pause: jobs that are refused for what they are,
	// or credits that are returned unused.
	lapses = 2000
	// lapseRate is how many more it may have per second.
	lapseRate = 1000
)

// patience is how many more lapses of a tenant the host tolerates.
type patience struct {
	left float64   // lapses
	at   time.Time // when left was last updated; zero: never
}

// Lapsed counts something that cost this host work but did not produce an object. A tenant that has used up
// the host's patience gets no credit until some has come back. So a loop of refused jobs takes only a small
// part of a core.
func (t *Tenant) Lapsed(now time.Time) { t.patience.lapsed(now) }

// lapsed counts a lapse.
func (p *patience) lapsed(now time.Time) {
	if p.at.IsZero() {
		p.at = now
	}
	p.left = min(lapses, p.left+lapseRate*now.Sub(p.at).Seconds()) - 1
	p.at = now
}

// tried reports whether patience has run out, so that the tenant gets no credit for now.
func (p *patience) tried(now time.Time) bool {
	return p.left <= 0 && p.left+lapseRate*now.Sub(p.at).Seconds() <= 0
}
