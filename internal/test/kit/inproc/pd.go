package inproc

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// pd is a protection domain.
type pd struct {
	dev                 *device
	mrs, mws, qps, srqs int
	dead                bool
}

func (p *pd) Dealloc() error {
	p.dev.n.lock()
	defer p.dev.n.unlock()
	if p.dead {
		return nil
	}
	if p.mrs+p.mws+p.qps+p.srqs > 0 {
		return fmt.Errorf("%w: protection domain still has %d regions, %d windows, %d QPs, %d SRQs",
			iwarp.ErrInvalid, p.mrs, p.mws, p.qps, p.srqs)
	}
	p.dead = true
	p.dev.pds--
	return nil
}

const (
	remoteRights = iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic
	writeRights  = iwarp.RemoteWrite | iwarp.RemoteAtomic
)

// checkMemory rejects memory that cannot be registered.
func (d *device) checkMemory(buf []byte, a iwarp.Access, base uint64, guarded bool) error {
	switch {
	case len(buf) == 0:
		return fmt.Errorf("%w: empty memory region", iwarp.ErrInvalid)
	case int64(len(buf)) > d.attr.MaxMRSize:
		return fmt.Errorf("%w: memory region of %d bytes: at most %d", iwarp.ErrLimit, len(buf), d.attr.MaxMRSize)
	case a&^(iwarp.LocalWrite|remoteRights) != 0:
		return fmt.Errorf("%w: unknown rights %#x", iwarp.ErrInvalid, uint32(a))
	case guarded && len(buf) > iwarp.GuardedMax:
		return fmt.Errorf("%w: a region with a Guard has at most %d bytes, not %d", iwarp.ErrInvalid, iwarp.GuardedMax, len(buf))
	case a&writeRights != 0 && a&iwarp.LocalWrite == 0:
		return fmt.Errorf("%w: a right to write remotely needs LocalWrite too", iwarp.ErrInvalid)
	case base+uint64(len(buf))-1 < base:
		return fmt.Errorf("%w: the region's last TO passes 2^64: choose a smaller Base", iwarp.ErrInvalid)
	}
	return nil
}

func (p *pd) RegMR(buf []byte, a iwarp.Access, o *iwarp.MROptions) (iwarp.MR, error) {
	if o == nil {
		o = &iwarp.MROptions{}
	}
	if o.Source != nil {
		return nil, fmt.Errorf("%w: a region of a Source", iwarp.ErrUnsupported)
	}
	d := p.dev
	d.n.lock()
	defer d.n.unlock()
	if err := d.checkMemory(buf, a, o.Base, o.Guard != nil); err != nil {
		return nil, err
	}
	r := &region{pd: p, base: o.Base, buf: buf, access: a, guard: o.Guard, remote: true, local: true}
	if o.QP != nil {
		q, ok := o.QP.(*qp)
		if !ok || q.pd != p {
			return nil, fmt.Errorf("%w: the region's QP is of another protection domain", iwarp.ErrInvalid)
		}
		r.bound, r.life = q, q.life
	}
	m, err := p.newMR(int64(len(buf)))
	if err != nil {
		return nil, err
	}
	r.stag = d.stags.draw()
	m.set(r)
	return m, nil
}

func (p *pd) AllocMR(limit int) (iwarp.MR, error) {
	d := p.dev
	d.n.lock()
	defer d.n.unlock()
	if !d.attr.FastReg {
		return nil, iwarp.ErrUnsupported
	}
	if limit < 1 || int64(limit) > d.attr.MaxMRSize {
		return nil, fmt.Errorf("%w: region of up to %d bytes: 1 to %d", iwarp.ErrInvalid, limit, d.attr.MaxMRSize)
	}
	m, err := p.newMR(int64(limit))
	if err != nil {
		return nil, err
	}
	m.limit = limit
	return m, nil
}

// newMR counts n bytes as registered memory, whether registered or not.
func (p *pd) newMR(n int64) (*mr, error) {
	if err := p.dev.room(p.dev.mrs, p.dev.attr.MaxMR, "memory regions"); err != nil {
		return nil, err
	}
	p.dev.mrs++
	p.mrs++
	p.dev.bytes += n
	return &mr{pd: p, bytes: n}, nil
}

func (p *pd) AllocMW() (iwarp.MW, error) {
	d := p.dev
	d.n.lock()
	defer d.n.unlock()
	if !d.attr.MemoryWindow {
		return nil, iwarp.ErrUnsupported
	}
	if err := d.room(d.mws, d.attr.MaxMW, "memory windows"); err != nil {
		return nil, err
	}
	d.mws++
	p.mws++
	return &mw{pd: p}, nil
}
