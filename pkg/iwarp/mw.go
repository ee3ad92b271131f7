package iwarp

import (
	"fmt"
	"sync"
)

// mw is a memory window. Each OpBindMW that opens it gives it a new STag, whose index it keeps
// for life.
type mw struct {
	pd *pd

	mu   sync.Mutex // guards what follows
	keys keyring
	last STag // of the latest bind posted
	live *mr  // of the latest one executed; what its index names
	gone bool
}

func (p *pd) AllocMW() (MW, error) {
	t := &p.dev.mrs
	if err := p.enter(); err != nil {
		return nil, err
	}
	if err := reserve(&t.mws, 1, int64(p.dev.cfg.MaxMW), "memory windows (MaxMW)"); err != nil {
		p.leave()
		return nil, err
	}
	w := &mw{pd: p}
	if w.keys.stag = t.add(nil); w.keys.stag == 0 {
		t.mws.Add(-1)
		p.leave()
		return nil, ErrClosed
	}
	return w, nil
}

func (w *mw) isWindow() bool { return true }

func (w *mw) STag() STag {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *mw) Dealloc() error {
	w.mu.Lock()
	live, t := w.live, &w.pd.dev.mrs
	if w.gone || t.closed.Load() {
		w.mu.Unlock()
		return fmt.Errorf("%w: window is deallocated already", ErrInvalid)
	}
	w.gone = true
	t.remove(w.keys.stag, live)
	w.mu.Unlock()
	if live != nil {
		live.end()
	}
	t.mws.Add(-1)
	w.pd.leave()
	return nil
}

// prepareBind checks an OpBindMW when it is posted and gives the window its STag. The mr that it
// returns has no memory yet: the region may be one that an earlier request registers.
func (q *qp) prepareBind(b *BindMW) (*mr, error) {
	if b == nil {
		return nil, fmt.Errorf("%w: a bind without Bind", ErrInvalid)
	}
	w, ok := b.MW.(*mw)
	if !ok || w.pd != q.pd {
		return nil, fmt.Errorf("%w: a bind needs a window of the QP's protection domain", ErrInvalid)
	}
	m := &mr{pd: q.pd, base: b.Addr, access: b.Access, of: w, bound: q, life: q.life.Load()}
	if b.Len > 0 {
		if b.Access == 0 || b.Access&^remoteRights != 0 {
			return nil, fmt.Errorf("%w: a window takes remote rights only, and at least one", ErrInvalid)
		}
		switch r := b.MR.(type) {
		case *mr:
			if r.pd != q.pd {
				return nil, errWindowRegion
			}
			if !r.carries(m, b.Len) {
				return nil, fmt.Errorf("%w: a window of %d bytes from TO %#x on passes its region, or may write what that may not", ErrInvalid, b.Len, b.Addr)
			}
		case *fastMR:
			if r.pd != q.pd {
				return nil, errWindowRegion
			}
		default:
			return nil, errWindowRegion
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return nil, fmt.Errorf("%w: the window is deallocated", ErrInvalid)
	}
	if w.last = 0; b.Len > 0 {
		m.stag = w.keys.next(&q.dev.mrs.entropy)
		w.last = m.stag
	}
	return m, nil
}

var errWindowRegion = fmt.Errorf("%w: a window needs a region of the QP's protection domain", ErrInvalid)

// carries reports whether a window w of n bytes may be opened on m.
func (m *mr) carries(w *mr, n uint64) bool {
	if w.access&(RemoteWrite|RemoteAtomic) != 0 && m.access&LocalWrite == 0 {
		return false
	}
	_, f := m.span(w.base, n)
	return f == 0 && m.source == nil
}

// bind executes an OpBindMW, which closes what the window had open before. It returns false if
// the region cannot carry the window.
func (w *mw) bind(m *mr, b *BindMW) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return false
	}
	if w.live != nil {
		w.live.end()
	}
	if b.Len == 0 {
		return true
	}
	r, ok := b.MR.(*mr)
	if f, fast := b.MR.(*fastMR); fast {
		f.mu.Lock()
		r, ok = f.live, f.live != nil
		f.mu.Unlock()
	}
	if !ok || !r.carries(m, b.Len) {
		return false
	}
	m.buf, _ = r.span(m.base, b.Len)
	m.guard = r.guard
	r.remote.mu.Lock()
	defer r.remote.mu.Unlock()
	if r.over {
		return false
	}
	r.windows = append(r.windows, m)
	m.parent = r
	w.live = m
	w.pd.dev.mrs.set(m)
	return true
}
