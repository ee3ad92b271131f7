package stream

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

var (
	errGrace  = errors.New("the peer does not give back the memory of a read that has ended")
	errPipe   = fmt.Errorf("%w: the peer has closed the connection", syscall.EPIPE)
	errFinned = fmt.Errorf("%w: closed for writing", syscall.EPIPE)
)

// outbound is the sending end of a Conn. Conn.mu guards it.
type outbound struct {
	sender  *exs.Sender // nil before the peer's hello
	ring    exs.Memory  // the peer's
	depth   int         // receives that the peer has
	credits int         // of these, those that are free
	owed    int         // receives of ours that the peer does not know to be posted again
	room    int         // requests that the SQ has places for
	gives   bool        // Withdrawn is to be sent
	shut    bool        // by CloseWrite or Close
	deaf    bool        // the peer reads no more
	finned  bool        // Fin is sent
	mute    bool        // nothing can be sent any more
	flights []flight    // requests under way, oldest first
	queue   []*segment  // as in sender: what is not sent yet
	posted  []*segment  // by PostSend, and not completed
	free    []*slot
	last    *slot // that the next short Write goes to
	drained chan struct{}
}

// segment is memory with bytes of one send.
type segment struct {
	addr   uint64 // of the next byte to be sent
	lkey   iwarp.STag
	left   int           // bytes that are not sent
	sent   int           // bytes that have been given to the QP
	flying int           // bytes of them that have not left
	slot   *slot         // that it is in; nil: memory of a Write that waits, or of a PostSend
	done   chan struct{} // of a PostSend: closed when nothing of it is being sent any more
	lost   bool          // the connection ended before all of it had left
}

// slot is memory that Writes are copied to.
type slot struct {
	off  int // in Endpoint.send
	fill int // bytes that are used
	refs int // segments in it
}

// flight is a message that is being sent, and the Write before it.
type flight struct {
	requests int
	seg      *segment
	n        int // bytes of seg
}

func (o *outbound) init(e *Endpoint) {
	o.room = 4 * e.cfg.Depth
	o.drained = make(chan struct{})
	for i := range slots {
		o.free = append(o.free, &slot{off: i * slotLen})
	}
}

// greeted takes the peer's hello. Our messages have taken receives of its already.
func (o *outbound) greeted(h *hello, p exs.Policy) {
	o.sender = exs.NewSender(h.Size, p)
	if o.shut {
		o.sender.Close()
	}
	o.ring, o.depth = h.Ring, int(h.Depth)
	o.credits += o.depth
}

// greet sends our hello, and what goes before it. They need no credit.
func (c *Conn) greet() {
	e := c.end
	if e.first != nil {
		c.send(e.first, flight{requests: 1})
	}
	h := hello{
		Policy: e.cfg.Policy, Depth: uint16(e.cfg.Depth), Size: uint64(e.cfg.Ring),
		Ring: exs.Memory{STag: uint32(e.ring.mr.STag()), TO: e.ring.mr.Base()},
	}
	c.post(&message{kind: kindHello, hello: h}, nil, exs.Write{})
}

// pump sends what can be sent.
func (c *Conn) pump() {
	o := &c.out
	if !isClosed(c.greeted) || c.err != nil {
		return
	}
	for !o.mute && o.room >= 2 && o.credits > reserve {
		if m, ok := c.control(); ok {
			c.post(&m, nil, exs.Write{})
			continue
		}
		w, ok := o.sender.Next()
		if !ok {
			break
		}
		m := message{kind: kindIndirect, data: w.Data}
		if w.Data.Direct {
			m.kind = kindDirect
			c.stats.SentDirect += w.Data.Len
		} else {
			w.Mem = o.ring
		}
		c.stats.Sent += w.Data.Len
		c.post(&m, o.queue[0], w)
	}
	if !o.mute && o.owed >= c.end.cfg.Depth/4 && o.room >= 1 && o.credits > 0 {
		c.post(&message{kind: kindCredits}, nil, exs.Write{})
	}
}

