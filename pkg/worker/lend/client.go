package lend

import (
	"math"
	"slices"
	"time"
)

// Client is one start of a manager, with all its connections. A tenant's credits and cores are divided among
// managers, not among connections. The boot number that identifies a client is only the peer's word, so it
// matters only within the tenant.
type Client struct {
	tenant *Tenant
	boot   [16]byte
	conns  []*Conn // that have joined, in order of arrival
	weight int     // > 0
	demand int     // places that it can use, as it says; -1 = it did not say
	builds int     // builds under way, as it says
	share  int     // credits that it may hold

	queue []*Job // waiting jobs, the next one first
	away  []*Job // waiting jobs whose sources are yet to be fetched, likewise
	runs  int    // running jobs
	// pass is the core time that the client has used, in seconds divided by part. The client of a tenant that
	// has the lowest is served next. One that had no jobs starts from the tenant's vtime.
	pass float64
}

const (
	// MaxWeight bounds the weight that a manager can claim. No weight gives it all of its tenant's part, or
	// anything of other tenants'.
	MaxWeight = 100
	// MaxBuilds is how many builds of one manager count.
	MaxBuilds = 8
)

// activeTime is how long after its last job a client still counts as building.
const activeTime = 10 * time.Second

// Weight returns the client's weight among the clients of its tenant.
func (cl *Client) Weight() int { return cl.weight }

// Demand returns how many places the client says that it can use, or -1 if it did not say.
func (cl *Client) Demand() int { return cl.demand }

// SetDemand records how much work the client says it has: how many places it can use, and how many builds are
// under way.
func (cl *Client) SetDemand(jobs, builds int) { cl.demand, cl.builds = jobs, builds }

// waiting returns how many jobs the client keeps for want of a place: what it says, without the jobs that it has here.
func (cl *Client) waiting() int {
	n := cl.demand
	for _, c := range cl.conns {
		n -= c.jobs
	}
	return max(0, n)
}

// part returns the client's weight when there is not enough for all: its own weight for each of its builds,
// so that builds of one manager are not slower than the same builds of several managers.
func (cl *Client) part() int { return cl.weight * max(1, min(cl.builds, MaxBuilds)) }

// held returns how many credits, jobs and unfetched results count against the client's share.
func (cl *Client) held() (n int) {
	for _, c := range cl.conns {
		n += c.held()
	}
	return n
}

// active reports whether the client is building.
func (cl *Client) active(now time.Time) bool {
	return cl.demand > 0 || slices.ContainsFunc(cl.conns, func(c *Conn) bool {
		return c.jobs > 0 || !c.lastJob.IsZero() && now.Sub(c.lastJob) < activeTime
	})
}

// most returns how many credits the client says that it can hold.
func (cl *Client) most() (n int) {
	for _, c := range cl.conns {
		if c.want == 0 {
			return Unlimited
		}
		n += c.want
	}
	return n
}

// emptiest returns the connection that gets the next credit, or nil if each holds as many as it can.
func (cl *Client) emptiest() (best *Conn) {
	for _, c := range cl.conns {
		if c.hasRoom() && !c.ended && (best == nil || c.held() < best.held()) {
			best = c
		}
	}
	return best
}

// lacking reports whether some connection holds nothing, and so cannot send a job.
func (cl *Client) lacking() bool {
	return slices.ContainsFunc(cl.conns, func(c *Conn) bool { return c.held() == 0 && !c.ended })
}

// recall asks for n unspent credits, from the connections that have most, and appends what it asks for to list.
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

// hoarded returns how many unspent credits beyond its share the client has kept for hoardTime after it was
// asked to return them.
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

// slack reports whether the client has left a credit unused for longer than round trips explain. rtt returns
// the round-trip time of a connection.
func (cl *Client) slack(now time.Time, rtt func(*Conn) time.Duration) bool {
	return slices.ContainsFunc(cl.conns, func(c *Conn) bool {
		if len(c.credits) == 0 {
			return false
		}
		oldest := now.Sub(c.credits[0].given)
		return oldest > slackTime && oldest > slackTime+2*rtt(c)
	})
}

// charge counts core time that the client has used.
func (cl *Client) charge(d time.Duration) {
	cl.pass += d.Seconds() / float64(cl.part())
	cl.tenant.pass += d.Seconds()
}
