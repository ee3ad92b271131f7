package stream

import (
	"errors"
	"io"
	"os"
)

// WriteTo keeps so many receives of so many bytes posted: twice as many as a sender with Buffered has slots, so that the stream is
// direct where they are there first (TestShares of package exs; E5 of lab/experiments.md).
const (
	aheadLen = slotLen
	ahead    = 2 * slots
)

// WriteTo writes to w what the peer sends, until the end of the stream. As io.Copy it has receives posted while w is written to,
// so that data goes straight into them. What has arrived when w fails is lost.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	a := &aheads{c: c}
	for err == nil {
		var k int64
		k, err = a.next(w)
		n += k
	}
	// After an error all are taken back: by the peer's end, by Close, or else here.
	failed := a.deaf
	rest, e := a.stop(w)
	n += rest
	if errors.Is(err, io.EOF) && !failed {
		err = e
	}
	return n, err
}

// aheads are the receives that WriteTo has posted.
type aheads struct {
	c    *Conn
	ops  []*Op // in order
	bufs [][]byte
	free [][]byte
	deaf bool // w has failed
}

// next writes to w what the first receive gets.
func (a *aheads) next(w io.Writer) (int64, error) {
	if err := a.c.stopped(); err != nil {
		return 0, err
	}
	for len(a.ops) < ahead {
		buf := a.buffer()
		op, err := a.c.PostRecv(buf, false)
		switch {
		case err == nil:
			a.ops, a.bufs = append(a.ops, op), append(a.bufs, buf)
			continue
		case len(a.ops) == 0:
			return 0, err
		}
		break // those that are posted come first
	}
	select {
	case <-a.ops[0].Done():
	case <-a.c.rd.wait():
		return 0, a.c.opErr("read", os.ErrDeadlineExceeded)
	case <-a.c.closing:
	}
	return a.first(w)
}

func (c *Conn) stopped() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opErr("read", c.stop(&c.rd))
}

// first waits for the first receive and writes what it got.
func (a *aheads) first(w io.Writer) (int64, error) {
	op, buf := a.ops[0], a.bufs[0]
	a.ops, a.bufs = a.ops[1:], a.bufs[1:]
	n, err := op.Wait()
	a.free = append(a.free, buf)
	if n == 0 || a.deaf {
		return 0, err
	}
	k, werr := w.Write(buf[:n])
	if werr != nil {
		a.deaf = true
		return int64(k), werr
	}
	return int64(k), err
}

// stop takes all receives back and writes what they got meanwhile, unless w has failed.
func (a *aheads) stop(w io.Writer) (n int64, err error) {
	if len(a.ops) > 0 {
		_ = a.c.takeBack(a.ops[len(a.ops)-1].recv)
	}
	for len(a.ops) > 0 {
		k, e := a.first(w)
		n += k
		if a.deaf && err == nil {
			err = e
		}
	}
	return n, err
}

func (a *aheads) buffer() []byte {
	if i := len(a.free) - 1; i >= 0 {
		buf := a.free[i]
		a.free = a.free[:i]
		return buf
	}
	return make([]byte, aheadLen)
}
