package job

// Unasked are the unsolicited messages of one side of a connection. One of each kind may be under way, so that the
// receives that the other side has posted suffice; the next one of that kind waits for the Ack of the last.
type Unasked [NumKinds]struct {
	seq     uint32
	waiting bool
}

// Free reports whether a message of kind k may be sent.
func (u *Unasked) Free(k Kind) bool { return !u[k].waiting }

// Next returns the sequence number of a message of kind k that is sent now.
func (u *Unasked) Next(k Kind) uint32 {
	u[k].seq++
	u[k].waiting = true
	return u[k].seq
}

// Acked records an Ack. It reports whether such a message was under way.
func (u *Unasked) Acked(m *Ack) bool {
	w := &u[m.Of]
	if !w.waiting || w.seq != m.Seq {
		return false
	}
	w.waiting = false
	return true
}