// control returns the next message that is not about data.
func (c *Conn) control() (m message, ok bool) {
	o := &c.out
	if o.gives {
		o.gives = false
		return message{kind: kindWithdrawn}, true
	}
	if m, ok = c.in.next(c); ok {
		return m, true
	}
	if seq, ok := o.sender.Fin(); ok {
		o.finned = true
		return message{kind: kindFin, n: seq}, true
	}
	return m, false
}

// post sends m, after the Write w of the next bytes of seg if there are any.
func (c *Conn) post(m *message, seg *segment, w exs.Write) {
	o := &c.out
	m.credits = uint16(o.owed)
	o.owed = 0
	f := flight{requests: 1, seg: seg, n: int(w.Data.Len)}
	if seg != nil {
		f.requests = 2
		err := c.end.qp.PostSend(&iwarp.SendWR{
			Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More,
			SGL:  []iwarp.SGE{{Addr: seg.addr, Length: uint32(f.n), LKey: seg.lkey}},
			STag: iwarp.STag(w.Mem.STag), TO: w.Mem.TO + w.To,
		})
		if err != nil {
			c.unsent(err)
			return
		}
		seg.addr += uint64(f.n)
		seg.left -= f.n
		seg.sent += f.n
		seg.flying += f.n
		if seg.left == 0 {
			o.queue = o.queue[1:]
		}
	}
	var b [maxMessage]byte
	c.send(m.append(b[:0]), f)
}

// send sends the message b, with which f has left.
func (c *Conn) send(b []byte, f flight) {
	o := &c.out
	o.flights = append(o.flights, f)
	o.room -= f.requests
	o.credits--
	c.stats.Messages++
	if err := c.end.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Solicited, Data: b}); err != nil {
		o.flights = o.flights[:len(o.flights)-1]
		if f.seg != nil {
			f.seg.flying -= f.n
		}
		c.unsent(err)
	}
}

// unsent takes the error of a request that could not be posted.
func (c *Conn) unsent(err error) {
	if errors.Is(err, iwarp.ErrState) { // the stream is ending: what has arrived comes first
		c.out.mute = true
		return
	}
	c.failLocked(err)
}

// left takes the completion of the oldest message.
func (o *outbound) left(c *Conn) {
	if len(o.flights) == 0 {
		return
	}
	f := o.flights[0]
	o.flights = o.flights[1:]
	o.room += f.requests
	if s := f.seg; s != nil {
		s.flying -= f.n
		o.release(s)
		notify(c.writable)
	}
	o.drain()
}

// release gives back the slot of a segment that is sent.
func (o *outbound) release(s *segment) {
	if s.left > 0 || s.flying > 0 {
		return
	}
	o.finish(s)
	if s.slot == nil {
		return
	}
	t := s.slot
	s.slot = nil
	if t.refs--; t.refs > 0 {
		return
	}
	t.fill = 0
	if t != o.last {
		o.free = append(o.free, t)
	}
}

// finish completes a PostSend.
func (o *outbound) finish(s *segment) {
	if i := slices.Index(o.posted, s); i >= 0 {
		o.posted = slices.Delete(o.posted, i, i+1)
		close(s.done)
	}
}

// abandon completes everything when the QP's stream has ended.
func (o *outbound) abandon(c *Conn) {
	for _, s := range o.posted {
		s.lost = true
	}
	for len(o.flights) > 0 {
		o.left(c)
	}
	for len(o.posted) > 0 {
		o.finish(o.posted[0])
	}
}

// drain notes when all is sent after Close.
func (o *outbound) drain() {
	if o.shut && o.finned && len(o.flights) == 0 && !isClosed(o.drained) {
		close(o.drained)
	}
}

// close ends the stream after what is queued.
func (o *outbound) close() {
	o.shut = true
	if o.sender != nil {
		o.sender.Close()
	}
	o.drain()
}

