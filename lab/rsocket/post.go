package rsocket

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// An ID of a send says what it was: one of these, and for data how many bytes of the send buffer
// it holds.
const (
	idData    = uint64(1) << 32
	idControl = uint64(2) << 32
	idLast    = uint64(3) << 32 // of the last words, or of a request without a completion
	idMask    = uint64(1)<<32 - 1
)

// maxTransfer is how many bytes one RDMA Write carries, as in librdmacm: the peer can begin to
// read what it has while the rest is on its way.
const maxTransfer = 64 << 10

// sendRing is the book of the send buffer: bytes [tail, tail+held) modulo size are in requests.
type sendRing struct {
	size, tail, held int
}

func (r *sendRing) room() int { return r.size - r.held }

// put copies p, for which there must be room, and returns where it lies.
func (r *sendRing) put(buf, p []byte, base uint64, key iwarp.STag) []iwarp.SGE {
	at := (r.tail + r.held) % r.size
	r.held += len(p)
	n := copy(buf[at:], p)
	sgl := []iwarp.SGE{{Addr: base + uint64(at), Length: uint32(n), LKey: key}}
	if n < len(p) {
		copy(buf, p[n:])
		sgl = append(sgl, iwarp.SGE{Addr: base, Length: uint32(len(p) - n), LKey: key})
	}
	return sgl
}

// free gives the oldest n bytes back.
func (r *sendRing) free(n int) {
	r.tail = (r.tail + n) % r.size
	r.held -= n
}

// post posts a request and breaks the stream if it cannot be posted, unless the stream is ending
// by itself.
func (c *Conn) postLocked(wr *iwarp.SendWR) {
	if err := c.qp.PostSend(wr); err != nil && !errors.Is(err, iwarp.ErrState) {
		c.breakLocked(fmt.Errorf("rsocket: %w", err))
	}
}

// postMessageLocked posts m, whose completion has the given ID.
func (c *Conn) postMessageLocked(m proto.Message, id uint64) {
	var b [proto.MessageSize]byte
	c.postLocked(&iwarp.SendWR{ID: id, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: m.Append(b[:0], c.peer.Order())})
}

// writeLocked posts as much of p as it can and returns how much that is.
func (c *Conn) writeLocked(p []byte) (n int, err error) {
	for {
		if err := c.mayWriteLocked(); err != nil {
			return n, err
		}
		if n == len(p) || c.data == maxData || !c.open {
			return n, nil
		}
		to := c.out.Next(min(len(p)-n, maxTransfer, c.ring.room()))
		if to.Length == 0 {
			return n, nil
		}
		c.data++
		c.postLocked(&iwarp.SendWR{
			ID: idLast, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More, STag: iwarp.STag(to.Key), TO: to.Addr,
			SGL: c.ring.put(c.send, p[n:n+int(to.Length)], c.sendBase, c.nearMR.STag()),
		})
		c.postMessageLocked(c.out.Sent(to.Length), idData|uint64(to.Length))
		n += int(to.Length)
	}
}

// grantLocked grants the peer what is due.
func (c *Conn) grantLocked() {
	for c.in.Due() && c.control < maxControl && c.open && !c.left && !c.gone && !c.over && !c.finished {
		g := c.in.Grant()
		c.control++
		if g.Publish {
			var b [proto.SGESize]byte
			c.postLocked(&iwarp.SendWR{
				ID: idLast, Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled | iwarp.More,
				STag: iwarp.STag(g.At.Key), TO: g.At.Addr, Data: g.Entry.Append(b[:0], c.peer.Order()),
			})
		}
		c.postMessageLocked(g.Message, idControl)
	}
}

// postControlLocked posts one of the last words.
func (c *Conn) postControlLocked(word uint32) {
	if !c.over {
		c.postMessageLocked(proto.Message{Op: proto.OpControl, Arg: word}, idLast)
	}
}

// disconnectLocked tells the peer, once, that this side is gone.
func (c *Conn) disconnectLocked() {
	if !c.left {
		c.left, c.shut = true, true
		c.postControlLocked(proto.Disconnect)
	}
}

// sendKeepAlive writes nothing to the peer's table, and comes again.
func (c *Conn) sendKeepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.over || c.left {
		return
	}
	if c.control < maxControl && c.open {
		c.control++
		c.postLocked(&iwarp.SendWR{ID: idControl, Op: iwarp.OpWrite, STag: iwarp.STag(c.peer.Table.Key), TO: c.peer.Table.Addr})
	}
	c.keepAlive.Reset(c.o.KeepAlive)
}
