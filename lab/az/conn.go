package az

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// Options say when a Conn does not copy. The zero value is right.
type Options struct {
	Min    int  // bytes from which a Write is sent in place. 0: Arena.Threshold; negative: none is
	Always bool // also if the application writes to what is being sent so often that copying costs less
}

// Stats counts what a Conn has done.
type Stats struct {
	InPlace uint64 // bytes that were sent in place
	Copied  uint64 // bytes that were copied, by Write
	Sends   uint64 // that were in place
	Touched uint64 // bytes of pages that the application wrote to meanwhile, and that were copied twice
	Refused uint64 // sends that were copied as the application had touched too much
	Stuck   uint64 // times that a view could not be mapped, and a send was copied for that
}

// Conn is a stream that sends from an arena in place. Only Write differs from the stream that it is made of.
type Conn struct {
	*stream.Conn
	arena  *Arena
	memory *stream.Memory
	o      Options

	mu    sync.Mutex       // guards what follows
	err   error            // of an earlier Write that has returned, to be reported
	sent  map[*Buffer]bool // that are not settled
	trial trial
	stats Stats
}

// New makes a Conn of c, which must copy what it is given to Write (stream.Buffered).
func New(c *stream.Conn, a *Arena, o Options) (*Conn, error) {
	m, err := c.Register(a.shared)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Min == 0:
		o.Min = a.Threshold()
	case o.Min < 0:
		o.Min = math.MaxInt
	}
	return &Conn{Conn: c, arena: a, memory: m, o: o, sent: make(map[*Buffer]bool)}, nil
}

// Min returns the number of bytes from which a Write is sent in place.
func (c *Conn) Min() int { return c.o.Min }

// Write sends p. If p lies in the arena and is long enough it returns at once, and p can be changed: what is sent is what was in it. If
// the buffer is still being sent from, by whichever connection, Write waits for that, whatever its deadline. Other data it copies. An error is that of an
// earlier Write if that was sent in place; nothing of p is sent then.
func (c *Conn) Write(p []byte) (n int, err error) {
	for {
		b, off := c.arena.find(p[n:])
		var k int
		if b == nil {
			if err = c.failure(); err == nil {
				k, err = c.copy(p[n:])
			}
		} else {
			k, err = c.send(b, off, min(len(p)-n, c.arena.size-off))
		}
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// send sends n bytes of b.
func (c *Conn) send(b *Buffer, off, n int) (int, error) {
	b.settle()
	if err := c.failure(); err != nil {
		return 0, err
	}
	if n < c.o.Min || b.apart || !c.worthwhile() {
		return c.copy(b.app[off : off+n])
	}
	if err := b.part(); err != nil {
		c.stuck()
		return c.copy(b.app[off : off+n])
	}
	b.conn, b.n = c, n
	op, err := c.memory.PostSend(b.off+off, n)
	if err != nil {
		b.settle()
		if errors.Is(err, iwarp.ErrQueueFull) {
			return c.copy(b.app[off : off+n])
		}
		return 0, err
	}
	b.op = op
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.InPlace += uint64(n)
	c.stats.Sends++
	c.sent[b] = true
	return n, nil
}

func (c *Conn) copy(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Copied += uint64(n)
	return n, err
}

// Reclaim waits until the buffers that p lies in are not sent from any more, and makes writing to them cheap again. It returns the
// error of an earlier Write.
func (c *Conn) Reclaim(p []byte) error {
	for len(p) > 0 {
		b, off := c.arena.find(p)
		if b == nil {
			break
		}
		b.settle()
		p = p[min(len(p), c.arena.size-off):]
	}
	return c.failure()
}

// Flush waits until all that was sent in place on this connection has left, and returns the error of an earlier Write.
func (c *Conn) Flush() error {
	c.mu.Lock()
	sent := slices.Collect(maps.Keys(c.sent))
	c.mu.Unlock()
	for _, b := range sent {
		b.settle()
	}
	return c.failure()
}

// failure returns the error of an earlier Write, once.
func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.err
	c.err = nil
	return err
}

// settled notes how a send has ended, if there was one: how many bytes of pages were written to meanwhile, why not all was sent, and
// why the views of the buffer could not be brought together.
func (c *Conn) settled(b *Buffer, sent bool, touched int, lost, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Touched += uint64(touched)
	if err != nil {
		c.stats.Stuck++ // the next call for the buffer tries again
	}
	delete(c.sent, b)
	if sent {
		c.trial.settled(b.n, touched, &c.arena.costs)
	}
	if lost != nil && c.err == nil {
		c.err = lost
	}
}

func (c *Conn) stuck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Stuck++
}

// worthwhile reports whether sends in place cost less than copies, as far as the last ones tell.
func (c *Conn) worthwhile() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Always || c.trial.worthwhile() {
		return true
	}
	c.stats.Refused++
	return false
}

// Stats returns what has been done so far.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// trial finds out whether sends in place cost less than copies would: over so many of them at a time. If not, copies follow for a
// while, and then the next trial.
type trial struct {
	sends, touched int
	bytes          int
	pause          int // sends that are copied before the next trial
}

const (
	trialSends = 16
	trialPause = 15 * trialSends // so that a trial in vain costs a sixteenth of what it would all the time
)

func (t *trial) worthwhile() bool {
	if t.pause == 0 {
		return true
	}
	t.pause--
	return false
}

func (t *trial) settled(n, touched int, c *Costs) {
	t.bytes += n
	t.touched += touched
	if t.sends++; t.sends < trialSends {
		return
	}
	inPlace := trialSends*c.Remap + time.Duration(t.touched/smallPage)*c.Touch
	copies := time.Duration(float64(t.bytes) / c.Copy * buffering * float64(time.Second))
	*t = trial{}
	if inPlace > copies {
		t.pause = trialPause
	}
}
