package lend

// A job whose source the host fetches (pull) costs no memory while it waits, only its place in the queue,
// which its credit has paid for. So that no core waits for a source, some are fetched in advance: as many as
// there are cores, divided evenly among the tenants that have such jobs, and at least one of each. A tenant
// that keeps its sources from being fetched thus delays only its own jobs. The order is that of the cores.

// Await adds a job of the connection whose source is yet to be fetched. It waits for Fetch instead of a core,
// and otherwise counts as queued.
func (l *Ledger) Await(c *Conn, j *Job) {
	l.queue(c, j)
	j.state = away
	c.client.away = append(c.client.away, j)
}

// Fetch returns the next job whose source is to be fetched, or nil if none is now. It is not in a queue then:
// once the source is there, Enqueue adds it, otherwise Missed must follow.
func (l *Ledger) Fetch() *Job {
	n := 0
	for _, t := range l.tenants {
		if t.ahead > 0 || t.hasAway() {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	most := max(1, (l.o.Cores+n-1)/n)
	if Tight(l.memory.pressure) {
		most = 1
	}
	var best *Client
	for _, t := range l.tenants {
		if t.ahead >= most || best != nil && best.tenant.pass <= t.pass {
			continue
		}
		if cl := t.nextAway(); cl != nil {
			best = cl
		}
	}
	if best == nil {
		return nil
	}
	j := best.away[0]
	l.Dequeue(j)
	j.ahead = true
	best.tenant.ahead++
	return j
}

// Missed says that the source of a job that Fetch has returned does not come.
func (l *Ledger) Missed(j *Job) { j.landed() }

// Ahead returns how many jobs have a source that was fetched, or is being fetched, and no core yet.
func (l *Ledger) Ahead() (n int) {
	for _, t := range l.tenants {
		n += t.ahead
	}
	return n
}

// landed stops counting j as fetched in advance.
func (j *Job) landed() {
	if j.ahead {
		j.ahead = false
		j.client.tenant.ahead--
	}
}

func (t *Tenant) hasAway() bool { return t.nextAway() != nil }

// nextAway returns the client of the tenant whose source is fetched next, or nil if there is none.
func (t *Tenant) nextAway() (best *Client) {
	for _, cl := range t.clients {
		if len(cl.away) > 0 && (best == nil || cl.pass < best.pass) {
			best = cl
		}
	}
	return best
}

// BringsSlot reports whether the connection's next credit may come with a slot, of that many bytes. Without one,
// the job is pulled if it is not small enough to come eager. A tenant's unspent credits bring at most as many
// slots as there can be spare credits, so a client with many connections cannot hold one for each; and none
// bring any while the machine is short of memory.
func (l *Ledger) BringsSlot(c *Conn, slot int64) bool {
	if Tight(l.memory.pressure) || l.MayReclaim(slot) {
		return false
	}
	n := 0
	for _, cl := range c.tenant.clients {
		for _, o := range cl.conns {
			n += o.slots()
		}
	}
	return n < Most(l.o.Cores)
}

// slots returns how many of the connection's unspent credits have a slot.
func (c *Conn) slots() (n int) {
	for _, k := range c.credits {
		if !k.Bare {
			n++
		}
	}
	return n
}
