package worker

// connState is where a connection is in its life. It moves down this list only, one or more steps at a time, under
// Server.mu. Who the peer is, is known from the start (admit): by its certificate or address, or by the claim
// to a key that it has yet to prove.
type connState uint8

const (
	// connOpening: the peer has asked for a connection, and the answer is not sent. There may be no QP yet. The
	// connection counts against the limits already. It ends without a trace if the device has no resources, or
	// the peer goes away meanwhile.
	connOpening connState = iota

	// connProving: the QP is established, and the client has to prove that it has the pre-shared key. It holds nothing
	// here but the connection and its receives, for Options.ProveTime at most, and makes room for a newcomer
	// where there are many like it. Any message but a right Proof ends the connection, and is held against the peer.
	connProving

	// connGreeting: the client has proven who it is, or need not, and has not said Hello. Any other message breaks the
	// protocol. It is lent nothing yet.
	connGreeting

	// connServing: Hello came. The client has been told of the host, is lent credits, sends jobs, and is asked for a
	// sign of life when it is quiet. A daemon that drains still serves: it lends nothing more, and says so.
	connServing

	// connEnded: the QP has ended, whoever ended it. The client is lent nothing, and told nothing. What runs for it is
	// being killed; what it held is freed when the last runner has let go of it, and then the connection is forgotten.
	connEnded
)

// at returns the state of now.
func (c *conn) at() connState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.state
}

// enterLocked moves the connection on to a state, unless it has ended meanwhile.
func (c *conn) enterLocked(to connState) { c.state = max(c.state, to) }

// firstState returns the state of a connection that was just made.
func (c *conn) firstState() connState {
	if c.claim != nil {
		return connProving
	}
	return connGreeting
}
