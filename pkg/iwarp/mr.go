package iwarp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// quarantine is the number of STags of one shard of the table that rest before
// one can be given out again, so that a peer's late use of an old one does not
// meet a new region.
const quarantine = 4096

// mrShards spreads the table's locks. An STag's high bits choose the shard.
const mrShards = 16

// mrTable maps STags to regions.
type mrTable struct {
	shards *[mrShards]mrShard
	n      *atomic.Int64
	bytes  *atomic.Int64
}

type mrShard struct {
	mu      sync.RWMutex
	m       map[STag]*mr // nil value: in quarantine
	resting []STag       // oldest first
}

func newMRTable() mrTable {
	t := mrTable{new([mrShards]mrShard), new(atomic.Int64), new(atomic.Int64)}
	for i := range t.shards {
		t.shards[i].m = make(map[STag]*mr)
	}
	return t
}

func (t mrTable) shard(s STag) *mrShard { return &t.shards[s>>28] }

// lookup finds a region, or nil.
func (t mrTable) lookup(s STag) *mr {
	sh := t.shard(s)
	sh.mu.RLock()
	m := sh.m[s]
	sh.mu.RUnlock()
	return m
}

// add gives m an STag: random over the whole 32 bits, so that it cannot be
// guessed from others (RFC 5040 §8.1.1), never 0, none that rests.
func (t mrTable) add(m *mr, limit int) error {
	if t.n.Add(1) > int64(limit) {
		t.n.Add(-1)
		return fmt.Errorf("%w: %d memory regions", ErrLimit, limit)
	}
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails: the runtime ends the process instead
		m.stag = STag(binary.NativeEndian.Uint32(b[:]))
		if m.stag == 0 {
			continue
		}
		sh := t.shard(m.stag)
		sh.mu.Lock()
		_, taken := sh.m[m.stag]
		if !taken {
			sh.m[m.stag] = m
		}
		sh.mu.Unlock()
		if !taken {
			t.bytes.Add(int64(len(m.buf)))
			return nil
		}
	}
}

// remove takes m out and lets its STag rest. It returns false if m was not there.
func (t mrTable) remove(m *mr) bool {
	sh := t.shard(m.stag)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.m[m.stag] != m {
		return false
	}
	sh.m[m.stag] = nil
	sh.resting = append(sh.resting, m.stag)
	if len(sh.resting) > quarantine {
		delete(sh.m, sh.resting[0])
		sh.resting = sh.resting[1:]
	}
	t.n.Add(-1)
	t.bytes.Add(-int64(len(m.buf)))
	return true
}

func (t mrTable) usage() (n int, bytes int64) { return int(t.n.Load()), t.bytes.Load() }

// deregAll ends every region.
func (t mrTable) deregAll() {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.RLock()
		var all []*mr
		for _, m := range sh.m {
			if m != nil {
				all = append(all, m)
			}
		}
		sh.mu.RUnlock()
		for _, m := range all {
			_ = m.Dereg() // already gone is as good
		}
	}
}

// gate counts the users of a region and lets its owner wait for the last one.
type gate struct {
	mu   sync.Mutex
	n    int
	shut bool
	idle chan struct{} // made by a waiting shutter, closed by the last user
}

// enter is false once the gate is shut; else leave must follow.
func (g *gate) enter() bool {
	g.mu.Lock()
	ok := !g.shut
	if ok {
		g.n++
	}
	g.mu.Unlock()
	return ok
}

func (g *gate) leave() {
	g.mu.Lock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	g.mu.Unlock()
}

// close shuts the gate and waits until nobody is inside.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	if g.n == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	<-idle
}

// mr is a region of the software device.
type mr struct {
	// set once in RegMR
	pd     *pd
	stag   STag
	base   uint64
	buf    []byte
	access Access
	bound  *qp // the only stream that may use it; nil = every one of the PD

	remote gate // passed by every placement for a peer
	local  gate // passed by our own gather and scatter
}

func (m *mr) STag() STag   { return m.stag }
func (m *mr) Base() uint64 { return m.base }
func (m *mr) Len() int     { return len(m.buf) }

func (m *mr) Invalidate() error {
	m.remote.close()
	return nil
}

func (m *mr) Dereg() error {
	if !m.pd.dev.mrs.remove(m) {
		return fmt.Errorf("%w: region is deregistered already", ErrInvalid)
	}
	m.remote.close()
	m.local.close()
	m.pd.mrs.Add(-1)
	return nil
}

const remoteRights = RemoteWrite | RemoteRead | RemoteAtomic

// span is the part of m from to on, n bytes long. The sum must not wrap (RFC 5041
// §7.1): compare distances, not ends.
func (m *mr) span(to, n uint64) ([]byte, rdmap.Fault) {
	if to+n < to && to+n != 0 {
		return nil, rdmap.FaultWrap
	}
	off := to - m.base
	if to < m.base || off > uint64(len(m.buf)) || n > uint64(len(m.buf))-off {
		return nil, rdmap.FaultBounds
	}
	return m.buf[off : off+n], rdmap.FaultNone
}

// remoteSpan is span for a peer on stream q that needs the right need. The checks
// stand in the order of RFC 5040 §7.1. On FaultNone m.remote has been entered.
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
	case m.pd != q.pd, m.bound != nil && m.bound != q:
		f = rdmap.FaultStream
	case m.access&need == 0:
		f = rdmap.FaultAccess
	default:
		p, f = m.span(to, n)
	}
	if f != rdmap.FaultNone {
		m.remote.leave()
	}
	return p, f
}

// localSpan is the memory that s names, for use by a QP of domain d; need is 0 or
// LocalWrite. On ok m.local has been entered.
func (d *soft) localSpan(p *pd, s *SGE, need Access) (m *mr, b []byte, ok bool) {
	m = d.mrs.lookup(s.LKey)
	if m == nil || m.pd != p || m.access&need != need || !m.local.enter() {
		return nil, nil, false
	}
	b, f := m.span(s.Addr, uint64(s.Length))
	if f != rdmap.FaultNone {
		m.local.leave()
		return nil, nil, false
	}
	return m, b, true
}
