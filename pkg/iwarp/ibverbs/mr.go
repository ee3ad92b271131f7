//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// mrTable maps STags to regions: an SGE's LKey is the region's STag, while the device's lkey may be
// a different number.
type mrTable struct {
	mu    sync.RWMutex
	m     map[iwarp.STag]*mr
	bytes int64
}

func (t *mrTable) lookup(s iwarp.STag) *mr {
	t.mu.RLock()
	m := t.m[s]
	t.mu.RUnlock()
	return m
}

// add returns false if the STag is taken: by a region whose registration at the device has been
// invalidated, so that the device has reused the number.
func (t *mrTable) add(m *mr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[m.stag] != nil {
		return false
	}
	t.m[m.stag] = m
	t.bytes += int64(len(m.buf))
	return true
}

func (t *mrTable) remove(m *mr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[m.stag] != m {
		return false
	}
	delete(t.m, m.stag)
	t.bytes -= int64(len(m.buf))
	return true
}

func (t *mrTable) usage() (n int, bytes int64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.m), t.bytes
}

func (t *mrTable) all() []*mr {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := make([]*mr, 0, len(t.m))
	for _, m := range t.m {
		s = append(s, m)
	}
	return s
}

// mr is a region. One with remote rights has up to three registrations: the one that the peer
// knows, which the peer may invalidate at any time, ending all use of it; one for local use, made
// at the first such use; and, where the device requires the sink of an RDMA Read to be writable by
// peers, one for that.
type mr struct {
	// set once in RegMR
	pd     *pd
	stag   iwarp.STag
	buf    []byte
	addr   uint64
	access iwarp.Access
	pin    runtime.Pinner

	mu     sync.Mutex // guards what follows
	remote *C.struct_ibv_mr
	local  *C.struct_ibv_mr
	sink   *C.struct_ibv_mr
	gone   bool
}

const remoteRights = iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic

func (p *pd) RegMR(buf []byte, a iwarp.Access, o *iwarp.MROptions) (iwarp.MR, error) {
	switch {
	case o != nil && o.Source != nil:
		return nil, fmt.Errorf("%w: a region of a Source", iwarp.ErrUnsupported)
	case len(buf) == 0:
		return nil, fmt.Errorf("%w: a region of no bytes", iwarp.ErrInvalid)
	case a&^(iwarp.LocalWrite|remoteRights) != 0:
		return nil, fmt.Errorf("%w: access %#x", iwarp.ErrInvalid, a)
	case a&(iwarp.RemoteWrite|iwarp.RemoteAtomic) != 0 && a&iwarp.LocalWrite == 0:
		return nil, fmt.Errorf("%w: a remote right to change memory without LocalWrite", iwarp.ErrInvalid)
	case a&iwarp.RemoteAtomic != 0:
		return nil, fmt.Errorf("%w: atomics", iwarp.ErrUnsupported)
	case o != nil && o.Base != 0:
		return nil, fmt.Errorf("%w: a base of one's own: TOs are addresses here", iwarp.ErrUnsupported)
	case o != nil && o.QP != nil:
		if q, ok := o.QP.(*qp); !ok || q.pd != p {
			return nil, fmt.Errorf("%w: the QP is of another protection domain", iwarp.ErrInvalid)
		}
	}
	m := &mr{pd: p, buf: buf, addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), access: a}
	m.pin.Pin(unsafe.SliceData(buf))
	if err := m.register(); err != nil {
		m.pin.Unpin()
		return nil, err
	}
	if err := p.use(1); err != nil {
		_ = m.free() // err says more
		p.dev.mrs.remove(m)
		return nil, err
	}
	return m, nil
}

// register makes the first registration, whose key is the region's STag.
func (m *mr) register() error {
	var taken []*C.struct_ibv_mr
	defer func() {
		for _, c := range taken {
			C.ibv_dereg_mr(c)
		}
	}()
	for {
		var key C.uint32_t
		if m.access&remoteRights != 0 {
			c, err := m.reg(m.access)
			if err != nil {
				return err
			}
			m.remote, key = c, c.rkey
		} else {
			c, err := m.reg(m.access)
			if err != nil {
				return err
			}
			m.local, key = c, c.lkey
		}
		m.stag = iwarp.STag(key)
		if m.pd.dev.mrs.add(m) {
			return nil
		}
		if m.remote != nil {
			taken = append(taken, m.remote)
		} else {
			taken = append(taken, m.local)
		}
	}
}

