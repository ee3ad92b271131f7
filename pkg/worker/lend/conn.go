package lend

import (
	"slices"
	"time"
)

// Conn is a connection. It holds unspent credits, jobs that are not answered yet, and results that the client
// has not fetched yet.
type Conn struct {
	Owner any // the caller's own object for it

	l      *Ledger
	tenant *Tenant
	client *Client // nil before Join
	ended  bool    // it gets no more credits
	want   int     // credits that it can hold; 0 = any number

	credits  []*Credit // unspent, the oldest first
	untold   []*Credit // of these, those that no message has announced yet
	jobs     int       // unanswered
	results  int       // to be fetched
	lastJob  time.Time // arrival of the last job; zero: none yet
	recalled int       // credits recalled by the last Round that no Recall has asked for yet
}

// Credit is the right to run one job, held by a connection.
type Credit struct {
	ID   uint64 // unique within the Ledger
	Bare bool   // it has no slot; set by the caller of Grant

	told  bool // announced to the client
	given time.Time
	asked time.Time // when the client was asked to return it; zero: it was not
}

// Tenant returns the tenant that the connection counts for.
func (c *Conn) Tenant() *Tenant { return c.tenant }

// Client returns the client that the connection has joined, or nil if it has not joined yet.
func (c *Conn) Client() *Client { return c.client }

// End makes the connection get no more credits.
func (c *Conn) End() { c.ended = true }

// Spent removes a credit that the client has spent or returned.
func (c *Conn) Spent(k *Credit) {
	if i := slices.Index(c.credits, k); i >= 0 {
		c.credits = slices.Delete(c.credits, i, i+1)
	}
}

// Came counts a job that has arrived.
func (c *Conn) Came(now time.Time) {
	c.jobs++
	c.lastJob = now
}

// Answered stops counting a job.
func (c *Conn) Answered() { c.jobs-- }

// Offered counts a result that the client has yet to fetch.
func (c *Conn) Offered() { c.results++ }

// Fetched stops counting a result.
func (c *Conn) Fetched() { c.results-- }

// held returns how many credits, jobs and unfetched results of the connection count against its client's share.
func (c *Conn) held() int { return len(c.credits) + c.jobs + c.results }

// hasRoom reports whether the connection can hold one more credit.
func (c *Conn) hasRoom() bool { return c.want == 0 || c.held() < c.want }

// ask marks the n oldest unspent credits as asked for.
func (c *Conn) ask(n int, now time.Time) {
	for _, k := range c.credits[:min(n, len(c.credits))] {
		if k.asked.IsZero() {
			k.asked = now
		}
	}
}
