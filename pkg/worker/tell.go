package worker

import (
	"errors"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
)

// recvDueLocked posts as many receives as the client may send messages before it hears from us again: one for
// each credit and each result that it has yet to fetch, one for its Hello, and job.Spare. Few are posted, and
// those that were used last are used again, because each takes memory from its first eager job on.
func (c *conn) recvDueLocked() error {
	for last := len(c.spare) - 1; last >= 0 && c.s.recvDepth()-len(c.spare) < 1+job.Spare+len(c.credits)+len(c.offers); last-- {
		if err := c.postRecv(c.spare[last]); err != nil {
			return err
		}
		c.spare = c.spare[:last]
	}
	return nil
}

// received takes receive i back, whose message is m, and posts one for the message that may follow it. None
// follows one that has used up what allowed it.
func (c *conn) received(i uint64, m job.Message) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.spare = append(c.spare, i)
	switch m.(type) {
	case *job.Job, *job.Return, *job.Release:
		return nil
	}
	return c.recvDueLocked()
}

// postRecv posts receive i; sends have IDs with the top bit set, Reads with readID.
func (c *conn) postRecv(i uint64) error {
	n := uint64(c.s.recvLen())
	return c.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: c.recvMR.Base() + i*n, Length: uint32(n), LKey: c.recvMR.STag(),
	}}})
}

// nextWRLocked returns the ID for the next work request that sends a result.
func (c *conn) nextWRLocked() uint64 {
	c.lastWR++
	return sendID | c.lastWR
}

// sendLocked posts a message as a plain Send.
func (c *conn) sendLocked(m job.Message) error {
	return c.qp.PostSend(&iwarp.SendWR{
		ID: sendID, Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, m),
	})
}

// tellLocked sends an unsolicited message. If that fails, it ends the QP.
func (c *conn) tellLocked(m job.Message) {
	if err := c.sendLocked(m); err != nil {
		c.log.Debug("send", "err", err)
		c.failed(err)
	}
}

// failed ends the QP because of err, unless it ends by itself already: an abort would cut off what is on its way then, such as a
// Terminate that tells the client what it did.
func (c *conn) failed(err error) {
	if !errors.Is(err, iwarp.ErrState) {
		c.qp.Abort()
	}
}

// ack acknowledges an unsolicited message of the client. The queue can be full only if the client sends the
// next message before the Ack of the last.
func (c *conn) ack(of job.Kind, seq uint32) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.sendLocked(&job.Ack{Of: of, Seq: seq, Load: c.s.loadLocked()})
}

// pumpLocked sends the unsolicited messages that are due and whose window is open.
func (c *conn) pumpLocked() {
	if c.state != connServing {
		return
	}
	if c.unasked.Free(job.KindCompilers) && c.listing.names { // before the toolchains, with which a manager begins to send jobs
		c.listing.names = false
		c.tellLocked(&job.Compilers{Seq: c.unasked.Next(job.KindCompilers), Names: offered.Names(c.s.Toolchains())})
	}
	if c.unasked.Free(job.KindToolchains) && c.listing.next >= 0 {
		n := min(len(c.listing.ids)-c.listing.next, job.MaxIDs)
		m := &job.Toolchains{Seq: c.unasked.Next(job.KindToolchains), First: uint16(c.listing.next), Total: uint16(len(c.listing.ids)), More: c.s.Identifying(), IDs: c.listing.ids[c.listing.next : c.listing.next+n]}
		if c.listing.next += n; c.listing.next == len(c.listing.ids) {
			c.listing.next = -1
		}
		c.tellLocked(m)
	}
	if c.unasked.Free(job.KindGrant) && c.lent.Untold() {
		m := &job.Grant{Seq: c.unasked.Next(job.KindGrant)}
		for _, k := range c.lent.Announce(job.MaxCredits) {
			m.Credits = append(m.Credits, c.credits[k.ID].onWire())
		}
		c.tellLocked(m)
	}
	if c.unasked.Free(job.KindRecall) && c.lent.Recalled() {
		c.tellLocked(&job.Recall{Seq: c.unasked.Next(job.KindRecall), Count: uint16(c.lent.Recall())})
	}
	if c.unasked.Free(job.KindDrain) && c.wantDrain {
		c.wantDrain = false
		c.tellLocked(&job.Drain{Seq: c.unasked.Next(job.KindDrain)})
	}
}

// listToolchainsLocked announces all toolchains to the client, starting over from the first.
func (c *conn) listToolchainsLocked() {
	if c.state != connServing {
		return
	}
	c.listing.ids = c.listing.ids[:0]
	for _, t := range c.s.Toolchains() {
		c.listing.ids = append(c.listing.ids, t.ID)
	}
	for _, t := range c.s.received(c) {
		c.listing.ids = append(c.listing.ids, t.ID)
	}
	c.listing.next, c.listing.names = 0, true
	c.pumpLocked()
}