func (m *mr) reg(a iwarp.Access) (*C.struct_ibv_mr, error) {
	var f C.int
	if a&iwarp.LocalWrite != 0 {
		f |= C.IBV_ACCESS_LOCAL_WRITE
	}
	if a&iwarp.RemoteWrite != 0 {
		f |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if a&iwarp.RemoteRead != 0 {
		f |= C.IBV_ACCESS_REMOTE_READ
	}
	c, err := C.shim_reg_mr(m.pd.c, C.uintptr_t(m.addr), C.size_t(len(m.buf)), f)
	if c == nil {
		return nil, fmt.Errorf("ibverbs: register %d bytes on %s: %w; RLIMIT_MEMLOCK bounds what a process may pin", len(m.buf), m.pd.dev.name, why(err))
	}
	return c, nil
}

// localKey returns the device's key for local use; sink says that it is for a Read's sink.
func (m *mr) localKey(sink bool) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return 0, errGone
	}
	if sink && !m.pd.dev.siw {
		if m.sink == nil {
			c, err := m.reg(iwarp.LocalWrite | iwarp.RemoteWrite)
			if err != nil {
				return 0, err
			}
			m.sink = c
		}
		return uint32(m.sink.lkey), nil
	}
	if m.local == nil {
		c, err := m.reg(m.access &^ remoteRights)
		if err != nil {
			return 0, err
		}
		m.local = c
	}
	return uint32(m.local.lkey), nil
}

var errGone = fmt.Errorf("%w: region is deregistered", iwarp.ErrInvalid)

func (m *mr) STag() iwarp.STag { return m.stag }
func (m *mr) Base() uint64     { return m.addr }
func (m *mr) Len() int         { return len(m.buf) }

func (m *mr) Invalidate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dereg(&m.remote)
}

func (m *mr) dereg(c **C.struct_ibv_mr) error {
	if *c == nil {
		return nil
	}
	if rc := C.ibv_dereg_mr(*c); rc != 0 {
		return sysErr("ibv_dereg_mr", rc)
	}
	*c = nil
	return nil
}

func (m *mr) Dereg() error {
	if !m.pd.dev.mrs.remove(m) {
		return fmt.Errorf("%w: region is deregistered already", iwarp.ErrInvalid)
	}
	err := m.free()
	_ = m.pd.use(-1) // never fails for a decrement
	return err
}

// free ends the registrations. If one cannot be ended, its memory stays pinned.
func (m *mr) free() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	for _, c := range []**C.struct_ibv_mr{&m.remote, &m.local, &m.sink} {
		if err := m.dereg(c); err != nil {
			return err
		}
	}
	m.pin.Unpin()
	return nil
}

// contains reports whether m has the n bytes from to on.
func (m *mr) contains(to uint64, n uint32) bool {
	return to >= m.addr && to-m.addr <= uint64(len(m.buf)) && uint64(n) <= uint64(len(m.buf))-(to-m.addr)
}

// fillSGE translates s for the device. Elements that name no region of p go to the
// device as they are, which completes the request with an error.
func (p *pd) fillSGE(dst *C.struct_ibv_sge, s *iwarp.SGE, sink bool) error {
	dst.addr, dst.length, dst.lkey = C.uint64_t(s.Addr), C.uint32_t(s.Length), C.uint32_t(s.LKey)
	m := p.dev.mrs.lookup(s.LKey)
	if m == nil || m.pd != p || !m.contains(s.Addr, s.Length) {
		dst.lkey = math.MaxUint32 &^ 0xff
		return nil
	}
	key, err := m.localKey(sink)
	if err != nil {
		return err
	}
	dst.lkey = C.uint32_t(key)
	return nil
}
