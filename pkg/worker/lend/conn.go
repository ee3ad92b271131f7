package lend

import (
	"slices"
	"time"
)

// Conn is a connection: what it holds are its unspent credits, its jobs that are not
// answered yet, and the results that it has not fetched.
type Conn struct {
	Owner any // whatever the caller knows it by

	l      *Ledger
	tenant *Tenant
	client *Client // nil before Join
	ended  bool    // it gets no credit any more
	want   int     // credits that it can hold; 0 = any number

	credits  []*Credit // unspent, the oldest first
	jobs     int       // unanswered
	results  int       // to be fetched
	lastJob  time.Time // when it came; zero: none has
	recalled int       // by the Round of now
}

// Credit is the right to run one job, in the hands of a connection.
type Credit struct {
	ID uint64 // no other one of the Ledger's has it

	given time.Time
	asked time.Time // when the client was asked to return it; zero: it was not
}

// Tenant returns the one that the connection counts for.
func (c *Conn) Tenant() *Tenant { return c.tenant }

// Client returns the one that the connection has joined; nil: none yet.
func (c *Conn) Client() *Client { return c.client }

// End has the connection get no further credit.
func (c *Conn) End() { c.ended = true }

// Spent takes out a credit that the client has spent or returned.
func (c *Conn) Spent(k *Credit) {
	if i := slices.Index(c.credits, k); i >= 0 {
		c.credits = slices.Delete(c.credits, i, i+1)
	}
}

// Came counts a job that has come.
func (c *Conn) Came(now time.Time) {
	c.jobs++
	c.lastJob = now
}

// Answered ends counting a job.
func (c *Conn) Answered() { c.jobs-- }

// Offered counts a result that the client has yet to fetch.
func (c *Conn) Offered() { c.results++ }

// Fetched ends counting a result.
func (c *Conn) Fetched() { c.results-- }

// held returns how much counts against its client's share.
func (c *Conn) held() int { return len(c.credits) + c.jobs + c.results }

// hasRoom reports whether it can hold one more.
func (c *Conn) hasRoom() bool { return c.want == 0 || c.held() < c.want }

// ask marks the n oldest unspent credits as those that the client was asked for.
func (c *Conn) ask(n int, now time.Time) {
	for _, k := range c.credits[:min(n, len(c.credits))] {
		if k.asked.IsZero() {
			k.asked = now
		}
	}
}
