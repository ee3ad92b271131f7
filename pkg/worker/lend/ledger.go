// Package lend decides how a compile host's connections, credits, cores and memory are divided among its
// clients.
//
// A Ledger knows the connections of a host, the managers that they belong to (clients), and the tenants that
// these work for. The caller tells it what happens (a connection, a demand, a job, a credit that is spent)
// and when. The Ledger decides whether another connection can be taken (Full), which connections get a credit
// (Round) or are asked to return some (Recall), which job a free core takes (Turn), and which job gives up
// its core (Yields). The caller carries that out.
//
// A Ledger does no I/O, starts no goroutine and reads no clock, so that a simulation can drive the same
// decisions as a daemon. It has no lock: a caller that shares a Ledger must guard it and everything that it
// has returned.
package lend

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// Unlimited is a number of credits that is never reached in practice.
const Unlimited = shares.Unlimited

// Options are the bounds of a Ledger.
type Options struct {
	Cores   int // jobs at a time; > 0
	Conns   int // connections at a time, see Full
	Running int // jobs of one tenant at a time; 0 = as many as there are cores
	Queued  int // jobs of one tenant that wait for a core; 0 = any number
	// Credits is how many credits one tenant may hold. It may always hold one per connection.
	Credits int
}

// Ledger records what a host has lent to which client.
type Ledger struct {
	o        Options
	tenants  []*Tenant    // in order of arrival
	clients  []*Client    // of all tenants, in order of arrival
	conns    int          // all connections
	unproven []*Conn      // connections whose clients have not proven themselves yet, in order of arrival
	closed   *job.Refusal // why the host takes no work; nil if it does

	queued   int           // jobs in all queues
	running  []*Job        // in order of their start
	vtime    float64       // Tenant.pass of the tenant served last
	meanWall time.Duration // wall time of jobs: a moving average
	memory   memory

	depth  depth
	lastID uint64         // of the last credit
	claims []shares.Claim // scratch space of spread
}

// New returns a ledger in which nothing is lent.
func New(o Options) *Ledger {
	return &Ledger{o: o, depth: depth{spare: minDepth(o.Cores)}, memory: noMemory}
}

// Close makes the host take no work, for the reason no: no credit is granted, and the next Round recalls all
// unspent ones. Close(nil) makes it take work again.
func (l *Ledger) Close(no *job.Refusal) { l.closed = no }

// Closed returns why the host takes no work, or nil if it does.
func (l *Ledger) Closed() *job.Refusal { return l.closed }

// Tick updates what changes with time. It is to be called about once a second.
func (l *Ledger) Tick(now time.Time) {
	l.depth.settle(len(l.running), l.queued, minDepth(l.o.Cores))
	l.settleWidths()
	l.forget(now)
}

// Queued returns how many jobs wait for a core.
func (l *Ledger) Queued() int { return l.queued }

// Running returns how many jobs have a core.
func (l *Ledger) Running() int { return len(l.running) }

// Waiting returns how many jobs the clients keep for want of a place, as they say. A client tells every host of
// all of them, as any host may get them.
func (l *Ledger) Waiting() (n int) {
	for _, cl := range l.clients {
		n += cl.waiting()
	}
	return n
}

// Tenants returns how many tenants have a connection.
func (l *Ledger) Tenants() (n int) {
	for _, t := range l.tenants {
		if t.conns > 0 {
			n++
		}
	}
	return n
}

// Connect adds a connection of the tenant of that name. The client of an unproven connection has yet to prove
// itself (Conn.Proved). The caller calls Leave when the connection has ended, in any case.
func (l *Ledger) Connect(tenant string, unproven bool) *Conn {
	c := &Conn{l: l, tenant: l.tenant(tenant)}
	c.tenant.conns++
	l.conns++
	if unproven {
		c.tenant.unproven++
		l.unproven = append(l.unproven, c)
	}
	return c
}

// Join adds the connection to the client with that boot number. With a zero boot number, the connection is a
// client by itself. weight becomes the client's weight; want is how many credits the connection can hold, 0 =
// any number.
func (l *Ledger) Join(c *Conn, boot [16]byte, weight, want int) {
	weight = min(max(1, weight), MaxWeight)
	c.want = want
	t := c.tenant
	if boot != ([16]byte{}) {
		for _, cl := range t.clients {
			if cl.boot == boot {
				cl.conns = append(cl.conns, c)
				cl.weight = weight
				c.client = cl
				return
			}
		}
	}
	c.client = &Client{tenant: t, boot: boot, conns: []*Conn{c}, weight: weight, demand: -1, pass: t.vtime}
	t.clients = append(t.clients, c.client)
	l.clients = append(l.clients, c.client)
}

// Leave removes a connection that has ended and has nothing under way. A client is removed with its last
// connection.
func (l *Ledger) Leave(c *Conn, now time.Time) {
	c.End()
	c.Proved()
	cl, t := c.client, c.tenant
	t.conns--
	l.conns--
	t.left = now
	if cl == nil {
		return // it never joined
	}
	cl.conns = slices.DeleteFunc(cl.conns, func(x *Conn) bool { return x == c })
	if len(cl.conns) == 0 {
		same := func(x *Client) bool { return x == cl }
		l.clients = slices.DeleteFunc(l.clients, same)
		t.clients = slices.DeleteFunc(t.clients, same)
	}
}
