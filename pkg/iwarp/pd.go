package iwarp

import (
	"fmt"
	"math"
	"sync/atomic"
)

// pd is a protection domain of the software device.
type pd struct {
	dev *soft
	n   atomic.Int64 // objects made in it; deallocated is added once it has ended
}

const deallocated = math.MinInt64

// enter counts one more object of the domain.
func (p *pd) enter() error {
	if p.n.Add(1) > 0 {
		return nil
	}
	p.n.Add(-1)
	return fmt.Errorf("%w: the protection domain is deallocated", ErrClosed)
}

func (p *pd) leave() { p.n.Add(-1) }

func (p *pd) RegMR(buf []byte, a Access, o *MROptions) (MR, error) {
	m := &mr{pd: p, buf: buf, access: a}
	if o != nil {
		m.base, m.guard = o.Base, o.Guard
		if o.QP != nil {
			q, ok := o.QP.(*qp)
			if !ok || q.pd != p {
				return nil, fmt.Errorf("%w: the region's QP is of another protection domain", ErrInvalid)
			}
			m.bound, m.life = q, q.life.Load()
		}
	}
	if o != nil && o.Source != nil {
		return p.regSource(m, o.Source)
	}
	if err := p.checkRegion(buf, a, m.base); err != nil {
		return nil, err
	}
	if err := p.charge(int64(len(buf))); err != nil {
		return nil, err
	}
	if p.dev.mrs.add(m) == 0 {
		p.discharge(int64(len(buf)))
		return nil, ErrClosed
	}
	return m, nil
}

// regSource makes m a region of s. It takes no memory, so its bytes do not count.
func (p *pd) regSource(m *mr, s Source) (MR, error) {
	m.source = s
	switch n := m.size(); {
	case len(m.buf) > 0 || m.access != RemoteRead:
		return nil, fmt.Errorf("%w: a region of a Source has no memory, and no right but RemoteRead", ErrInvalid)
	case n == 0 || int64(n) > p.dev.cfg.MaxMRSize || m.base+n-1 < m.base:
		return nil, fmt.Errorf("%w: a Source of %d bytes at TO %d", ErrInvalid, n, m.base)
	}
	m.local.shut() // there is nothing to gather from
	if err := p.charge(0); err != nil {
		return nil, err
	}
	if p.dev.mrs.add(m) == 0 {
		p.discharge(0)
		return nil, ErrClosed
	}
	return m, nil
}

// checkRegion rejects memory that cannot be a region.
func (p *pd) checkRegion(buf []byte, a Access, base uint64) error {
	switch {
	case len(buf) == 0:
		return fmt.Errorf("%w: empty memory region", ErrInvalid)
	case int64(len(buf)) > p.dev.cfg.MaxMRSize:
		return fmt.Errorf("%w: memory region of %d bytes: at most %d (MaxMRSize)", ErrLimit, len(buf), p.dev.cfg.MaxMRSize)
	case a&^(LocalWrite|remoteRights) != 0:
		return fmt.Errorf("%w: unknown rights %#x", ErrInvalid, uint32(a))
	case a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0:
		return fmt.Errorf("%w: a right to write remotely needs LocalWrite too", ErrInvalid)
	case base+uint64(len(buf))-1 < base:
		return fmt.Errorf("%w: the region's last TO passes 2^64: choose a smaller Base", ErrInvalid)
	}
	return nil
}

// charge counts one more region of n bytes, or returns the limit that forbids it.
func (p *pd) charge(n int64) error {
	t, c := &p.dev.mrs, &p.dev.cfg
	if err := p.enter(); err != nil {
		return err
	}
	err := reserve(&t.mrs, 1, int64(c.MaxMR), "memory regions (MaxMR)")
	if err == nil {
		if err = reserve(&t.bytes, n, c.MaxRegistered, "bytes of registered memory (MaxRegistered)"); err == nil {
			return nil
		}
		t.mrs.Add(-1)
	}
	p.leave()
	return err
}

func (p *pd) discharge(n int64) {
	p.dev.mrs.mrs.Add(-1)
	p.dev.mrs.bytes.Add(-n)
	p.leave()
}

// Dealloc fails while regions, windows, SRQs or QPs of the domain exist.
func (p *pd) Dealloc() error {
	if p.n.CompareAndSwap(0, deallocated) {
		p.dev.mu.Lock()
		p.dev.pds--
		p.dev.mu.Unlock()
		return nil
	}
	if n := p.n.Load(); n > 0 {
		return fmt.Errorf("%w: protection domain still has %d regions, windows, SRQs or QPs: end them first", ErrInvalid, n)
	}
	return nil // deallocated before
}
