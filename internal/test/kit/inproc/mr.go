package inproc

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// mr is a memory region, with the registration that its STag names now.
type mr struct {
	pd    *pd
	limit int   // of a region of AllocMR: bytes; else 0
	bytes int64 // size that counts against the device's limit

	stag iwarp.STag // the last one given to it
	r    *region    // nil: no memory yet
	dead bool
}

// set gives m the registration r.
func (m *mr) set(r *region) {
	m.drop()
	m.stag, m.r = r.stag, r
	m.pd.dev.stags.regions[r.stag] = r
}

// drop ends the current registration of m.
func (m *mr) drop() {
	if m.r == nil {
		return
	}
	m.pd.dev.stags.retire(m.r.stag)
	m.r = nil
}

func (m *mr) STag() iwarp.STag {
	m.pd.dev.n.lock()
	defer m.pd.dev.n.unlock()
	return m.stag
}

func (m *mr) Base() uint64 {
	m.pd.dev.n.lock()
	defer m.pd.dev.n.unlock()
	if m.r == nil {
		return 0
	}
	return m.r.base
}

func (m *mr) Len() int {
	m.pd.dev.n.lock()
	defer m.pd.dev.n.unlock()
	if m.r == nil {
		return 0
	}
	return len(m.r.buf)
}

func (m *mr) Invalidate() error {
	m.pd.dev.n.lock()
	defer m.pd.dev.n.unlock()
	if m.r != nil {
		m.r.close()
		m.r.end()
	}
	return nil
}

func (m *mr) Dereg() error {
	d := m.pd.dev
	d.n.lock()
	defer d.n.unlock()
	if m.dead || d.closed {
		return fmt.Errorf("%w: region is deregistered already", iwarp.ErrInvalid)
	}
	if m.r != nil && len(m.r.windows) > 0 {
		return fmt.Errorf("%w: %d windows are open on the region: close them first", iwarp.ErrInvalid, len(m.r.windows))
	}
	m.dead = true
	m.drop()
	d.bytes -= m.bytes
	d.mrs--
	m.pd.mrs--
	return nil
}

// mw is a memory window: an STag for a part of a region.
type mw struct {
	pd   *pd
	stag iwarp.STag // of the last bind that was posted
	r    *region    // of the last bind executed; nil = none
	dead bool
}

func (w *mw) STag() iwarp.STag {
	w.pd.dev.n.lock()
	defer w.pd.dev.n.unlock()
	return w.stag
}

func (w *mw) Dealloc() error {
	d := w.pd.dev
	d.n.lock()
	defer d.n.unlock()
	if w.dead || d.closed {
		return fmt.Errorf("%w: window is deallocated already", iwarp.ErrInvalid)
	}
	w.dead = true
	w.drop()
	d.mws--
	w.pd.mws--
	return nil
}

// drop closes what the last bind opened.
func (w *mw) drop() {
	if w.r == nil {
		return
	}
	w.r.end()
	w.pd.dev.stags.retire(w.r.stag)
	w.r = nil
}
