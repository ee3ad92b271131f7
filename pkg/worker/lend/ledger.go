// Package lend decides who gets what a compile host lends: places, credits, cores and memory.
//
// A Ledger knows the connections of a host, the managers that they belong to (clients), and the
// tenants that these work for. It is told what happens (a connection, a demand, a job, a
// credit that is spent) and at what time, and says what follows from it: which connections have a
// place (Full), which get a credit (Round) or are asked to return some (Recall), which job a free
// core takes (Turn), and which one gives its core away (Yields). The caller carries that out.
//
// It does no I/O, starts no goroutine and reads no clock, so that a simulation drives the
// same decisions as a daemon. It has no lock: whoever shares a Ledger guards it and all that
// it has returned.
package lend

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// Unlimited is a number of credits that is never reached.
const Unlimited = shares.Unlimited

// Options are the bounds of a Ledger.
type Options struct {
	Cores   int // jobs at a time; > 0
	Conns   int // connections at a time, see Full
	Running int // jobs of one tenant at a time; 0 = as many as there are cores
	Queued  int // jobs of one tenant that wait for a core; 0 = any number
	// Credits that one tenant may hold; one for each of its connections it may in any case.
	Credits int
}

// Ledger is what a host has lent, and to whom.
type Ledger struct {
	o        Options
	tenants  []*Tenant    // in order of arrival
	clients  []*Client    // of all tenants, in order of arrival
	conns    int          // all connections
	unproven []*Conn      // of them those whose clients have proven nothing yet, in order of arrival
	closed   *job.Refusal // why the host takes no work; nil: it does

	queued   int           // jobs in all queues
	running  []*Job        // in order of their start
	vtime    float64       // Tenant.pass of the one that was served last
	meanWall time.Duration // of jobs, the last ones most
	memory   memory

	depth  depth
	lastID uint64         // of credits
	claims []shares.Claim // of spread
}

// New returns a ledger in which nothing is lent.
func New(o Options) *Ledger {
	return &Ledger{o: o, depth: depth{spare: minDepth(o.Cores)}, memory: noMemory}
}

// Close has the host take no work, for that reason: nothing is granted, and all that is unspent is
// recalled by the next Round. With nil it takes work again.
func (l *Ledger) Close(no *job.Refusal) { l.closed = no }

// Closed returns why the host takes no work; nil: it does.
func (l *Ledger) Closed() *job.Refusal { return l.closed }

// Tick looks after what changes with time. It is to be called about once a second.
func (l *Ledger) Tick(now time.Time) {
	l.depth.settle(len(l.running), l.queued, minDepth(l.o.Cores))
	l.settleWidths()
	l.forget(now)
}

// Queued returns how many jobs wait for a core.
func (l *Ledger) Queued() int { return l.queued }

// Running returns how many jobs have a core.
func (l *Ledger) Running() int { return len(l.running) }

// Tenants returns how many tenants have a connection.
func (l *Ledger) Tenants() (n int) {
	for _, t := range l.tenants {
		if t.conns > 0 {
			n++
		}
	}
	return n
}

// Connect enters a connection of a tenant's. One that is unproven has yet to prove that its
// client is one at all (Conn.Proved). Leave follows in any case.
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

// Join makes the connection one of the client with that boot number; without a number it is
// a client by itself. Weight is its client's from now on; want is how many credits the
// connection can hold, 0 = any number.
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

// Leave takes out a connection that has ended and has nothing under way. Its client is
// forgotten with its last one.
func (l *Ledger) Leave(c *Conn, now time.Time) {
	c.End()
	c.Proved()
	cl, t := c.client, c.tenant
	t.conns--
	l.conns--
	t.left = now
	if cl == nil {
		return // it said nothing
	}
	cl.conns = slices.DeleteFunc(cl.conns, func(x *Conn) bool { return x == c })
	if len(cl.conns) == 0 {
		same := func(x *Client) bool { return x == cl }
		l.clients = slices.DeleteFunc(l.clients, same)
		t.clients = slices.DeleteFunc(t.clients, same)
	}
}
