package lend

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// Shares: each connection may hold one credit, so that a first job never waits for
// others. The spare ones, for the cores and for jobs on their way to them, are
// divided among the tenants that have use for them, evenly, and of each tenant's among
// its clients by weight (spread). What is left then
// lies with the clients that build, where a next job finds it without a round trip,
// until another one asks: those above their share are asked to return what they do
// not use.
//
// Among connections of one client credits go to the one that has fewest; one that has
// none gets one from the one that has most.
//
// The sum of the shares never exceeds the number of credits, so when every client is down
// to its share each can have its own; and as a job spends a credit, the queue is never
// longer than they are many.

// A client that keeps what it is asked to return, and does not use it, would leave the others
// with the one credit that each connection may hold. What it has kept beyond its share for
// hoardTime does not count any more: others are given theirs as if it had come back.
// The host has slots for as many such as there are spare credits (Most).

// hoardTime is how long a client may hold an unspent credit that it was asked for before it
// does not count. A manager returns what it has no use for at once, and uses the others as
// soon as their sources are ready.
const hoardTime = time.Second

// Most returns the largest number of spare credits that there can be on a host of so many
// cores.
func Most(cores int) int { return cores + maxDepth(cores) }

// spare returns the number of credits beyond the one that every connection may hold: for
// the cores that there is memory for, and those on their way.
func (l *Ledger) spare() int {
	cores, depth := l.o.Cores, l.depth.spare
	if m := &l.memory; m.free > 0 && m.meanRSS > 0 {
		cores = min(cores, len(l.running)+int(float64(m.free)/m.meanRSS))
	}
	if Tight(l.memory.pressure) {
		depth = 0 // what lies here waiting takes memory as well
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

// free returns how many of the spare credits can be granted; of these, hoarded are in the
// hands of clients that should have returned them.
func (l *Ledger) free(spare int, now time.Time) (free, hoarded int) {
	free = spare
	for _, cl := range l.clients {
		free += len(cl.conns) - cl.held()
		hoarded += cl.hoarded(now)
	}
	hoarded = min(hoarded, Most(l.o.Cores))
	return free + hoarded, hoarded
}

// divide sets the shares, and returns the number of spare credits.
func (l *Ledger) divide(now time.Time) (spare int) {
	spare = l.spare()
	anyActive := false
	for _, cl := range l.clients {
		cl.share = len(cl.conns)
		anyActive = anyActive || cl.active(now)
	}
	left := l.spread(spare, func(cl *Client) int {
		need := cl.demand - len(cl.conns) // beyond the one that each may hold
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

// spread divides total credits: among the tenants, as much to each as to any other
// until it has what its clients need, then each one's among its clients by their parts.
// What each client gets is added to its share; what is left is returned.
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
