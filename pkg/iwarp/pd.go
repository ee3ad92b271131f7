package iwarp

import (
	"fmt"
	"sync/atomic"
)

// pd is a protection domain of the software device.
type pd struct {
	dev *soft
	mrs atomic.Int64
	qps atomic.Int64
}

func (p *pd) RegMR(buf []byte, a Access, o *MROptions) (MR, error) {
	if o == nil {
		o = &MROptions{}
	}
	switch {
	case len(buf) == 0:
		return nil, fmt.Errorf("%w: empty memory region", ErrInvalid)
	case len(buf) > maxMRSize:
		return nil, fmt.Errorf("%w: memory region of %d bytes: at most %d", ErrLimit, len(buf), int64(maxMRSize))
	case o.Guard != nil && len(buf) > GuardedMax:
		return nil, fmt.Errorf("%w: a region with a Guard has at most %d bytes, not %d", ErrInvalid, GuardedMax, len(buf))
	case a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0:
		return nil, fmt.Errorf("%w: a right to write remotely needs LocalWrite too", ErrInvalid)
	case o.Base+uint64(len(buf))-1 < o.Base:
		return nil, fmt.Errorf("%w: the region's last TO passes 2^64: choose a smaller Base", ErrInvalid)
	}
	m := &mr{pd: p, base: o.Base, buf: buf, access: a}
	if o.QP != nil {
		q, ok := o.QP.(*qp)
		if !ok || q.pd != p {
			return nil, fmt.Errorf("%w: the region's QP is of another protection domain", ErrInvalid)
		}
		m.bound = q
	}
	if err := p.dev.mrs.add(m, p.dev.cfg.MaxMR); err != nil {
		return nil, err
	}
	p.mrs.Add(1)
	return m, nil
}

// Dealloc refuses while regions or QPs of the domain exist.
func (p *pd) Dealloc() error {
	if m, q := p.mrs.Load(), p.qps.Load(); m != 0 || q != 0 {
		return fmt.Errorf("%w: protection domain still has %d regions and %d QPs", ErrInvalid, m, q)
	}
	return nil
}

func (p *pd) AllocMR(int) (MR, error)            { return nil, ErrUnsupported }
func (p *pd) AllocMW() (MW, error)               { return nil, ErrUnsupported }
func (p *pd) CreateSRQ(SRQInitAttr) (SRQ, error) { return nil, ErrUnsupported }
