package rsocket

import (
	"fmt"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Map offers buf to the peer for direct writes, as bytes of the offset and following (riomap).
// The peer knows it before it gets what is written after Map. The peer's writes appear in buf
// unannounced; buf belongs to the Conn until unmap or Close has returned. unmap does not tell
// the peer, whose next write into buf ends the connection.
//
// The number of maps at a time is limited by the peer, whose limit may be 0. Each takes one of the
// peer's receives until its program looks, and librdmacm's program looks when it calls something:
// do not map many times while it does nothing.
func (c *Conn) Map(buf []byte, offset int64) (unmap func() error, err error) {
	c.wr.turn.Lock()
	defer c.wr.turn.Unlock()
	for {
		c.mu.Lock()
		i, mr, err := c.mapLocked(buf, offset)
		c.mu.Unlock()
		switch {
		case err != nil:
			return nil, c.opError("map", err)
		case mr != nil:
			return func() error { return c.unmap(i, mr) }, nil
		}
		c.wait(&c.wr)
	}
}

// mapLocked returns the map and its place in the peer's table. It returns no map if it has to wait.
func (c *Conn) mapLocked(buf []byte, offset int64) (place int, mr iwarp.MR, err error) {
	if err := c.mayWriteLocked(); err != nil {
		return 0, nil, err
	}
	place = -1
	for i, mr := range c.maps {
		if mr == nil {
			place = i
			break
		}
	}
	if place < 0 {
		return 0, nil, fmt.Errorf("%w: the peer takes %d maps", iwarp.ErrLimit, len(c.maps))
	}
	if int64(len(buf)) > 1<<32-1 || offset < 0 {
		return 0, nil, fmt.Errorf("%w: map of %d bytes at %d", iwarp.ErrInvalid, len(buf), offset)
	}
	if c.data == maxData || !c.open || !c.out.MayNotify() {
		return 0, nil, nil
	}
	mr, err = c.pd.RegMR(buf, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	if err != nil {
		return 0, nil, err
	}
	c.maps[place] = mr
	at, _ := c.in.MapAt(place) // there is one: maps has as many places
	m := proto.IOMap{Offset: uint64(offset), Mem: proto.SGE{Addr: mr.Base(), Key: uint32(mr.STag()), Length: uint32(len(buf))}}
	c.data++
	c.postLocked(&iwarp.SendWR{
		ID: idLast, Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled | iwarp.More,
		STag: iwarp.STag(at.Key), TO: at.Addr, Data: m.Append(nil, c.peer.Order()),
	})
	c.postMessageLocked(proto.Message{Op: proto.OpIOMap, Arg: uint32(place)}, idData)
	return place, mr, nil
}

// unmap ends a map, once.
func (c *Conn) unmap(i int, mr iwarp.MR) error {
	c.mu.Lock()
	if c.closed || c.maps[i] != mr {
		c.mu.Unlock()
		return nil
	}
	c.maps[i] = nil
	c.mu.Unlock()
	return mr.Dereg()
}

// WriteAt writes p into memory that the peer has mapped to offset and following (riowrite). The
// peer is not told: follow it with a Write if it should be. Like Write it returns when everything
// is posted. It is ErrInvalid if the peer has mapped nothing there.
func (c *Conn) WriteAt(p []byte, offset int64) (n int, err error) {
	c.wr.turn.Lock()
	defer c.wr.turn.Unlock()
	for n < len(p) {
		c.mu.Lock()
		k, err := c.writeAtLocked(p[n:], uint64(offset)+uint64(n))
		c.mu.Unlock()
		n += k
		if err != nil {
			return n, c.opError("write", err)
		}
		if k == 0 {
			c.wait(&c.wr)
		}
	}
	return n, nil
}

// writeAtLocked posts one RDMA Write of the beginning of p, unless it has to wait.
func (c *Conn) writeAtLocked(p []byte, offset uint64) (int, error) {
	if err := c.mayWriteLocked(); err != nil {
		return 0, err
	}
	to, ok := c.out.Mapped(offset, min(len(p), maxTransfer, c.ring.room()))
	if !ok {
		return 0, fmt.Errorf("%w: the peer has mapped no memory at %d", iwarp.ErrInvalid, offset)
	}
	if to.Length == 0 || c.data == maxData {
		return 0, nil
	}
	c.data++
	c.postLocked(&iwarp.SendWR{
		ID: idData | uint64(to.Length), Op: iwarp.OpWrite, STag: iwarp.STag(to.Key), TO: to.Addr,
		SGL: c.ring.put(c.send, p[:to.Length], c.sendBase, c.nearMR.STag()),
	})
	return int(to.Length), nil
}
