package lend

import "time"

const (
	// lapses are what a tenant may do in vain without a pause: jobs that are refused for
	// what they are, credits returned.
	lapses = 2000
	// lapseRate is how many more it may in a second.
	lapseRate = 1000
)

// patience is what a host has with a tenant.
type patience struct {
	left float64   // free lapses
	at   time.Time // when that was counted last; zero: never
}

// Lapsed counts something that cost work here and gave nobody an object. A tenant that has used
// up the host's patience gets no credit until the next tick: a loop of refused jobs is
// then a small part of one core's work.
func (t *Tenant) Lapsed(now time.Time) { t.patience.lapsed(now) }

func (p *patience) lapsed(now time.Time) {
	if p.at.IsZero() {
		p.at = now
	}
	p.left = min(lapses, p.left+lapseRate*now.Sub(p.at).Seconds()) - 1
	p.at = now
}

// tried reports whether the tenant is to wait before it gets a credit.
func (p *patience) tried(now time.Time) bool {
	return p.left <= 0 && p.left+lapseRate*now.Sub(p.at).Seconds() <= 0
}
