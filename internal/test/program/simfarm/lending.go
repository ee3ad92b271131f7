package simfarm

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// pkg/worker/lend decides what a daemon lends to whom, as in reality. This is what pkg/worker does around
// it: it handles jobs and returns, sends grants, recalls and results, and runs a periodic check once a
// second. A client is a tenant of its own.

// conn is the daemon's side of a connection.
type conn struct {
	l        *link
	lent     *lend.Conn
	credits  []*lend.Credit // granted and not spent, wherever they are, the oldest first
	toRecall int            // how many to ask for when the last recall has been answered
	recall   bool           // one is on its way
}

// tickTime is the interval of the periodic check.
const tickTime = time.Second

// open begins a life of the daemon, in which nothing is lent yet.
func (d *daemon) open() {
	d.lend = lend.New(lend.Options{Cores: d.Cores, Credits: lend.Unlimited})
}

// now returns the time as passed to the ledger.
func (d *daemon) now() time.Time { return epoch.Add(d.e.now) }

// connect accepts a client's connection.
func (d *daemon) connect(l *link) *conn {
	c := &conn{l: l, lent: d.lend.Connect(l.c.Name, false)}
	c.lent.Owner = c
	d.lend.Join(c.lent, [16]byte{}, 1, 0)
	d.conns = append(d.conns, c)
	if d.ticks == nil {
		d.ticks = d.e.after(tickTime, d.tick)
	}
	return c
}

// tick does the periodic check.
func (d *daemon) tick() {
	d.ticks = d.e.after(tickTime, d.tick)
	d.lend.Tick(d.now())
	d.rebalance()
	for _, j := range d.lend.Yields(d.now()) {
		d.yield(j.Owner.(*flight))
	}
	d.work()
}

// rebalance sends the grants and recalls that are due.
func (d *daemon) rebalance() {
	r := d.lend.Round(d.now())
	granted := map[*conn]int{}
	for to := r.Next(); to != nil; to = r.Next() {
		c := to.Owner.(*conn)
		c.credits = append(c.credits, r.Grant())
		granted[c]++
	}
	for _, c := range d.conns {
		c.toRecall = 0
	}
	for _, x := range r.Recalls() {
		x.Conn.Owner.(*conn).toRecall = x.Count
	}
	for _, c := range d.conns {
		if n := granted[c]; n > 0 {
			c.lent.Announce(n)
			d.e.after(d.RTT/2, func() { c.l.granted(c, n) })
		}
		d.ask(c)
	}
}

// ask sends the recall that is due, one at a time.
func (d *daemon) ask(c *conn) {
	n := c.toRecall
	if n == 0 || c.recall {
		return
	}
	c.recall, c.toRecall = true, 0
	d.e.after(d.RTT/2, func() { c.l.recalled(c, n) })
}

// returned handles the answer to a recall. A client that needs everything it has is asked again when
// something changes.
func (d *daemon) returned(c *conn, n int) {
	if !slices.Contains(d.conns, c) {
		return
	}
	c.recall = false
	for range n {
		c.spend()
		c.lent.Tenant().Lapsed(d.now())
	}
	if n > 0 {
		d.rebalance()
	}
	d.ask(c)
}

// spend ends the oldest credit. The simple rules also send jobs without one.
func (c *conn) spend() {
	if len(c.credits) > 0 {
		c.lent.Spent(c.credits[0])
		c.credits = c.credits[1:]
	}
}

// arrive handles a job that a client has sent.
func (d *daemon) arrive(f *flight) {
	if !d.well() || !slices.Contains(d.conns, f.conn) {
		return // lost with the connection: the client's side reports it
	}
	f.conn.spend()
	f.conn.lent.Came(d.now())
	f.lent = lend.Job{Owner: f, Arrived: d.now()}
	d.lend.Enqueue(f.conn.lent, &f.lent)
	d.work()
}

// work starts what the cores can start.
func (d *daemon) work() {
	for d.lend.Running() < d.Cores {
		switch t := d.lend.Next(d.now()); t.Act {
		case lend.Look:
			d.lend.Looked(0, d.now()) // memory does not matter here
		case lend.Drop:
			d.lend.Kept(0, d.now())
		case lend.Start:
			f := t.Job.Owner.(*flight)
			d.average.step(d.e.now, len(d.m.tasks)+d.m.foreign)
			f.began = d.e.now
			f.task = d.m.start(f.w.cpu, func() { d.finish(f) })
		case lend.Idle:
			d.awaitPause()
			return
		}
	}
}

// awaitPause calls work again when the pause ends for which cores are idle.
func (d *daemon) awaitPause() {
	left := d.lend.PauseLeft(d.now())
	if left == 0 || d.awaits || d.lend.Queued() == 0 {
		return
	}
	d.awaits = true
	d.e.after(left, func() {
		d.awaits = false
		d.work()
	})
}

// finish sends a result, with a view of the load and a credit.
func (d *daemon) finish(f *flight) {
	d.average.step(d.e.now, len(d.m.tasks)+1+d.m.foreign)
	d.left(f)
	next := d.answered(f)
	d.work()
	v := d.view()
	at := f.l.down.send(d.e.now, f.w.Out) + d.RTT/2
	wall := d.e.now - f.began
	d.e.at(at, func() { f.l.result(f, next, v, wall) })
	d.rebalance()
}

// left records that a job has left its core.
func (d *daemon) left(f *flight) {
	d.lend.Ended(&f.lent, false, d.now())
	d.lend.Learn(&f.lent, d.e.now-f.began, 0)
}

// answered ends a job, and returns how many credits travel with its answer.
func (d *daemon) answered(f *flight) int {
	c := f.conn
	c.lent.Answered()
	if !d.lend.Due(c.lent, d.now()) {
		return 0
	}
	c.credits = append(c.credits, d.lend.Grant(c.lent, d.now()))
	return 1
}

// yield ends a job whose core another tenant gets: its client takes it elsewhere.
func (d *daemon) yield(f *flight) {
	d.m.stop(f.task)
	d.left(f)
	next := d.answered(f)
	d.e.after(d.RTT/2, func() { f.l.refused(f, next, d.view()) })
}

// drop forgets a job that its client no longer wants.
func (d *daemon) drop(f *flight) {
	if !slices.Contains(d.conns, f.conn) {
		return // it ended with the connection
	}
	switch {
	case d.lend.Dequeue(&f.lent):
	case f.lent.Runs():
		d.m.stop(f.task)
		d.left(f)
	default:
		return // not here yet, or done: its answer is on its way
	}
	next := d.answered(f)
	d.e.after(d.RTT/2, func() { f.l.result(f, next, d.view(), 0) })
	d.work()
	d.rebalance()
}

// undelivered returns the credit of a job that was called off on its way.
func (d *daemon) undelivered(f *flight) {
	if d.well() && slices.Contains(d.conns, f.conn) {
		d.e.after(d.RTT/2, func() { f.l.granted(f.conn, 1) })
	}
}
