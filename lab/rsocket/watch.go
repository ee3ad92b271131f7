package rsocket

import (
	"context"
	"fmt"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// watch processes completions until the stream has ended. As receives are always posted, the
// end shows as a completion, too.
func (c *Conn) watch() {
	defer close(c.ended)
	var wcs [32]iwarp.WC
	err := error(nil)
	for flushed := false; !flushed && err == nil; {
		if err = c.cq.Wait(context.Background()); err == nil {
			flushed = c.processed(wcs[:c.cq.Poll(wcs[:])])
		}
	}
	<-c.qp.Done()
	for n := c.cq.Poll(wcs[:]); n > 0; n = c.cq.Poll(wcs[:]) { // the last messages, and what is flushed
		c.processed(wcs[:n])
	}
	if err == nil {
		err = c.qp.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.err == nil && !c.finished {
		c.err = err
	}
}

// processed processes completions and reports whether one was flushed.
func (c *Conn) processed(wcs []iwarp.WC) (flushed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range wcs {
		wc := &wcs[i]
		if wc.Status != iwarp.StatusSuccess {
			flushed = true
			continue
		}
		if wc.Op == iwarp.OpRecv {
			c.receivedLocked(wc)
			continue
		}
		switch wc.ID &^ idMask {
		case idData:
			c.data--
			c.ring.free(int(wc.ID & idMask))
		case idControl:
			c.control--
		}
	}
	c.grantLocked()
	c.rd.notify()
	c.wr.notify()
	return flushed
}

// receivedLocked processes a message and posts its receive again.
func (c *Conn) receivedLocked(wc *iwarp.WC) {
	c.open = true
	if c.err != nil {
		return
	}
	m, err := proto.ParseMessage(c.message(wc.ID, wc.ByteLen), c.peer.Order())
	if err == nil {
		err = c.messageLocked(m)
	}
	if err != nil {
		c.breakLocked(err)
		return
	}
	// Refused only when the stream is ending.
	_ = c.postRecv(wc.ID)
}

func (c *Conn) messageLocked(m proto.Message) error {
	switch {
	case c.gone: // librdmacm may still grant something after its Disconnect
		return nil
	case c.finished && m.Op == proto.OpData:
		return fmt.Errorf("%w: data after the end of data", proto.ErrProtocol)
	}
	switch m.Op {
	case proto.OpData:
		return c.in.Data(m.Arg)
	case proto.OpCredit:
		return c.out.Credit(m.Arg)
	case proto.OpIOMap:
		return c.out.IOMap(m.Arg)
	case proto.OpControl:
		switch m.Arg {
		case proto.Shutdown:
			c.finished = true
		case proto.Disconnect:
			c.finished, c.gone = true, true
		}
	}
	return nil
}

// breakLocked ends the stream because of err.
func (c *Conn) breakLocked(err error) {
	if c.err == nil && !c.over {
		c.err = err
		c.qp.Abort()
	}
}
