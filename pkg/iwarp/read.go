package iwarp

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// nobody, as outRead.sq, marks a request without a place in the SQ.
const nobody = ^uint64(0)

// outRead is an RDMA Read or atomic of ours that the peer has not answered.
type outRead struct {
	op   rdmap.Opcode // of the response
	sq   uint64       // its place in the SQ, or nobody
	stag STag         // a Read's sink, as named to the peer: for this Read alone
	id   uint32       // an atomic's
	size uint32       // bytes
}

// inRead is an RDMA Read or atomic of the peer that is not answered.
type inRead struct {
	op   rdmap.Opcode // of the response
	size uint32       // bytes of payload of the response
	slow bool         // it is read from a Source, which may block
	req  rdmap.ReadRequest
	seg  [rdmap.ReadRequestSegment]byte // of a Read, as it came, for a Terminate
	old  rdmap.AtomicResponse
}

// startRead begins the Read Request of slot. It returns false if its sink is not valid.
func (q *qp) startRead(slot *sendSlot) bool {
	if !q.writable(slot.sgl) {
		return false
	}
	t := &q.tx
	req := rdmap.ReadRequest{SinkSTag: q.sinkSTag(), Size: uint32(slot.length), SrcSTag: slot.wr.STag, SrcTO: slot.wr.TO}
	q.mu.Lock()
	q.newRequest(outRead{op: rdmap.OpReadResponse, sq: t.next, stag: req.SinkSTag, size: req.Size})
	q.mu.Unlock()
	if req.Size == 0 && req.SrcSTag == 0 {
		req.SrcSTag = 1 // not checked, but STag 0 upsets some RNICs
	}
	req.Put(t.head[:])
	t.sender.Start(rdmap.Message{Op: rdmap.OpReadRequest, Head: t.head[:rdmap.ReadRequestSize]})
	q.stats.readsSent.Add(1)
	return true
}

// writable reports whether sgl names memory that a response may be written to. That is checked
// again when the response arrives.
func (q *qp) writable(sgl []SGE) bool {
	for i := range sgl {
		s := &sgl[i]
		if s.Length == 0 {
			continue // its LKey is not checked
		}
		m, _, ok := q.dev.localSpan(q.pd, s, LocalWrite)
		if !ok {
			return false
		}
		m.local.leave()
	}
	return true
}

// newRequest records a request that is about to be sent.
func (q *qp) newRequest(o outRead) {
	if q.orq == nil {
		q.orq = make([]outRead, max(q.ord, 1)) // an RTR is sent whatever ORD is
	}
	q.orq[q.orqTail%uint64(len(q.orq))] = o
	q.orqTail++
}

// sinkSTag makes an STag for the sink of one Read. It names no region: only the
// list of outstanding Reads knows it, so the peer learns nothing that it could
// write to later (RFC 5042 §6.2.1).
func (q *qp) sinkSTag() STag {
	for {
		s := STag(q.dev.mrs.entropy.uint32())
		if s != 0 && q.dev.mrs.lookup(s) == nil {
			return s
		}
	}
}

// startResponse begins the response to the oldest request that has none. It returns false if the
// source is gone, which ends the stream.
func (q *qp) startResponse() bool {
	t := &q.tx
	e := &q.irq[t.answer%uint64(len(q.irq))]
	m := rdmap.Message{Op: e.op, STag: e.req.SinkSTag, TO: e.req.SinkTO}
	if e.op == rdmap.OpAtomicResponse {
		e.old.Put(t.head[:])
		m.Head = t.head[:rdmap.AtomicResponseSize]
	}
	t.payload = t.payload[:0]
	if e.size > 0 {
		b, m, f := q.enterSource(&e.req, 0)
		if f != rdmap.FaultNone {
			q.sourceFault(e, f, 0)
			return false
		}
		if m.guard != nil || m.source != nil {
			room := q.guardedRoom(int(e.size))
			if room == nil {
				return false // the batch goes first
			}
			if !m.copyOut(room, b, e.req.SrcTO) {
				q.sourceFault(e, rdmap.FaultSTag, 0)
				return false
			}
			b, t.copied = room, true
		}
		t.payload = append(t.payload, b)
	}
	m.Payload = t.payload
	t.replying = true
	t.sender.Start(m)
	return true
}

// source makes the rest of the response in progress usable for another batch. Between batches
// the region is not held: its owner may take it away in the middle of a response. source then
// returns false.
func (q *qp) source() bool {
	t := &q.tx
	e := &q.irq[t.answer%uint64(len(q.irq))]
	if e.size == 0 || t.copied {
		return true
	}
	sent := t.sender.Sent()
	if _, _, f := q.enterSource(&e.req, sent); f != rdmap.FaultNone {
		q.sourceFault(e, f, sent)
		return false
	}
	return true
}

