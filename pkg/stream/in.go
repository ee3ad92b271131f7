package stream

import (
	"io"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// inbound is the receiving end of a Conn. Conn.mu guards it.
type inbound struct {
	receiver *exs.Receiver
	ring     []byte
	reads    []*read // posted, in order: the receives of the engine
	id       uint64  // of the last one
	asks     bool    // the peer is to be told Withdraw
	deaf     bool    // and that nobody reads any more
	eager    bool    // the peer sends only to Reads that wait
}

// read is memory that waits for data.
type read struct {
	id  uint64
	buf []byte // nil: the data is dropped
	mr  iwarp.MR
	n   int
	// waitAll completes it only when buf is full.
	waitAll bool
	done    chan struct{} // closed when n is final, and nobody writes to buf any more
}

func (in *inbound) init(e *Endpoint) {
	in.receiver, in.ring = exs.NewReceiver(uint64(e.cfg.Ring)), e.ring.buf
}

// post gives r to the engine.
func (in *inbound) post(r *read, n int) {
	in.id++
	r.id, r.done = in.id, make(chan struct{})
	in.reads = append(in.reads, r)
	in.receiver.Post(r.id, uint64(n), r.waitAll)
}

// heard takes a message about the peer's stream.
func (in *inbound) heard(c *Conn, m *message) error {
	switch m.kind {
	case kindDirect, kindIndirect:
		done, full, err := in.receiver.Data(m.data)
		if err != nil {
			return err
		}
		c.stats.Received += m.data.Len
		if m.data.Direct {
			c.stats.ReceivedDirect += m.data.Len
		}
		if full {
			in.complete(done)
		}
	case kindWithdrawn:
		if err := in.receiver.Withdrawn(); err != nil {
			return err
		}
	case kindFin:
		if err := in.receiver.Fin(m.n); err != nil {
			return err
		}
	default:
		return nil
	}
	in.settle(c)
	notify(c.readable)
	return nil
}

// settle does all copies that are due, and completes what no data can come for.
func (in *inbound) settle(c *Conn) {
	for {
		if c.closed && len(in.reads) == 0 && in.receiver.Buffered() > 0 {
			in.post(&read{}, int(in.receiver.Buffered())) // nobody reads it any more
		}
		x, done, full, ok := in.receiver.Copy()
		if !ok {
			break
		}
		if r := in.reads[0]; r.buf != nil {
			copy(r.buf[x.To:], in.ring[x.From:x.From+x.Len])
			c.stats.Copies++
		}
		if full {
			in.complete(done)
		}
	}
	for {
		done, ok := in.receiver.Cancel()
		if !ok {
			return
		}
		in.complete(done)
	}
}

func (in *inbound) complete(done exs.Completion) {
	r := in.reads[0]
	in.reads = in.reads[1:]
	r.n = int(done.Len)
	close(r.done)
}

// close drops what the peer has sent and will send.
func (in *inbound) close(c *Conn) {
	in.deaf = true
	if len(in.reads) > 0 && in.receiver.Withdraw() {
		in.asks = true
	}
	in.settle(c)
}

// abandon completes what is posted when the QP's stream has ended.
func (in *inbound) abandon() {
	if in.receiver.Withdraw() {
		_ = in.receiver.Withdrawn() // the peer writes no more
	}
	for len(in.reads) > 0 {
		done, ok := in.receiver.Cancel()
		if !ok { // it was asked before
			_ = in.receiver.Withdrawn()
			continue
		}
		in.complete(done)
	}
}

// take copies what the ring has to p.
func (in *inbound) take(c *Conn, p []byte) (n int) {
	for n < len(p) && in.receiver.Buffered() > 0 { // then nothing is posted: settle would have filled it
		in.id++
		in.receiver.Post(in.id, uint64(len(p)-n), false)
		x, _, _, _ := in.receiver.Copy()
		n += copy(p[n:], in.ring[x.From:x.From+x.Len])
		c.stats.Copies++
	}
	return n
}

// next returns the next message that the receiving end has to send.
func (in *inbound) next(c *Conn) (m message, ok bool) {
	if n, ok := in.receiver.Ack(); ok {
		return message{kind: kindAck, n: n}, true
	}
	if in.asks {
		in.asks = false
		c.stats.Withdrawals++
		return message{kind: kindWithdraw}, true
	}
	if in.deaf {
		in.deaf = false
		return message{kind: kindDeaf}, true
	}
	a, ok := in.receiver.Advertise()
	if !ok {
		return m, false
	}
	for _, r := range in.reads {
		if r.id == a.ID {
			a.Mem = exs.Memory{STag: uint32(r.mr.STag()), TO: r.mr.Base()}
		}
	}
	c.stats.Adverts++
	return message{kind: kindAdvert, advert: a}, true
}

// Read reads into p. See Config.DirectMin for when the peer may write to p itself.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.read(p)
	return n, c.opErr("read", err)
}

func (c *Conn) read(p []byte) (n int, err error) {
	for {
		wait, n, err := c.tryRead(p)
		switch {
		case n > 0 || err != nil || len(p) == 0:
			return n, err
		case wait != nil:
			if n, err = c.await(wait); n > 0 || err != nil {
				return n, err
			}
		default:
			select {
			case <-c.readable:
			case <-c.rd.wait():
			case <-c.closing:
			}
		}
	}
}

// tryRead returns what is there already. Else it returns a read that is posted, if p is to be offered to the peer.
func (c *Conn) tryRead(p []byte) (wait *read, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stop(&c.rd); err != nil {
		return nil, 0, err
	}
	if n = c.in.take(c, p); n > 0 {
		c.pump()
		return nil, n, nil
	}
	switch {
	case c.in.receiver.EOF():
		return nil, 0, io.EOF
	case c.err != nil:
		return nil, 0, c.err
	case len(p) == 0 || len(p) < c.end.cfg.DirectMin && !c.in.eager:
		return nil, 0, nil
	}
	mr, err := c.end.pd.RegMR(p, iwarp.LocalWrite|iwarp.RemoteWrite, c.end.bound())
	if err != nil {
		return nil, 0, err
	}
	wait = &read{buf: p, mr: mr}
	c.in.post(wait, len(p))
	c.pump()
	return wait, 0, nil
}

// await returns when r is complete, or has been taken back.
func (c *Conn) await(r *read) (n int, err error) {
	select {
	case <-r.done:
	case <-c.rd.wait():
		err = c.takeBack(r)
	case <-c.closing:
		err = c.takeBack(r)
	}
	if e := r.mr.Dereg(); e != nil && err == nil {
		err = e
	}
	return r.n, err
}

// takeBack asks the peer for r, which no Read waits for any more, and waits for the answer.
func (c *Conn) takeBack(r *read) error {
	c.mu.Lock()
	if c.in.receiver.Withdraw() {
		c.in.asks = true
	}
	c.in.settle(c)
	c.pump()
	c.mu.Unlock()
	timer := time.NewTimer(c.end.cfg.Grace)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		c.fail(errGrace)
		<-r.done // when the QP is over
	}
	return nil
}
