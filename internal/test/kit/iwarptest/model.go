package iwarptest

import (
	"encoding/binary"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// model is a reference of the verbs, without any device: what requests do to memory, and how they
// complete. It executes each request to its end when it is posted, which is one of the orders that
// a device may choose. It also finds out which requests must not be under way together because
// another order would give another result.
type model struct {
	qps   [2][]*mQP
	batch []access // of requests that may still be under way
}

// mBuf is memory, the device's and the model's.
type mBuf struct {
	real      []byte // the device's memory
	want      []byte // what it must contain
	undefined []bool // bytes that may have any value, after a request failed half-way
}

// mRegion is what an STag names.
type mRegion struct {
	side, pd      int
	kind          mKind
	buf           *mBuf
	lo, hi        int // part of buf
	stag          iwarp.STag
	base          uint64
	access        iwarp.Access
	bound         *mQP
	life          int // number of the stream of bound
	remote, local bool
	parent        *mRegion
	windows       int  // open on it
	gone          bool // its STag names nothing any more
	mr            iwarp.MR
}

type mKind uint8

const (
	mRegistered mKind = iota
	mFast
	mWindow
)

func (r *mRegion) boundTo(q *mQP) bool { return r.bound == q && r.life == q.life }

// end applies the end of r by a work request or by the peer. It returns false if r must not be
// ended.
func (r *mRegion) end() bool {
	if r.windows > 0 {
		return false
	}
	if r.parent != nil {
		r.parent.windows--
		r.parent = nil
	}
	r.remote = false
	r.local = r.local && r.kind == mRegistered
	return true
}

// mSRQ is a shared receive queue.
type mSRQ struct {
	queue []*mRecv
	taken int // completed, not yet polled
	real  iwarp.SRQ
}

// mQP is a queue pair.
type mQP struct {
	name     string
	side, pd int
	srq      *mSRQ
	real     iwarp.QP

	oneDevice bool // both sides are the same device

	state iwarp.QPState
	life  int
	peer  *mQP
	reads bool // ORD and IRD are not 0
	ext   bool // Immediate Data and atomics
	rq    []*mRecv

	after   afterWrite // the last message that q sent
	written uint32     // its length

	sends, recvs []*expect // completions to come, including failed and merely possible ones
	more         bool      // the last request announced another one
	fresh        bool      // it ended after everything was last settled
	guilty       bool      // and by a request of its own
	end          ending
}

type afterWrite uint8

const (
	notAfterWrite afterWrite = iota
	afterAWrite
	perhapsAfterWrite // a Read Response may have come between
)

// mRecv is a posted receive.
type mRecv struct {
	id  uint64
	sgl []mSGE
}

func (r *mRecv) room() (n uint64) { return sglBytes(r.sgl) }

func sglBytes(sgl []mSGE) (n uint64) {
	for _, s := range sgl {
		n += uint64(s.n)
	}
	return n
}

// mSGE names memory. r is nil where the key names nothing.
type mSGE struct {
	r   *mRegion
	key iwarp.STag
	to  uint64
	n   uint32
}

// mWR is a request.
type mWR struct {
	iwarp.SendWR          // without SGL
	sgl          []mSGE   // instead of Data
	target       *mRegion // that STag names, or nil
	inv          *mRegion // that InvSTag names, or nil
	holder       *mHolder // of Reg or Bind
	made         *mRegion // region made by Reg or Bind
}

func (w *mWR) length() uint64 { return sglBytes(w.sgl) + uint64(len(w.Data)) }

// statusSet is the set of statuses that a completion may have.
type statusSet uint16

func only(s ...iwarp.Status) (set statusSet) {
	for _, s := range s {
		set |= 1 << s
	}
	return set
}

// expect is a completion to come.
type expect struct {
	id     uint64
	ok     statusSet
	silent bool // no completion on success
	wc     iwarp.WC
	anyOp  bool // wc.Op and ByteLen are not certain
}

// code holds the codes of a Terminate.
type code struct{ layer, typ, code uint8 }

// ending describes how a stream ended.
type ending struct {
	kind endKind
	code code
}

type endKind uint8

const (
	endGraceful   endKind = iota
	endAborted            // by this side's program, or by the peer's, without a Terminate
	endFound              // this side has sent a Terminate
	endTerminated         // the peer has
)

// access is a use of memory, of a region's validity or of a queue by a request that may be under
// way.
type access struct {
	space  any // *mBuf, *mRegion, *mSRQ or *mQP (the order of what it sends)
	lo, hi int
	write  bool
	flow   *mQP // the QP whose request it is
	kind   accessKind
	over   bool // a fence has been passed since
}

type accessKind uint8

const (
	byPoster accessKind = iota // at posting, before everything that comes later
	gather                     // when the request is sent
	place                      // when it arrives
	alter                      // likewise, by an atomic
	fetch                      // by a Read, later
	sink                       // when the response arrives
)

// orderedBefore reports whether y certainly happens before x, which belongs to a later request.
func (y *access) orderedBefore(x *access) bool {
	if y.flow != x.flow {
		return false
	}
	switch y.kind {
	case gather:
		return x.kind != byPoster
	case place:
		return x.kind == place || x.kind == alter || x.kind == fetch || x.kind == sink
	case alter:
		return x.kind == alter || y.over && x.kind != byPoster
	case fetch, sink:
		return y.over && x.kind != byPoster
	}
	return true
}

// effect describes what a request will do.
type effect struct {
	err    error // the error of posting; errAny for one of several
	settle bool  // unpredictable until everything under way has settled
	fence  bool  // comes after all earlier Reads of its QP
	uses   []access
	made   *mRegion // a region that it makes
	holder *mHolder // the holder of made
	ends   bool     // it ends the stream
	do     func()
}

// clashes reports whether e must wait until what is under way has settled.
func (m *model) clashes(q *mQP, e *effect) bool {
	for i := range m.batch {
		y := m.batch[i]
		// The end of a stream may only coincide with what was sent before it on that stream.
		if e.ends && (y.flow != q || y.kind >= alter) {
			return true
		}
		y.over = y.over || e.fence && y.flow == q
		for j := range e.uses {
			x := &e.uses[j]
			if x.space == y.space && x.lo < y.hi && y.lo < x.hi && (x.write || y.write) && !y.orderedBefore(x) {
				return true
			}
		}
	}
	return false
}

// begin records that e is under way.
func (m *model) begin(q *mQP, e *effect) {
	if e.fence {
		for i := range m.batch {
			m.batch[i].over = m.batch[i].over || m.batch[i].flow == q
		}
	}
	for _, x := range e.uses {
		if x.kind != byPoster {
			m.batch = append(m.batch, x)
		}
	}
	if e.do != nil {
		e.do()
	}
}

// settled records that nothing is under way and every completion has been polled.
func (m *model) settled() {
	m.batch = nil
	for _, side := range m.qps {
		for _, q := range side {
			q.sends, q.recvs, q.fresh, q.guilty = nil, nil, false, false
			if q.srq != nil {
				q.srq.taken = 0
			}
		}
	}
}

// fault is a reason to refuse an access.
type fault uint8

const (
	faultNone fault = iota
	faultSTag
	faultStream
	faultAccess
	faultWrap
	faultBounds
)

// span returns n bytes of r from to on.
func (r *mRegion) span(to, n uint64) (lo, hi int, f fault) {
	off := to - r.base
	switch {
	case n > 0 && to+n-1 < to:
		return 0, 0, faultWrap
	case to < r.base || off > uint64(r.hi-r.lo) || n > uint64(r.hi-r.lo)-off:
		return 0, 0, faultBounds
	}
	return r.lo + int(off), r.lo + int(off+n), faultNone
}

// knows reports whether r's STag is one of q's device.
func (q *mQP) knows(r *mRegion) bool { return r.side == q.side || q.oneDevice }

// remote returns the part of r, n bytes from to on, that q's peer may use with the right need.
func (q *mQP) remote(r *mRegion, need iwarp.Access, to, n uint64) (lo, hi int, f fault) {
	switch {
	case r == nil || !r.remote || !q.knows(r):
		return 0, 0, faultSTag
	case r.side != q.side || r.pd != q.pd || r.bound != nil && !r.boundTo(q):
		return 0, 0, faultStream
	case r.access&need == 0:
		return 0, 0, faultAccess
	}
	return r.span(to, n)
}

// local returns the part of its buffer that s names. ok reports whether q may use it with the
// right need.
func (q *mQP) local(s *mSGE, need iwarp.Access) (lo, hi int, ok bool) {
	r := s.r
	if r == nil || r.kind == mWindow || !r.local || r.side != q.side || r.pd != q.pd || r.access&need != need {
		return 0, 0, false
	}
	lo, hi, f := r.span(s.to, uint64(s.n))
	return lo, hi, f == faultNone
}

// locals is local for an SGL, and returns the accesses that it makes. Empty SGEs are not checked.
func (q *mQP) locals(sgl []mSGE, need iwarp.Access, flow *mQP, k accessKind) (uses []access, ok bool) {
	for i := range sgl {
		s := &sgl[i]
		if s.n == 0 {
			continue
		}
		lo, hi, ok := q.local(s, need)
		if !ok {
			return nil, false
		}
		uses = append(uses, access{s.r.buf, lo, hi, need != 0, flow, k, false}, access{s.r, 0, 1, false, flow, k, false})
	}
	return uses, true
}

// read returns the bytes that an SGL names.
func (q *mQP) read(sgl []mSGE) (p []byte) {
	for i := range sgl {
		if s := &sgl[i]; s.n > 0 {
			lo, hi, _ := q.local(s, 0)
			p = append(p, s.r.buf.want[lo:hi]...)
		}
	}
	return p
}

// scatter puts p into an SGL. Undefined bytes stay undefined.
func (q *mQP) scatter(sgl []mSGE, p []byte) {
	for i := range sgl {
		if s := &sgl[i]; s.n > 0 && len(p) > 0 {
			lo, hi, _ := q.local(s, 0)
			n := copy(s.r.buf.want[lo:hi], p)
			p = p[n:]
		}
	}
}

// spoil records that the first n bytes of an SGL may have any value.
func (q *mQP) spoil(sgl []mSGE, n uint64) {
	for i := range sgl {
		s := &sgl[i]
		if s.n == 0 || n == 0 {
			continue
		}
		k := min(n, uint64(s.n))
		n -= k
		if lo, _, ok := q.local(s, iwarp.LocalWrite); ok {
			s.r.buf.spoil(lo, lo+int(k))
		}
	}
}

func (b *mBuf) spoil(lo, hi int) {
	for i := lo; i < hi; i++ {
		b.undefined[i] = true
	}
}

// addFields does FetchAdd field by field, dropping the carry out of each. It adds all fields at
// once without their highest bits, and these by exclusive or.
func addFields(x, y, mask uint64) uint64 {
	if mask == 0 {
		return x + y
	}
	return (x&^mask + y&^mask) ^ (x^y)&mask
}

func word(p []byte) uint64 { return binary.NativeEndian.Uint64(p) }