// enterSource returns the memory of r from byte sent on, until the batch is written.
func (q *qp) enterSource(r *rdmap.ReadRequest, sent uint64) ([]byte, *mr, rdmap.Fault) {
	m := q.dev.mrs.lookup(r.SrcSTag)
	b, f := m.remoteSpan(q, RemoteRead, r.SrcTO+sent, uint64(r.Size)-sent)
	if f != rdmap.FaultNone {
		return nil, nil, f
	}
	q.tx.sources = append(q.tx.sources, m)
	return b, m, f
}

// guardedRoom returns room for a copy of n bytes of guarded memory, or of a Source, for the responses of this
// batch: whatever their owner does then, CRC and TCP see the same bytes. It returns nil when there is no room
// before the batch has been written.
func (q *qp) guardedRoom(n int) []byte {
	t := &q.tx
	from := len(t.guarded)
	switch {
	case from+n <= cap(t.guarded):
	case from > 0:
		return nil
	case n <= guardedShort:
		t.guarded = make([]byte, 0, guardedShort)
	default:
		t.guarded = guardedLong.Get().(*[GuardedMax]byte)[:0]
	}
	t.guarded = t.guarded[:from+n]
	return t.guarded[from:]
}

// copyOut fills room with b, which is memory of m at to, or with what is there in m's Source. It returns false
// if that has an error.
func (m *mr) copyOut(room, b []byte, to uint64) bool {
	if m.source != nil {
		n, err := m.source.ReadAt(room, int64(to-m.base))
		return n == len(room) || err == nil
	}
	m.guard.Lock()
	defer m.guard.Unlock()
	copy(room, b)
	return true
}

// Copies of guarded memory. A QP keeps room for short ones, as of a page that a peer reads again and
// again. Room for long ones is borrowed.
const guardedShort = 4 << 10

var guardedLong = sync.Pool{New: func() any { return new([GuardedMax]byte) }}

// dropGuarded forgets the copies of guarded memory, once they have been written.
func (t *txState) dropGuarded() {
	if cap(t.guarded) == GuardedMax {
		guardedLong.Put((*[GuardedMax]byte)(t.guarded[:GuardedMax]))
		t.guarded = nil
	}
	t.guarded = t.guarded[:0]
}

// settleAnswers releases the places of the requests whose responses are in the batch that is
// about to be written: the peer may have the last byte, and ask again, before the write has
// returned.
func (q *qp) settleAnswers() {
	if t := &q.tx; t.settled != t.answer {
		t.settled = t.answer
		q.mu.Lock()
		q.irqHead = t.answer
		q.mu.Unlock()
	}
}

func (q *qp) leaveSources() {
	t := &q.tx
	for i, m := range t.sources {
		m.remote.leave()
		t.sources[i] = nil
	}
	t.sources = t.sources[:0]
	if !t.copied {
		t.dropGuarded()
	}
}

// A peer that does not read keeps a write of its responses from ending, and their sources in
// use. The owner of such memory waits no longer than for other last messages: sourcesWritten and
// hurry give such a write LingerTimeout, after which the stream ends.

// writeSources is called before a write that may block, sourcesWritten after it.
func (q *qp) writeSources() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sources = q.tx.sources
	for _, m := range q.sources {
		if m.remote.isShut() {
			q.hurryLocked()
			return
		}
	}
}

func (q *qp) sourcesWritten() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sources = nil
	if q.hurried {
		q.hurried, q.tx.deadline = false, time.Time{} // the next write has its own time
	}
}

func (q *qp) hurryLocked() {
	if q.sends < sendLast { // otherwise rx has set a deadline that is as near
		q.hurried = true
		_ = q.conn.SetWriteDeadline(time.Now().Add(q.dev.cfg.LingerTimeout))
	}
}

// hurry limits the writes that keep m, which is shut, in use.
func (d *soft) hurry(m *mr) {
	d.mu.Lock()
	qps := keys(d.qps)
	d.mu.Unlock()
	for _, q := range qps {
		q.mu.Lock()
		if slices.Contains(q.sources, m) {
			q.hurryLocked()
		}
		q.mu.Unlock()
	}
}

