package lend

// A Grant waits until the client has acknowledged the last one. Until it is sent, the credits that it will announce are
// not the client's to spend, although they count as held by it: a client could otherwise spend a credit whose ID it has
// guessed, before or while it is announced.

// Told reports whether a message has announced the credit to the client, or is about to.
func (k *Credit) Told() bool { return k.told }

// Untold reports whether the connection has credits that no message has announced.
func (c *Conn) Untold() bool { return len(c.untold) > 0 }

// Announce returns the credits that the next Grant announces, at most n, the oldest first.
func (c *Conn) Announce(n int) []*Credit {
	n = min(n, len(c.untold))
	list := c.untold[:n:n]
	c.untold = c.untold[n:]
	for _, k := range list {
		k.told = true
	}
	return list
}

// Recall returns how many credits the next Recall asks for, as the last Round has found; 0: none. It is to be sent now.
func (c *Conn) Recall() (n int) {
	n, c.recalled = c.recalled, 0
	return n
}

// Recalled reports whether a Recall is due.
func (c *Conn) Recalled() bool { return c.recalled > 0 }
