package lend

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// How credits are shared: each connection may hold one, so that its first job never waits for other
// connections. The spare credits, one for each core and some for jobs on their way to the cores, are divided
// evenly among the tenants that can use them, and each tenant's among its clients by weight (spread). Credits
// that are left over are held by the clients that are building, where the next job finds them without a round
// trip. When another client needs them, those above their share are asked to return what they do not use.
//
// Among the connections of one client, a credit goes to the one that holds fewest. A connection without any
// gets one from the one that has most.
//
// The sum of the shares never exceeds the number of credits. So when every client is down to its share, each
// can have all of it. And since a job spends a credit, the queue is never longer than the number of credits.

// A client that neither uses nor returns the credits that it was asked for would leave the others with the
// one credit that each connection may hold. So what it has kept beyond its share for hoardTime no longer
// counts: the others get theirs as if it had been returned. The host has slots for as many such credits as
// there are spare ones (Most).

// hoardTime is how long a client may hold an unspent credit after it was asked for it, before the credit no
// longer counts. A manager returns credits that it cannot use at once, and uses the others as soon as their
// sources are ready.
const hoardTime = time.Second

// Most returns the largest number of spare credits on a host with that many cores.
func Most(cores int) int { return cores + maxDepth(cores) }

// spare returns the number of credits beyond the one that every connection may hold: one for each core that
// there is memory for, and those for jobs on their way.
func (l *Ledger) spare() int {
	cores, depth := l.o.Cores, l.depth.spare
	if m := &l.memory; m.free > 0 && m.meanRSS > 0 {
		cores = min(cores, len(l.running)+int(float64(m.free)/m.meanRSS))
	}
	if Tight(l.memory.pressure) {
		depth = 0 // waiting jobs take memory too
	}
	return max(1, cores) + depth
}

// Free returns how many credits can be granted now.
func (l *Ledger) Free(now time.Time) int {
	if l.closed != nil {
		return 0
	}
	free, _ := l.free(l.spare(), now)
	return free
}

// free returns how many of the spare credits can be granted. It includes hoarded, which are held by clients
// that should have returned them.
func (l *Ledger) free(spare int, now time.Time) (free, hoarded int) {
	free = spare
	for _, cl := range l.clients {
		free += len(cl.conns) - cl.held()
		hoarded += cl.hoarded(now)
	}
	hoarded = min(hoarded, Most(l.o.Cores))
	return free + hoarded, hoarded
}

// divide sets the share of each client, and returns the number of spare credits.
func (l *Ledger) divide(now time.Time) (spare int) {
	spare = l.spare()
	anyActive := false
	for _, cl := range l.clients {
		cl.share = len(cl.conns)
		anyActive = anyActive || cl.active(now)
	}
	left := l.spread(spare, func(cl *Client) int {
		need := cl.demand - len(cl.conns) // beyond the one per connection
		if cl.demand < 0 && cl.active(now) {
			need = Unlimited
		}
		return max(0, min(need, cl.most()-len(cl.conns)))
	})
	l.spread(left, func(cl *Client) int {
		if anyActive && !cl.active(now) {
			return 0
		}
		return max(0, cl.most()-cl.share)
	})
	return spare
}

// spread divides total credits evenly among the tenants, but gives none more than its clients need. It
// divides each tenant's credits among its clients by part, adds them to their shares, and returns the number
// that is left.
func (l *Ledger) spread(total int, need func(cl *Client) int) (left int) {
	l.claims = l.claims[:0]
	for _, t := range l.tenants {
		sum, has := 0, 0
		for _, cl := range t.clients {
			has += cl.share
			sum = min(sum+need(cl), Unlimited)
		}
		l.claims = append(l.claims, shares.Claim{Weight: 1, Need: max(0, min(sum, t.most(&l.o)-has))})
	}
	left = total
	for i, n := range shares.Divide(total, l.claims) {
		if n == 0 {
			continue
		}
		t := l.tenants[i]
		claims := make([]shares.Claim, len(t.clients))
		for i, cl := range t.clients {
			claims[i] = shares.Claim{Weight: cl.part(), Need: need(cl)}
		}
		for i, n := range shares.Divide(n, claims) {
			t.clients[i].share += n
			left -= n
		}
	}
	return left
}