// sourceFault ends the stream at e, of whose response sent bytes have been sent.
func (q *qp) sourceFault(e *inRead, f rdmap.Fault, sent uint64) {
	term := rdmap.TerminateRead(f, e.seg[:], sent)
	q.mu.Lock()
	defer q.mu.Unlock()
	// It takes precedence over a later request that rx has refused meanwhile.
	if !q.ended || q.answerFirst {
		q.term = &term
		q.ended, q.cause = true, terminateError(&term, "the source of an RDMA Read was taken away: "+term.Meaning())
		q.state = StateTerminate
	}
	q.answerFirst = false
	q.onlyLocked(sendLast)
	_ = q.conn.SetReadDeadline(past) // wakes rx, which takes the QP down
}

// asksLocked reports whether there are Reads that a peer has to answer.
func (q *qp) asksLocked() bool {
	for i := q.sqHead; i != q.sqTail; i++ {
		if q.sq[i%uint64(len(q.sq))].unanswered {
			return true
		}
	}
	return false
}

// refusedLocked returns the outstanding Read or atomic whose header the peer's Terminate t
// contains, or nil.
func (q *qp) refusedLocked(t *rdmap.Terminate) *outRead {
	for i := q.orqHead; i != q.orqTail; i++ {
		o := &q.orq[i%uint64(len(q.orq))]
		switch {
		case o.sq == nobody:
		case t.ReadRequest != nil: // its MSN is garbage where siw says it
			if STag(binary.BigEndian.Uint32(t.ReadRequest)) == o.stag {
				return o
			}
		case len(t.DDP) == ddp.UntaggedSize:
			// Only requests go on their queue, so their MSNs count them.
			if h := ddp.ParseUntagged(t.DDP); h.QN == rdmap.QNReadRequest && h.MSN == uint32(i+1) {
				return o
			}
		}
	}
	return nil
}

// RequestRoom implements rdmap.Consumer.
func (x *rxState) RequestRoom() bool {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.irqTail-q.irqHead < q.ird
}

// ReadRequest implements rdmap.Consumer.
func (x *rxState) ReadRequest(r rdmap.ReadRequest, seg []byte) rdmap.Fault {
	q, slow := x.q, false
	if r.Size > 0 { // "the source is not checked" for a Read of nothing (after RFC 5040 §5.2.1)
		m := q.dev.mrs.lookup(r.SrcSTag)
		if _, f := m.remoteSpan(q, RemoteRead, r.SrcTO, uint64(r.Size)); f != rdmap.FaultNone {
			return f
		}
		slow = m.source != nil
		m.remote.leave()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.newHeldLocked()
	e.op, e.req, e.size, e.slow = rdmap.OpReadResponse, r, r.Size, slow
	copy(e.seg[:], seg)
	x.work = true
	return rdmap.FaultNone
}

// newHeldLocked returns a place for a request of the peer, after RequestRoom returned true.
func (q *qp) newHeldLocked() *inRead {
	if q.irq == nil {
		q.irq = make([]inRead, max(q.ird, 1)) // an RTR arrives whatever IRD is
	}
	q.irqTail++
	e := &q.irq[(q.irqTail-1)%uint64(len(q.irq))]
	e.slow = false
	return e
}

// NextResponse implements rdmap.Consumer.
func (x *rxState) NextResponse() (rdmap.Expected, bool) {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.orqHead == q.orqTail {
		return rdmap.Expected{}, false
	}
	x.out = &q.orq[q.orqHead%uint64(len(q.orq))]
	return rdmap.Expected{Op: x.out.op, ID: x.out.id, STag: x.out.stag, Size: x.out.size}, true
}

// PlaceResponse implements rdmap.Consumer.
func (x *rxState) PlaceResponse(off uint64, p []byte) rdmap.Fault {
	q := x.q
	return x.scatter(q.sq[x.out.sq%uint64(len(q.sq))].sgl, off, p)
}

// DeliverResponse implements rdmap.Consumer.
func (x *rxState) DeliverResponse() {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.out.sq != nobody {
		q.sq[x.out.sq%uint64(len(q.sq))].unanswered = false
	}
	x.out = nil
	q.orqHead++
	before := q.sqHead
	if q.completeLocked(q) {
		x.woke = q.sendCQ
	}
	// The answer may come before PostSend has returned. Its caller is then about to wait, as far as one can
	// tell from a lone request.
	if q.sqHead == before && q.sqHead == q.sqSent && q.sqTail-q.sqHead == 1 {
		x.woke = q.sendCQ
	}
	x.work = true // for work that waited for this Read
}

// FailResponse implements rdmap.Consumer.
func (x *rxState) FailResponse(f rdmap.ResponseFault) {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.out.sq == nobody {
		return
	}
	q.badWR, q.badCode = int64(x.out.sq), StatusBadRespErr
	if f == rdmap.ResponseLocal {
		q.badCode = StatusLocProtErr
	}
}