// deafen drops what is queued: the peer reads no more.
func (o *outbound) deafen(c *Conn) {
	o.deaf = true
	o.sender.Trim(o.sender.Unsent())
	for _, s := range o.queue {
		s.left = 0
		o.release(s)
	}
	o.queue = nil
	notify(c.writable)
	o.drain()
}

// Write writes p. With Buffered it returns when p is copied, otherwise when it has left.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.end.cfg.Mode == ZeroCopy && len(p) >= c.end.cfg.ZeroCopyMin {
		n, err = c.writeFrom(p)
	} else {
		n, err = c.writeCopy(p)
	}
	return n, c.opErr("write", err)
}

// mayWrite returns why a Write has to stop.
func (c *Conn) mayWrite() error {
	if err := c.stop(&c.wd); err != nil {
		return err
	}
	switch {
	case c.err != nil:
		if errors.Is(c.err, io.ErrUnexpectedEOF) {
			return errPipe
		}
		return c.err
	case c.out.deaf, c.out.mute:
		return errPipe
	case c.out.shut:
		return errFinned
	}
	return nil
}

// writeCopy copies p to slots as they become free.
func (c *Conn) writeCopy(p []byte) (n int, err error) {
	for {
		c.mu.Lock()
		if err = c.mayWrite(); err == nil {
			n += c.out.copy(c.end, p[n:])
			c.pump()
		}
		c.mu.Unlock()
		if err != nil || n == len(p) {
			return n, err
		}
		c.waitWritable()
	}
}

func (c *Conn) waitWritable() {
	select {
	case <-c.writable:
	case <-c.wd.wait():
	case <-c.closing:
	}
}

// copy queues as much of p as there is room for.
func (o *outbound) copy(e *Endpoint, p []byte) (n int) {
	for n < len(p) {
		if o.last == nil || o.last.fill == slotLen {
			if o.last = nil; len(o.free) == 0 {
				return n
			}
			o.last, o.free = o.free[0], o.free[1:]
		}
		t := o.last
		k := copy(e.send.buf[t.off+t.fill:t.off+slotLen], p[n:])
		sge := e.send.sge(t.off+t.fill, k)
		t.fill += k
		n += k
		if i := len(o.queue) - 1; i >= 0 && o.queue[i].slot == t { // the bytes before are still here
			o.queue[i].left += k
			o.sender.Grow(uint64(k))
			continue
		}
		t.refs++
		o.queue = append(o.queue, &segment{addr: sge.Addr, lkey: sge.LKey, left: k, slot: t})
		o.sender.Post(uint64(k))
	}
	return n
}

// writeFrom sends p from where it is.
func (c *Conn) writeFrom(p []byte) (n int, err error) {
	mr, err := c.end.pd.RegMR(p, 0, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := mr.Dereg(); e != nil && err == nil {
			err = e
		}
	}()
	s := &segment{addr: mr.Base(), lkey: mr.STag(), left: len(p)}
	c.mu.Lock()
	if err = c.mayWrite(); err == nil {
		c.out.queue = append(c.out.queue, s)
		c.out.sender.Post(uint64(len(p)))
		c.pump()
	}
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for {
		left, e := c.follow(s, len(p))
		if err == nil {
			err = e
		}
		switch {
		case left:
			return s.sent, err
		case err == nil:
			c.waitWritable()
		default: // its memory is still being read
			select {
			case <-c.writable:
			case <-c.ended:
			}
		}
	}
}

// follow looks after s, the n bytes of a Write that waits. left reports whether nothing of it is being sent any more. What is not
// sent yet is not sent if the Write has to stop, and err says why.
func (c *Conn) follow(s *segment, n int) (left bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.sent < n {
		if err = c.mayWrite(); err != nil && s.left > 0 { // it is the last of the queue, as only one Write is under way
			c.out.sender.Trim(uint64(s.left))
			c.out.queue = c.out.queue[:len(c.out.queue)-1]
			s.left = 0
		}
	}
	if isClosed(c.ended) && err == nil {
		err = c.err
	}
	return s.left == 0 && s.flying == 0, err
}
