package worker

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// SlotAccess says how clients get access to slots and lose it again.
type SlotAccess uint8

const (
	// SlotsAuto is SlotsAnew unless registering memory is expensive on the device.
	SlotsAuto SlotAccess = iota
	// SlotsAnew registers a slot for each credit. The message that spends the credit ends the registration,
	// so the client can no longer write what the daemon reads.
	SlotsAnew
	// SlotsKept registers a slot once for a connection. The client can write to it at any time, until the
	// connection ends; so the daemon copies what a job brings before it looks at it.
	SlotsKept
)

// slot is memory that one connection's client may write to while the slot is open.
type slot struct {
	buf *shm.Buffer
	mr  iwarp.MR
}

// keptTime is how long an open slot without a credit stays registered. Registered memory is pinned.
const keptTime = time.Minute

// copyPrefault is how many bytes of a copy of a slot stay allocated. It is enough for most jobs.
const copyPrefault = 1 << 20

// keptSlots are a connection's open slots that no credit names at the moment, the latest last.
type keptSlots struct {
	use   bool // slots stay open
	slots []slot
	since []time.Time
}

// keepsSlots reports whether connections keep their slots open.
func (s *Server) keepsSlots() bool {
	switch a := s.o.Device.Attr(); s.o.Slots {
	case SlotsAnew:
		return false
	case SlotsKept:
		return true
	default:
		return a.PinsMR && !a.FastReg && !a.MemoryWindow
	}
}

// openSlotLocked returns a slot that the client may write to, or nil if all are in use or the system has no
// memory. A later rebalance tries again.
func (c *conn) openSlotLocked() *slot {
	if n := len(c.kept.slots); n > 0 {
		k := c.kept.slots[n-1]
		c.kept.slots, c.kept.since = c.kept.slots[:n-1], c.kept.since[:n-1]
		return &k
	}
	// The pool wipes a slot that changes its owner, which is the connection: a job may name more text than
	// its client has written, and would be compiled from what an earlier job has left.
	buf, err := c.s.slots.TryGet(uint32(c.id))
	if buf == nil && err == nil && c.s.dropKeptLocked(time.Time{}) > 0 {
		buf, err = c.s.slots.TryGet(uint32(c.id))
	}
	if err != nil {
		c.log.Warn("no slot", "err", err)
	}
	if buf == nil {
		return nil
	}
	var k *slot
	defer func() {
		if k == nil {
			buf.Put()
		}
	}()
	if !c.s.o.Device.Attr().ReadRight {
		clear(buf.Bytes()) // on this device the peer can read the slot too
	}
	// On the software device a registration costs a microsecond, and nothing that revokes is cheaper (experiment E3b,
	// lab/experiments.md); with an adapter it would be the hidden cost of experiment E3.
	//
	// Bound to this QP, so that no other stream can write to it, and this one's Job or Return can invalidate
	// it.
	mr, err := c.pd.RegMR(buf.Bytes(), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		c.log.Warn("no slot", "err", err)
		return nil
	}
	c.s.o.Metrics.slotRegistered()
	k = &slot{buf: buf, mr: mr}
	return k
}

// shutSlot ends the client's access to k, unless slots stay open. w is the message that spends the credit; it
// must have invalidated the slot then, and must not have if slots stay open.
func (c *conn) shutSlot(w *iwarp.WC, k *slot) bool {
	if !c.kept.use {
		return c.shut(w, k.mr)
	}
	return !c.s.o.Device.Attr().WCMarks || !w.Inv
}

// closeSlotLocked takes back a slot that nothing reads or writes any more, apart from the client if slots stay
// open.
func (c *conn) closeSlotLocked(k slot) error {
	if c.kept.use {
		c.kept.slots, c.kept.since = append(c.kept.slots, k), append(c.kept.since, time.Now())
		return nil
	}
	return k.close()
}

// close ends the registration and returns the memory to its pool.
func (k *slot) close() error {
	if err := k.mr.Dereg(); err != nil {
		k.buf.Discard() // the peer may still reach it, so no later job may use it
		return fmt.Errorf("free slot: %w", err)
	}
	k.buf.Put()
	return nil
}

// dropKeptLocked closes the slots of all connections that have been without a credit since before the time
// given, or all that are without one if that is zero. It returns how many they were.
func (s *Server) dropKeptLocked(before time.Time) (dropped int) {
	for c := range s.conns {
		n := 0
		for n < len(c.kept.slots) && (before.IsZero() || c.kept.since[n].Before(before)) {
			if err := c.kept.slots[n].close(); err != nil {
				c.log.Error("slot", "err", err)
			}
			n++
		}
		c.kept.slots, c.kept.since = c.kept.slots[n:], c.kept.since[n:]
		dropped += n
	}
	return dropped
}

// closeKeptLocked closes all of the connection's open slots, and keeps none from now on. Its QP is destroyed.
func (c *conn) closeKeptLocked() (errs []error) {
	for i := range c.kept.slots {
		errs = append(errs, c.kept.slots[i].close())
	}
	c.kept = keptSlots{}
	return errs
}

func (k *slot) window() job.Window {
	if k.mr == nil {
		return job.Window{}
	}
	return job.Window{STag: uint32(k.mr.STag()), TO: k.mr.Base(), Len: uint64(k.mr.Len())}
}

// bytes returns the memory that the client may write to.
func (k *slot) bytes() []byte { return k.buf.Bytes()[:k.mr.Len()] }

// takeSource makes the task's source safe from its client: while the slot is open, the client can still write
// to it, so what the job brings is copied. The job's numbers have been checked.
func (t *task) takeSource() error {
	k, m := t.k, t.m
	if !t.c.kept.use || m.Carrier() != job.Write {
		return nil // nothing that matters is in the slot; lodge gives the task memory when it needs some
	}
	own, err := t.c.s.copies.TryGet(uint32(t.c.id))
	if own == nil {
		t.c.log.Warn("no memory for a source", "err", err)
		return job.Refuse(job.CauseFull, "no memory for the source")
	}
	n := uint64(m.TextOff) + m.TextLen
	if m.Packed != 0 {
		n = m.Packed
	}
	to := own.Bytes()[:k.mr.Len()]
	copy(to, k.bytes()[:n])
	t.job.Source.Slot = to
	t.c.s.mu.Lock()
	k.own = own
	t.c.s.mu.Unlock()
	return nil
}

// result returns the memory from which a result of the task is sent, which is open to the client if slots
// stay open. The first n bytes are the result.
func (t *task) result(n int) iwarp.SGE {
	if t.k.buf == nil {
		return iwarp.SGE{Addr: t.k.ownMR.Base(), Length: uint32(n), LKey: t.k.ownMR.STag()}
	}
	if t.k.own != nil {
		copy(t.k.bytes(), t.k.own.Bytes()[:n])
	}
	return iwarp.SGE{Addr: t.k.mr.Base(), Length: uint32(n), LKey: t.k.mr.STag()}
}
