package lend

import (
	"math"
	"slices"
	"time"
)

// Client is a manager: all connections that come from one start of it, as a tenant's
// credits and cores are divided among managers and not among connections. The boot
// number that makes it one is the peer's word: it counts among the tenant's own.
type Client struct {
	tenant *Tenant
	boot   [16]byte
	conns  []*Conn // that have joined, in order of arrival
	weight int     // > 0
	demand int     // places it has use for; -1 = it did not say
	builds int     // that it has going, as it says
	share  int     // credits that it may hold

	// Waiting jobs, the first one next. pass is the core time that it has had, in
	// seconds divided by its part, and not less than that of those that wait: the one that
	// has least of it is served next.
	queue []*Job
	runs  int // its jobs that run
	pass  float64
}

const (
	// MaxWeight bounds what a manager can say of itself: none gets everything of its
	// tenant's part, and nothing of others'.
	MaxWeight = 100
	// MaxBuilds is how many builds of one manager count.
	MaxBuilds = 8
)

// activeTime is how long after its last job a client counts as one that builds.
const activeTime = 10 * time.Second

// Weight returns the client's weight among its tenant's.
func (cl *Client) Weight() int { return cl.weight }

// Demand returns how many places the client has use for, as it says; -1: it did not.
func (cl *Client) Demand() int { return cl.demand }

// SetDemand takes a client's word on how much work it has: places that it has use for, and
// builds that are going.
func (cl *Client) SetDemand(jobs, builds int) { cl.demand, cl.builds = jobs, builds }

// part is what it gets when there is not enough for all: so much for each of its
// builds, that those of one manager do not go slower than those of many.
func (cl *Client) part() int { return cl.weight * max(1, min(cl.builds, MaxBuilds)) }

// held returns how many credits, jobs and unfetched results count against its share.
func (cl *Client) held() (n int) {
	for _, c := range cl.conns {
		n += c.held()
	}
	return n
}

// active reports whether it builds.
func (cl *Client) active(now time.Time) bool {
	return cl.demand > 0 || slices.ContainsFunc(cl.conns, func(c *Conn) bool {
		return c.jobs > 0 || !c.lastJob.IsZero() && now.Sub(c.lastJob) < activeTime
	})
}

// most returns how many credits it can hold, by its own word.
func (cl *Client) most() (n int) {
	for _, c := range cl.conns {
		if c.want == 0 {
			return Unlimited
		}
		n += c.want
	}
	return n
}

// emptiest returns the connection that a further credit goes to; nil when each has what it
// can hold.
func (cl *Client) emptiest() (best *Conn) {
	for _, c := range cl.conns {
		if c.hasRoom() && !c.ended && (best == nil || c.held() < best.held()) {
			best = c
		}
	}
	return best
}

// lacking reports whether some connection can take no job at all.
func (cl *Client) lacking() bool {
	return slices.ContainsFunc(cl.conns, func(c *Conn) bool { return c.held() == 0 && !c.ended })
}

// recall asks for n unspent credits, from where there are most, and appends that to list.
func (cl *Client) recall(list []Recall, n int, now time.Time) []Recall {
	for _, c := range cl.conns {
		c.recalled = 0
	}
	for ; n > 0; n-- {
		var most *Conn
		for _, c := range cl.conns {
			if left := len(c.credits) - c.recalled; left > 0 && c.recalled < math.MaxUint16 && (most == nil || left > len(most.credits)-most.recalled) {
				most = c
			}
		}
		if most == nil {
			break
		}
		most.recalled++
	}
	for _, c := range cl.conns {
		if c.recalled > 0 {
			c.ask(c.recalled, now)
			list = append(list, Recall{Conn: c, Count: c.recalled})
		}
	}
	return list
}

// hoarded returns how many credits the client keeps beyond its share, unspent, although it
// was asked for them.
func (cl *Client) hoarded(now time.Time) (n int) {
	over := cl.held() - cl.share
	for i := 0; i < len(cl.conns) && n < over; i++ {
		for _, k := range cl.conns[i].credits {
			if !k.asked.IsZero() && now.Sub(k.asked) >= hoardTime {
				n++
			}
		}
	}
	return max(0, min(n, over))
}

// slack reports whether the client leaves a credit unused for longer than its way takes.
func (cl *Client) slack(now time.Time, rtt func(*Conn) time.Duration) bool {
	return slices.ContainsFunc(cl.conns, func(c *Conn) bool {
		if len(c.credits) == 0 {
			return false
		}
		oldest := now.Sub(c.credits[0].given)
		return oldest > slackTime && oldest > slackTime+2*rtt(c)
	})
}

// charge counts core time that the client has had.
func (cl *Client) charge(d time.Duration) {
	cl.pass += d.Seconds() / float64(cl.part())
	cl.tenant.pass += d.Seconds()
}
