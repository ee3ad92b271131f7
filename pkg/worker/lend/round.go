package lend

import "time"

// Round deals the credits out anew: those that are free go to clients below their share, one
// after the other; when some stay below it, or there are to be fewer, those above are
// asked to return what they do not use.
//
//	r := ledger.Round(now)
//	for c := r.Next(); c != nil; c = r.Next() {
//		// c gets r.Grant(), or r.Lack() if there is no slot for it
//	}
//	// ask as r.Recalls() says
//
// The Ledger must not change in another way meanwhile.
type Round struct {
	l     *Ledger
	now   time.Time
	free  int
	short bool  // there are fewer than there should be
	at    int   // index of the client whose turn it is
	to    *Conn // that Next has returned
}

// Recall asks a connection for unspent credits.
type Recall struct {
	Conn  *Conn
	Count int // at most 65,535
}

// Round sets the shares and begins a round. It ends with Recalls.
func (l *Ledger) Round(now time.Time) Round {
	free, hoarded := l.free(l.divide(now), now)
	return Round{l: l, now: now, free: free, short: free-hoarded < 0} // what is hoarded is asked for still
}

// Next returns a connection that is to get a credit; nil when there is no further one. Grant
// or Lack follows.
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
		// The one that each connection may hold waits for nobody: a client that is asked for
		// credits need not give them back.
		if r.free > 0 || c.held() == 0 {
			r.to = c
			return c
		}
		r.short = true
	}
	return nil
}

// Grant gives the connection its credit.
func (r *Round) Grant() *Credit {
	r.free--
	return r.l.Grant(r.to, r.now)
}

// Lack passes over the connection's client: the host has no slot for it.
func (r *Round) Lack() {
	r.short = true
	r.at++
}

// Recalls returns what connections are to be asked for. It is all that they are asked for: what
// an earlier round wanted, and no message has said yet, is not due any more.
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
			over = 1 // of one that can spare it
		}
		list = cl.recall(list, over, r.now)
	}
	return list
}

// Due reports whether a credit is to ride back on a result, which its client's share has
// room for. The job that it replaces is not counted any more. Grant follows if there is a slot.
func (l *Ledger) Due(c *Conn, now time.Time) bool {
	if l.closed != nil {
		return false
	}
	free, _ := l.free(l.divide(now), now)
	cl := c.client
	return free > 0 && !cl.tenant.patience.tried(now) && cl.held() < cl.share && c.hasRoom()
}

// Grant gives a connection a credit.
func (l *Ledger) Grant(c *Conn, now time.Time) *Credit {
	l.lastID++
	k := &Credit{ID: l.lastID, given: now}
	c.credits = append(c.credits, k)
	return k
}
