package iwarp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// Immediate Data and atomics (RFC 7306).

// isAtomic reports whether op is an atomic, asks whether the peer answers it, and extends
// whether both sides must have agreed on it.
func (op Opcode) isAtomic() bool { return op == OpCmpSwap || op == OpFetchAdd }
func (op Opcode) asks() bool     { return op == OpRead || op.isAtomic() }
func (op Opcode) extends() bool  { return op.isAtomic() || op == OpImmediate || op == OpWriteImm }

// checkKind rejects operations that this connection does not have.
func (q *qp) checkKind(op Opcode) error {
	switch {
	case op.extends() && !q.extensions:
		return fmt.Errorf("%w: opcode %d on a connection without ConnParam.Extensions", ErrUnsupported, op)
	case op.asks() && q.ord == 0:
		return fmt.Errorf("%w: this connection has ORD 0: ConnParam.ORD and the peer's IRD allow RDMA Reads and atomics", ErrInvalid)
	}
	return nil
}

// atomicSize is the size of an atomic's result, in bytes.
const atomicSize = 8

// checkAtomic rejects a malformed atomic.
func checkAtomic(wr *SendWR, length uint64) error {
	switch {
	case wr.Flags&Inline != 0:
		return fmt.Errorf("%w: an atomic cannot be Inline", ErrInvalid)
	case length != atomicSize:
		return fmt.Errorf("%w: an atomic's SGL of %d bytes: what it brings is %d", ErrInvalid, length, atomicSize)
	case wr.TO%atomicSize != 0:
		return fmt.Errorf("%w: an atomic at TO %#x: not a multiple of %d", ErrInvalid, wr.TO, atomicSize)
	}
	return nil
}

// startAtomic begins the Atomic Request of slot. It returns false if its sink is not valid.
func (q *qp) startAtomic(slot *sendSlot) bool {
	if !q.writable(slot.sgl) {
		return false
	}
	t := &q.tx
	a := &slot.wr.Atomic
	req := rdmap.AtomicRequest{Op: rdmap.FetchAdd, ID: uint32(q.sinkSTag()), STag: slot.wr.STag, TO: slot.wr.TO, Data: a.Add, Mask: a.AddMask}
	if slot.wr.Op == OpCmpSwap {
		req.Op, req.Data, req.Mask, req.Compare, req.CompareMask = rdmap.CmpSwap, a.Swap, a.SwapMask, a.Compare, a.CompareMask
	}
	q.mu.Lock()
	q.newRequest(outRead{op: rdmap.OpAtomicResponse, sq: t.next, id: req.ID, size: atomicSize})
	q.mu.Unlock()
	req.Put(t.head[:])
	t.sender.Start(rdmap.Message{Op: rdmap.OpAtomicRequest, Head: t.head[:rdmap.AtomicRequestSize]})
	q.stats.atomicsSent.Add(1)
	return true
}

// startImmediate begins the Immediate Data of slot.
func (q *qp) startImmediate(slot *sendSlot) {
	op := rdmap.OpImmediate
	if slot.wr.Flags&Solicited != 0 {
		op = rdmap.OpImmediateSE
	}
	q.tx.sender.Start(rdmap.Message{Op: op, Head: slot.wr.Imm[:]})
}

// AtomicRequest implements rdmap.Consumer. The operation is done here, where requests arrive
// in order; only its response waits for its turn.
func (x *rxState) AtomicRequest(r rdmap.AtomicRequest) rdmap.Fault {
	q := x.q
	m := q.dev.mrs.lookup(r.STag)
	b, f := m.remoteSpan(q, RemoteAtomic, r.TO, atomicSize)
	if f != rdmap.FaultNone {
		return f
	}
	defer m.remote.leave()
	p := unsafe.Pointer(&b[0])
	if uintptr(p)%atomicSize != 0 {
		return rdmap.FaultAlign
	}
	// Native atomics: atomic among all streams of all devices, and for code that uses
	// sync/atomic on the same memory.
	word := (*uint64)(p)
	old := atomic.LoadUint64(word)
	for !atomic.CompareAndSwapUint64(word, old, r.Apply(old)) {
		old = atomic.LoadUint64(word)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.newHeldLocked()
	e.op, e.size = rdmap.OpAtomicResponse, 0
	e.old = rdmap.AtomicResponse{ID: r.ID, Old: old}
	x.work = true
	return rdmap.FaultNone
}
