package iwarp

import (
	"fmt"
	"sync"
)

// fastMR is a region of AllocMR. Each OpFastReg gives it memory and a new STag, whose index
// it keeps for life. OpLocalInv, or the peer that knows the STag, takes both away.
type fastMR struct {
	pd  *pd
	max int

	mu   sync.Mutex // guards what follows
	keys keyring
	last *mr // of the latest OpFastReg posted
	live *mr // of the latest one executed; what its index names
	gone bool
}

// AllocMR counts max bytes as registered memory, whether registered or not.
func (p *pd) AllocMR(max int) (MR, error) {
	switch {
	case max <= 0:
		return nil, fmt.Errorf("%w: a region for at most %d bytes", ErrInvalid, max)
	case int64(max) > p.dev.cfg.MaxMRSize:
		return nil, fmt.Errorf("%w: memory region of %d bytes: at most %d (MaxMRSize)", ErrLimit, max, p.dev.cfg.MaxMRSize)
	}
	if err := p.charge(int64(max)); err != nil {
		return nil, err
	}
	f := &fastMR{pd: p, max: max}
	if f.keys.stag = p.dev.mrs.add(nil); f.keys.stag == 0 {
		p.discharge(int64(max))
		return nil, ErrClosed
	}
	return f, nil
}

func (f *fastMR) isWindow() bool { return false }

// current returns the registration that was posted last, or nil.
func (f *fastMR) current() *mr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *fastMR) STag() STag {
	if m := f.current(); m != nil {
		return m.stag
	}
	return 0
}

func (f *fastMR) Base() uint64 {
	if m := f.current(); m != nil {
		return m.base
	}
	return 0
}

func (f *fastMR) Len() int {
	if m := f.current(); m != nil {
		return len(m.buf)
	}
	return 0
}

// Invalidate acts like an OpLocalInv that does not wait for its turn, and closes windows too.
func (f *fastMR) Invalidate() error {
	f.mu.Lock()
	m := f.live
	f.mu.Unlock()
	if m != nil {
		m.close()
		m.end()
	}
	return nil
}

func (f *fastMR) Dereg() error {
	f.mu.Lock()
	live := f.live
	if f.gone || f.pd.dev.mrs.closed.Load() {
		f.mu.Unlock()
		return errDeregistered
	}
	if live != nil {
		if _, err := live.shut(); err != nil {
			f.mu.Unlock()
			return err
		}
	}
	f.gone = true
	f.pd.dev.mrs.remove(f.keys.stag, live)
	f.mu.Unlock() // a poster holds a QP's lock while it waits for ours
	if live != nil {
		live.shutOut()
		live.local.close()
	}
	f.pd.discharge(int64(f.max))
	return nil
}

// prepareReg checks an OpFastReg when it is posted and gives the region its STag.
func (q *qp) prepareReg(r *FastReg) (*mr, error) {
	if r == nil {
		return nil, fmt.Errorf("%w: a fast registration without Reg", ErrInvalid)
	}
	f, ok := r.MR.(*fastMR)
	if !ok || f.pd != q.pd {
		return nil, fmt.Errorf("%w: a fast registration needs a region of AllocMR of the QP's protection domain", ErrInvalid)
	}
	if err := q.pd.checkRegion(r.Buf, r.Access, r.Base); err != nil {
		return nil, err
	}
	if len(r.Buf) > f.max {
		return nil, fmt.Errorf("%w: fast registration of %d bytes: the region was allocated for %d", ErrInvalid, len(r.Buf), f.max)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return nil, errDeregistered
	}
	f.last = &mr{
		pd: q.pd, base: r.Base, buf: r.Buf, access: r.Access, of: f,
		bound: q, life: q.life.Load(),
		stag: f.keys.next(&q.dev.mrs.entropy),
	}
	return f.last, nil
}

// register executes an OpFastReg. It returns false if the region is registered at the moment,
// or has been deregistered since.
func (f *fastMR) register(m *mr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone || f.live != nil && !f.live.remote.isShut() {
		return false
	}
	f.live = m
	f.pd.dev.mrs.set(m)
	return true
}
