package iwarptest

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// mHolder is a region of AllocMR, or a window: an object with one registration, or bind, after
// the other.
type mHolder struct {
	side, pd int
	mr       iwarp.MR // or
	mw       iwarp.MW
	live     *mRegion // of the last request executed
}

// mHoldMax is the most memory that a region of AllocMR takes, in bytes.
const mHoldMax = 1000

func (h *mHolder) stag() iwarp.STag {
	if h.mr != nil {
		return h.mr.STag()
	}
	return h.mw.STag()
}

// makeHolders makes a region and a window for each protection domain.
func (r *run) makeHolders(side int) (err error) {
	for i, pd := range r.pd[side] {
		if r.attr[side].FastReg {
			h := &mHolder{side: side, pd: i}
			if h.mr, err = pd.AllocMR(mHoldMax); err != nil {
				return err
			}
			r.holders = append(r.holders, h)
		}
		if r.attr[side].MemoryWindow {
			h := &mHolder{side: side, pd: i}
			if h.mw, err = pd.AllocMW(); err != nil {
				return err
			}
			r.holders = append(r.holders, h)
		}
	}
	return nil
}

// meta returns an access to a region's validity.
func meta(g *mRegion, q *mQP) access { return access{g, 0, 1, true, q, gather, false} }

// replace returns the effect of giving h the registration g, in place of its current one.
func (h *mHolder) replace(q *mQP, w *mWR, g *mRegion) effect {
	e := effect{made: g, holder: h, uses: []access{meta(g, q)}}
	if h.live != nil {
		e.uses = append(e.uses, meta(h.live, q))
		if p := h.live.parent; p != nil {
			e.uses = append(e.uses, meta(p, q))
		}
	}
	if g.parent != nil {
		e.uses = append(e.uses, meta(g.parent, q))
	}
	e.do = func() {
		if h.live != nil {
			h.live.end()
			h.live.gone = true
		}
		h.live = g
		g.remote, g.local = true, g.kind == mFast
		if g.parent != nil {
			g.parent.windows++
		}
		q.completes(w, 0)
	}
	return e
}

// fastReg returns the effect of an OpFastReg.
func (m *model) fastReg(q *mQP, w *mWR) effect {
	h, g := w.holder, w.made
	switch {
	case h.side != q.side || h.pd != q.pd || h.mr == nil, g.hi-g.lo > mHoldMax,
		g.access&(iwarp.RemoteWrite|iwarp.RemoteAtomic) != 0 && g.access&iwarp.LocalWrite == 0:
		return effect{err: errAny}
	case h.live != nil && h.live.remote:
		return m.localFault(q, w)
	}
	return h.replace(q, w, g)
}

// bindMW returns the effect of an OpBindMW.
func (m *model) bindMW(q *mQP, w *mWR) effect {
	h, g := w.holder, w.made
	if h.side != q.side || h.pd != q.pd || h.mw == nil {
		return effect{err: errAny}
	}
	if w.Bind.Len == 0 {
		e := effect{uses: nil, do: func() { q.completes(w, 0) }}
		if live := h.live; live != nil {
			e.uses = append(e.uses, meta(live, q))
			if live.parent != nil {
				e.uses = append(e.uses, meta(live.parent, q))
			}
			e.do = func() { live.end(); q.completes(w, 0) }
		}
		return e
	}
	p := g.parent
	if p.side != q.side || p.pd != q.pd || g.access == 0 || g.access&^mRemoteRights != 0 {
		return effect{err: errAny}
	}
	lo, hi, f := p.span(g.base, w.Bind.Len)
	carries := f == faultNone && (g.access&(iwarp.RemoteWrite|iwarp.RemoteAtomic) == 0 || p.access&iwarp.LocalWrite != 0)
	switch {
	case !carries && p.kind == mRegistered:
		return effect{err: errAny}
	case !carries || !p.remote || p.gone:
		e := m.localFault(q, w)
		if fault, live := e.do, h.live; live != nil {
			e.do = func() { live.end(); fault() }
		}
		return e
	}
	g.lo, g.hi = lo, hi
	return h.replace(q, w, g)
}

// stepMemory registers or binds by a request.
func (r *run) stepMemory(c *choices, q *mQP) error {
	h := choose(c, r.holders)
	if !c.odd() {
		var own []*mHolder
		for _, x := range r.holders {
			if x.side == q.side && x.pd == q.pd {
				own = append(own, x)
			}
		}
		h = choose(c, own)
	}
	if h == nil {
		return nil
	}
	w := &mWR{SendWR: iwarp.SendWR{ID: r.nextID(), Op: iwarp.OpFastReg}, holder: h}
	g := &mRegion{side: q.side, pd: q.pd, bound: q, life: q.life, kind: mFast}
	w.made = g
	if h.mr != nil {
		g.mr, g.access = h.mr, choose(c, rights)
		r.place(c, g)
		if live := h.live; live != nil && live.remote && live.windows == 0 && !c.odd() { // it has to be released first
			w.Op, w.inv, w.InvSTag, w.holder, w.made = iwarp.OpLocalInv, live, live.stag, nil, nil
			return r.postSend(q, w)
		}
		w.Reg = &iwarp.FastReg{MR: h.mr, Buf: g.buf.real[g.lo:g.hi:g.hi], Access: g.access, Base: g.base}
		return r.postSend(q, w)
	}
	w.Op, g.kind = iwarp.OpBindMW, mWindow
	w.Bind = &iwarp.BindMW{MW: h.mw}
	if c.pick(5) == 0 {
		w.made = nil
		return r.postSend(q, w) // closes it
	}
	over := c.pick(8) == 0
	g.parent = r.pickRegion(c, func(g *mRegion) bool {
		return g.side == q.side && g.pd == q.pd && g.kind != mWindow && g.remote != over && g.hi > g.lo
	})
	if g.parent == nil || g.parent.kind == mWindow {
		return nil
	}
	g.buf = g.parent.buf
	size := g.parent.hi - g.parent.lo
	at := c.pick(size)
	n := 1 + int(c.byte())*(size-at-1)/255
	if c.odd() {
		n += size
	}
	g.base = g.parent.base + uint64(at)&^7
	g.access = choose(c, []iwarp.Access{mRemoteRights, iwarp.RemoteWrite, iwarp.RemoteRead, iwarp.RemoteAtomic, 0, iwarp.LocalWrite})
	w.Bind.MR, w.Bind.Addr, w.Bind.Len, w.Bind.Access = g.parent.mr, g.base, uint64(n), g.access
	return r.postSend(q, w)
}

// madeRegion records a region that a request makes.
func (r *run) madeRegion(h *mHolder, g *mRegion) error {
	g.stag = h.stag()
	if g.stag == 0 || r.drawn[g.stag] {
		return fmt.Errorf("STag %#x was in use just now", g.stag)
	}
	r.drawn[g.stag] = true
	kept := r.regions[:0:0]
	for _, x := range r.regions {
		if x.gone {
			r.forget(x)
		} else {
			kept = append(kept, x)
		}
	}
	r.regions = append(kept, g)
	return nil
}
