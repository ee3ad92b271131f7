package worker

import (
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
)

// postRecv posts receive i; sends have IDs with the top bit set, Reads with readID.
func (c *conn) postRecv(i uint64) error {
	return c.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: c.recvMR.Base() + i*job.MaxMessage, Length: job.MaxMessage, LKey: c.recvMR.STag(),
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
		c.qp.Abort()
	}
}

// open takes the window for a message and returns its sequence number.
func (w *window) open() uint32 {
	w.seq++
	w.waiting = true
	return w.seq
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
	if w := &c.unasked[job.KindCompilers]; !w.waiting && c.listing.names { // before the toolchains, with which a manager begins to send jobs
		c.listing.names = false
		c.tellLocked(&job.Compilers{Seq: w.open(), Names: offered.Names(c.s.Toolchains())})
	}
	if w := &c.unasked[job.KindToolchains]; !w.waiting && c.listing.next >= 0 {
		n := min(len(c.listing.ids)-c.listing.next, job.MaxIDs)
		m := &job.Toolchains{Seq: w.open(), First: uint16(c.listing.next), Total: uint16(len(c.listing.ids)), More: c.s.Identifying(), IDs: c.listing.ids[c.listing.next : c.listing.next+n]}
		if c.listing.next += n; c.listing.next == len(c.listing.ids) {
			c.listing.next = -1
		}
		c.tellLocked(m)
	}
	if w := &c.unasked[job.KindGrant]; !w.waiting && len(c.toGrant) > 0 {
		m := &job.Grant{}
		for len(c.toGrant) > 0 && len(m.Credits) < job.MaxCredits {
			k := c.credits[c.toGrant[0]]
			c.toGrant = c.toGrant[1:]
			m.Credits = append(m.Credits, k.onWire())
		}
		m.Seq = w.open()
		c.tellLocked(m)
	}
	if w := &c.unasked[job.KindRecall]; !w.waiting && c.toRecall > 0 {
		c.tellLocked(&job.Recall{Seq: w.open(), Count: uint16(c.toRecall)})
		c.toRecall = 0
	}
	if w := &c.unasked[job.KindDrain]; !w.waiting && c.wantDrain {
		c.wantDrain = false
		c.tellLocked(&job.Drain{Seq: w.open()})
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
	c.listing.next, c.listing.names = 0, true
	c.pumpLocked()
}
