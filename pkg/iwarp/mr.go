package iwarp

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// mr is what one STag names on the software device: a region of RegMR, one registration of a
// region of AllocMR, or one opening of a memory window. Apart from its gates it does not
// change while it is in the table; the next use of its index is another mr. So a lookup needs
// no lock.
type mr struct {
	// set once before it enters the table
	pd     *pd
	stag   STag
	access Access
	base   uint64
	buf    []byte
	bound  *qp    // the only stream that may use it; nil = every stream of the PD
	life   uint32 // of bound: a QP that was reset carries another stream
	of     owner  // nil: a region of RegMR
	guard  sync.Locker
	source Source // in place of buf, which is nil then

	remote gate // passed by every placement for a peer
	local  gate // passed by our own gather and scatter

	parent *mr // of a window: the region it is open on; set before it enters the table

	// guarded by remote.mu
	windows []*mr // open on it
	over    bool  // nothing more may be opened on it
}

// owner is the object of which an mr is one phase.
type owner interface {
	isWindow() bool
}

func (m *mr) STag() STag   { return m.stag }
func (m *mr) Base() uint64 { return m.base }
func (m *mr) Len() int     { return int(m.size()) }

// size returns how many bytes m has.
func (m *mr) size() uint64 {
	if m.source != nil {
		return uint64(m.source.Size())
	}
	return uint64(len(m.buf))
}

func (m *mr) isWindow() bool { return m.of != nil && m.of.isWindow() }

// Invalidate ends what is open on the region too, as it is the owner's own decision.
func (m *mr) Invalidate() error {
	m.close()
	return nil
}

// close ends the peers' access to m and to what is open on it, and waits for
// placements under way.
func (m *mr) close() {
	m.remote.mu.Lock()
	m.over = true
	windows := slices.Clone(m.windows)
	m.remote.mu.Unlock()
	for _, w := range windows {
		w.end()
	}
	m.shutOut()
}

// end ends m on behalf of a work request or of a peer's message. When it returns, nothing is
// placed any more. A region with open windows is left as it is.
func (m *mr) end() bool {
	idle, err := m.shut()
	if err != nil {
		return false
	}
	if p := m.parent; p != nil {
		p.remote.mu.Lock()
		p.windows = slices.DeleteFunc(p.windows, func(w *mr) bool { return w == m })
		p.remote.mu.Unlock()
	}
	if m.of != nil {
		m.local.shut() // our own requests that use it are not complete, as their owner knows
	}
	m.await(idle)
	return true
}

// shut shuts the remote gate, unless windows are open on m.
func (m *mr) shut() (idle <-chan struct{}, err error) {
	m.remote.mu.Lock()
	defer m.remote.mu.Unlock()
	if n := len(m.windows); n > 0 {
		return nil, fmt.Errorf("%w: %d memory windows are open on the region: close them first", ErrInvalid, n)
	}
	m.over = true
	return m.remote.closeLocked(), nil
}

func (m *mr) Dereg() error {
	idle, err := m.shut()
	if err != nil {
		return err
	}
	t := &m.pd.dev.mrs
	if !t.remove(m.stag, m) {
		return errDeregistered
	}
	m.await(idle)
	m.local.close()
	m.pd.discharge(int64(len(m.buf)))
	return nil
}

var errDeregistered = fmt.Errorf("%w: region is deregistered already", ErrInvalid)

// shutOut shuts the peers out of m and waits until they no longer use it.
func (m *mr) shutOut() {
	m.remote.mu.Lock()
	idle := m.remote.closeLocked()
	m.remote.mu.Unlock()
	m.await(idle)
}

// await waits for the channel that m.remote.closeLocked has returned.
func (m *mr) await(idle <-chan struct{}) {
	if idle != nil {
		m.pd.dev.hurry(m)
		<-idle
	}
}

const remoteRights = RemoteWrite | RemoteRead | RemoteAtomic

// span returns the n bytes of m from to on. The sum must not wrap (RFC 5041 §7.1): compare
// distances, not ends. The bytes of a Source are nil.
func (m *mr) span(to, n uint64) ([]byte, rdmap.Fault) {
	if to+n < to && to+n != 0 {
		return nil, rdmap.FaultWrap
	}
	off, size := to-m.base, m.size()
	if to < m.base || off > size || n > size-off {
		return nil, rdmap.FaultBounds
	}
	if m.source != nil {
		return nil, rdmap.FaultNone
	}
	return m.buf[off : off+n], rdmap.FaultNone
}

// usableBy reports whether a stream of q may use m at all.
func (m *mr) usableBy(q *qp) bool {
	return m.pd == q.pd && (m.bound == nil || m.boundTo(q))
}

func (m *mr) boundTo(q *qp) bool { return m.bound == q && m.life == q.life.Load() }

// remoteSpan is span for a peer on stream q, which needs the right need. The checks are in the
// order of RFC 5040 §7.1. On FaultNone m.remote has been entered.
func (m *mr) remoteSpan(q *qp, need Access, to, n uint64) ([]byte, rdmap.Fault) {
	if m == nil {
		return nil, rdmap.FaultSTag
	}
	if !m.remote.enter() {
		return nil, rdmap.FaultSTag
	}
	var p []byte
	var f rdmap.Fault
	switch {
	case !m.usableBy(q):
		f = rdmap.FaultStream
	case m.access&need == 0:
		f = rdmap.FaultAccess
	case (m.guard != nil || m.source != nil) && n > GuardedMax:
		f = rdmap.FaultBounds
	default:
		p, f = m.span(to, n)
	}
	if f != rdmap.FaultNone {
		m.remote.leave()
	}
	return p, f
}

// remoteInvalidate ends the access that a peer on stream q names by s. The peer may do that
// only to what is bound to this stream and open to the peer: otherwise one peer could take
// memory away from another (RFC 5040 §8.1.1). What is invalid already stays so.
func (q *qp) remoteInvalidate(s STag) rdmap.Fault {
	m := q.dev.mrs.lookup(s)
	switch {
	case m == nil:
		return rdmap.FaultSTag
	case m.pd != q.pd, !m.boundTo(q):
		return rdmap.FaultStream
	case m.access&remoteRights == 0, !m.end():
		return rdmap.FaultAccess
	}
	return rdmap.FaultNone
}

// localInvalidate executes an OpLocalInv. It returns false if s names nothing that q may end.
func (q *qp) localInvalidate(s STag) bool {
	m := q.dev.mrs.lookup(s)
	return m != nil && m.pd == q.pd && (!m.isWindow() || m.boundTo(q)) && m.end()
}

// localSpan returns the memory that s names, for use by a QP of domain p. need is 0 or
// LocalWrite. On ok m.local has been entered.
func (d *soft) localSpan(p *pd, s *SGE, need Access) (m *mr, b []byte, ok bool) {
	m = d.mrs.lookup(s.LKey)
	if m == nil || m.pd != p || m.access&need != need || m.isWindow() || !m.local.enter() {
		return nil, nil, false
	}
	b, f := m.span(s.Addr, uint64(s.Length))
	if f != rdmap.FaultNone {
		m.local.leave()
		return nil, nil, false
	}
	return m, b, true
}
