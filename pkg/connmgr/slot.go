package connmgr

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// foreign reports whether the wrapper belongs to another user. The text of such a wrapper is copied before it
// is used: text that changes while it is sent would break a frame's CRC, and with it the connection for all
// users' jobs.
func (c *client) foreign() bool { return c.uid != c.m.uid }

// takeSlot leases a slot and a sink to the client.
func (c *client) takeSlot() *ipc.GoLocal {
	source, err := c.m.memory.Source(c.Context(), c.uid, c.Watch)
	if err != nil {
		return attempt.NoSlot(err)
	}
	sink, err := c.m.memory.Sink(c.Context(), c.uid, c.Watch)
	if err != nil {
		source.Drop() // unused
		return attempt.NoSlot(err)
	}
	c.source, c.sink = source, sink
	c.m.farm.Prepare(c.list.Sched, 1)
	c.prepares = true
	return nil
}

// takeLarge counts a source of n bytes against the bound of large memory, until the last drop of its slot:
// the part for which slots keep no memory and, if it is another user's, its copy. The source has been written
// already, so the client keeps its preprocessor's turn while this waits: the number of these bounds what is
// not counted yet.
func (c *client) takeLarge(n uint64) *ipc.GoLocal {
	if n > uint64(c.m.o.Source) { // compile will answer that it is too big
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

// prepared stops counting the job as one that will soon want a place.
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

// endLease returns the slot. The wrapper can only read the sink. The source is reused only if no process can
// write to it any more: a preprocessor that has outlived its wrapper would overwrite the next job's text.
func (c *client) endLease() {
	if c.sink == nil {
		return
	}
	c.prepared()
	c.sink.Drop()
	if c.source != nil { // otherwise the manager has made the job by itself
		if !c.free {
			c.source.Spoil()
		}
		c.source.Drop()
	}
	c.source, c.sink = nil, nil
}

func closeFD(fd int) { _ = unix.Close(fd) } // EINTR and EIO mean nothing for a memfd

// slotEnd returns how many bytes of the slot are in use.
func slotEnd(f *ipc.Submit) uint64 { return uint64(f.BodyOff) + uint64(f.TextOff) + f.TextLen }
