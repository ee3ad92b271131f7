package lend

import "time"

// Round deals out the credits: free ones go to the clients below their share, one client after the other. If
// some clients stay below their share, or there should be fewer credits, those above theirs are asked to
// return what they do not use.
//
//	r := ledger.Round(now)
//	for c := r.Next(); c != nil; c = r.Next() {
//		// c gets r.Grant(), or r.Lack() if there is no slot for it
//	}
//	// ask for what r.Recalls() says
//
// The Ledger must not change in any other way meanwhile.
type Round struct {
	l     *Ledger
	now   time.Time
	free  int
	short bool  // there are not enough, so some are to be recalled
	at    int   // index of the client whose turn it is
	to    *Conn // the connection that Next has returned
}

// Recall says how many unspent credits a connection is to be asked for.
type Recall struct {
	Conn  *Conn
	Count int // at most 65,535
}

// Round sets the shares and begins a round. It ends with Recalls.
func (l *Ledger) Round(now time.Time) Round {
	free, hoarded := l.free(l.divide(now), now)
	return Round{l: l, now: now, free: free, short: free-hoarded < 0} // hoarded credits are still asked for
}

// Next returns the next connection that is to get a credit, or nil if there is none. The caller then calls
// Grant or Lack.
func (r *Round) Next() *Conn {
	if r.l.closed != nil {
		return nil
	}
	for ; r.at < len(r.l.clients); r.at++ {
		cl := r.l.clients[r.at]
		if cl.tenant.patience.tried(r.now) || cl.held() >= cl.share {
			continue
		}
		c := cl.emptiest()
		if c == nil {
			continue
		}
		// The first credit of a connection does not depend on others: a client that is asked for credits need
		// not return them.
		if r.free > 0 || c.held() == 0 {
			r.to = c
			return c
		}
		r.short = true
	}
	return nil
}

// Grant gives the connection its credit, which is to be announced (Conn.Announce).
func (r *Round) Grant() *Credit {
	r.free--
	k := r.l.Grant(r.to, r.now)
	k.told = false
	r.to.untold = append(r.to.untold, k)
	return k
}

// Lack skips the connection's client, for which the host has no slot.
func (r *Round) Lack() {
	r.short = true
	r.at++
}

// Recalls returns what connections are to be asked for. It replaces what earlier rounds wanted and no message
// has said yet.
func (r *Round) Recalls() (list []Recall) {
	for _, cl := range r.l.clients {
		over := 0
		switch {
		case r.l.closed != nil:
			over = Unlimited
		case r.short:
			over = cl.held() - cl.share
		}
		if over <= 0 && cl.held() >= cl.share && cl.lacking() {
			over = 1 // from a connection of the client that can spare it
		}
		list = cl.recall(list, over, r.now)
	}
	return list
}

// Due reports whether the connection is to get a credit together with a result, because its client's share
// has room. The job that has ended must not be counted any more. The caller calls Grant if there is a slot.
func (l *Ledger) Due(c *Conn, now time.Time) bool {
	if l.closed != nil {
		return false
	}
	free, _ := l.free(l.divide(now), now)
	cl := c.client
	return free > 0 && !cl.tenant.patience.tried(now) && cl.held() < cl.share && c.hasRoom()
}

// Grant gives a connection a credit, and counts on the caller to announce it.
func (l *Ledger) Grant(c *Conn, now time.Time) *Credit {
	l.lastID++
	k := &Credit{ID: l.lastID, given: now, told: true}
	c.credits = append(c.credits, k)
	return k
}
