package worker

// connState is where a connection is in its life. It only moves down this list, one or more steps at a time,
// under Server.mu. The peer's identity is known from the start (admit): by its certificate or address, or by
// the claim to a key that it has yet to prove.
type connState uint8

const (
	// connOpening: the peer has requested a connection, and the answer is not sent yet. There may be no QP
	// yet. The connection already counts against the limits. It ends without a trace if the device has no
	// resources or the peer goes away meanwhile.
	connOpening connState = iota

	// connProving: the QP is established, and the client has to prove that it has the pre-shared key. It
	// holds nothing but the connection and its receives, for Options.ProveTime at most, and has to make room
	// for a new connection if there are many in this state. Any message other than a correct Proof ends the
	// connection and counts as an authentication failure.
	connProving

	// connGreeting: the client has proven itself, or need not, and has not sent its Hello. Any other message
	// violates the protocol. It holds no credits yet.
	connGreeting

	// connServing: the Hello has come. The client has got the Welcome, gets credits, sends jobs, and is asked
	// for a sign of life when it is quiet. A daemon that drains still serves: it lends no more credits, and
	// says so.
	connServing

	// connEnded: the QP has ended, by either side. The client gets no more credits or messages. What runs for
	// it is being killed; what it held is freed when the last runner has released it, and then the connection
	// is removed.
	connEnded
)

// at returns the current state.
func (c *conn) at() connState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.state
}

// enterLocked moves the connection to a later state, unless it is further already.
func (c *conn) enterLocked(to connState) { c.state = max(c.state, to) }

// firstState returns the state of a connection that has just been established.
func (c *conn) firstState() connState {
	if c.claim != nil {
		return connProving
	}
	return connGreeting
}
