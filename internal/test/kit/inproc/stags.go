package inproc

import (
	"crypto/rand"
	"encoding/binary"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// quarantine is how many STags rest before one can be reused, so that late use of an old one does
// not meet new memory.
const quarantine = 4096

// kind is how a region came to be.
type kind uint8

const (
	registered kind = iota // by RegMR
	fast                   // by OpFastReg
	window                 // by OpBindMW
)

// region is what an STag names: memory, with rights on it. It may be ended, but does not change
// otherwise; new memory gets a new STag and a new region.
type region struct {
	stag   iwarp.STag
	kind   kind
	pd     *pd
	bound  *qp // the only stream that may use it; nil = every one of the PD
	life   int // which of bound's streams
	base   uint64
	buf    []byte
	access iwarp.Access
	guard  sync.Locker // held while the peer reads; or nil

	remote  bool             // the peer may use it
	local   bool             // SGEs may name it
	parent  *region          // of a window that is open
	windows map[*region]bool // open on it
}

// usableBy reports whether a stream of q may use r at all.
func (r *region) usableBy(q *qp) bool { return r.pd == q.pd && (r.bound == nil || r.boundTo(q)) }

func (r *region) boundTo(q *qp) bool { return r.bound == q && r.life == q.life }

// end invalidates r on behalf of a work request or the peer. A region with open windows is left as
// it is.
func (r *region) end() bool {
	if len(r.windows) > 0 {
		return false
	}
	if r.parent != nil {
		delete(r.parent.windows, r)
		r.parent = nil
	}
	r.remote = false
	r.local = r.local && r.kind == registered
	return true
}

// close invalidates r on behalf of its owner, together with the windows on it. Its local use
// stays.
func (r *region) close() {
	for w := range r.windows {
		w.end()
	}
	r.remote = false
}

// stagTable is a device's STags.
type stagTable struct {
	regions map[iwarp.STag]*region // nil: drawn, or resting
	resting []iwarp.STag           // oldest first
}

func newSTagTable() stagTable { return stagTable{regions: make(map[iwarp.STag]*region)} }

// draw returns a new STag: random over all 32 bits, so that no peer can guess one from others
// (RFC 5040 §8.1.1), and never 0.
func (t *stagTable) draw() iwarp.STag {
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails
		s := iwarp.STag(binary.NativeEndian.Uint32(b[:]))
		if _, taken := t.regions[s]; !taken && s != 0 {
			t.regions[s] = nil
			return s
		}
	}
}

// retire ends s; 0 means none.
func (t *stagTable) retire(s iwarp.STag) {
	if s == 0 {
		return
	}
	t.regions[s] = nil
	t.resting = append(t.resting, s)
	if len(t.resting) > quarantine {
		delete(t.regions, t.resting[0])
		t.resting = t.resting[1:]
	}
}

// span returns the n bytes of r from to on. The sum must not wrap (RFC 5041 §7.1): compare
// distances, not ends.
func (r *region) span(to, n uint64) ([]byte, fault) {
	if to+n < to && to+n != 0 {
		return nil, faultWrap
	}
	off := to - r.base
	if to < r.base || off > uint64(len(r.buf)) || n > uint64(len(r.buf))-off {
		return nil, faultBounds
	}
	return r.buf[off : off+n], faultNone
}

// fault is a reason to refuse an access.
type fault uint8

const (
	faultNone   fault = iota
	faultSTag         // no such STag, or currently invalid
	faultStream       // another PD's, or another stream's
	faultAccess       // the right is missing
	faultWrap         // TO passes 2^64
	faultBounds
)

// remoteSpan returns memory of q's device for q's peer, which needs the right need. The checks are
// in the order of RFC 5040 §7.1.
func (q *qp) remoteSpan(s iwarp.STag, need iwarp.Access, to, n uint64) ([]byte, fault) {
	r := q.dev.stags.regions[s]
	switch {
	case r == nil || !r.remote:
		return nil, faultSTag
	case !r.usableBy(q):
		return nil, faultStream
	case r.access&need == 0:
		return nil, faultAccess
	}
	return r.span(to, n)
}

// spans returns the memory that an SGL names. It must all belong to p and have the right need, 0 or
// LocalWrite. The key of an empty SGE is not checked.
func (p *pd) spans(sgl []iwarp.SGE, need iwarp.Access) (all [][]byte, ok bool) {
	for _, s := range sgl {
		if s.Length == 0 {
			continue
		}
		r := p.dev.stags.regions[s.LKey]
		if r == nil || !r.local || r.pd != p || r.access&need != need {
			return nil, false
		}
		b, f := r.span(s.Addr, uint64(s.Length))
		if f != faultNone {
			return nil, false
		}
		all = append(all, b)
	}
	return all, true
}

// copySpans copies src to dst, up to the shorter length.
func copySpans(dst, src [][]byte) {
	for len(dst) > 0 && len(src) > 0 {
		n := copy(dst[0], src[0])
		if dst[0] = dst[0][n:]; len(dst[0]) == 0 {
			dst = dst[1:]
		}
		if src[0] = src[0][n:]; len(src[0]) == 0 {
			src = src[1:]
		}
	}
}
