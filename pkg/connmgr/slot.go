package connmgr

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// foreign reports whether the wrapper is another user's. Its text is copied before it
// is used: text that changes while it is sent breaks a frame's CRC, and with it the
// connection for all users' jobs.
func (c *client) foreign() bool { return c.uid != c.m.uid }

// takeSlot leases the pair of buffers.
func (c *client) takeSlot() *ipc.GoLocal {
	source, err := c.m.memory.Source(c.Context(), c.uid, c.Watch)
	if err != nil {
		return attempt.NoSlot(err)
	}
	sink, err := c.m.memory.Sink(c.Context(), c.uid, c.Watch)
	if err != nil {
		source.Drop() // nobody has seen it
		return attempt.NoSlot(err)
	}
	c.source, c.sink = source, sink
	c.m.farm.Prepare(c.list.Sched, 1)
	c.prepares = true
	return nil
}

// takeLarge counts a source of n bytes, as far as slots do not keep memory for it,
// and the copy of another user's, against what all of these may take together, until
// the last drop. The source has been written already, so the preprocessor's turn is
// kept while this waits: what is not counted yet is bounded by their number.
func (c *client) takeLarge(n uint64) *ipc.GoLocal {
	if n > uint64(c.m.o.Source) { // compile has words for it
		return nil
	}
	need, ok := c.m.memory.Counts(n, c.foreign())
	switch {
	case !ok:
		return &ipc.GoLocal{Reason: reason.TooBig,
			Detail: fmt.Sprintf("the source takes %d bytes, all large ones together may take %d (buffers.large)", need, c.m.o.Large)}
	case need > 0 && !c.source.TryCount(int64(need)):
		c.Watch()
		if c.source.Count(c.Context(), int64(need)) != nil {
			return attempt.Interrupted
		}
	}
	return nil
}

// prepared ends that the job counts as one that wants a place soon.
func (c *client) prepared() {
	if c.prepares {
		c.prepares = false
		c.m.farm.Prepare(c.list.Sched, -1)
	}
}

// text returns the first n bytes of the slot.
func (c *client) text(n uint64) ([]byte, error) {
	if b := c.source.Bytes(); n <= uint64(len(b)) {
		return b[:n], nil
	}
	return c.source.Extend(int64(n))
}

// endLease gives the slot back. The wrapper only ever reads the sink. The source
// is used again only when nobody can write it any more: a preprocessor that
// outlived its wrapper would scribble over the next job's text.
func (c *client) endLease() {
	if c.sink == nil {
		return
	}
	c.prepared()
	c.sink.Drop()
	if c.source != nil { // else the manager has made the job by itself
		if !c.free {
			c.source.Spoil()
		}
		c.source.Drop()
	}
	c.source, c.sink = nil, nil
}

func closeFD(fd int) { _ = unix.Close(fd) } // EINTR and EIO mean nothing for a memfd

// slotEnd returns how far the slot is in use, in bytes.
func slotEnd(f *ipc.Submit) uint64 { return uint64(f.BodyOff) + uint64(f.TextOff) + f.TextLen }
