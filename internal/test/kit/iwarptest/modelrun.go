package iwarptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

const (
	modelQPs     = 3 // on each side
	modelRegions = 24
)

// run is a program that is running, on devices and in the model.
type run struct {
	t     testing.TB
	ctx   context.Context
	quiet func() // returns when nothing moves any more; nil = messages have to tell

	m       model
	dev     [2]iwarp.Device
	attr    [2]iwarp.DeviceAttr
	addr    string
	pd      [2][2]iwarp.PD
	cq      [2]iwarp.CQ
	srq     [2]*mSRQ
	bufs    [2][]*mBuf
	regions []*mRegion
	holders []*mHolder
	drawn   map[iwarp.STag]bool
	id      uint64
	armed   [2]armedFor
	trace   []string
}

type armedFor struct{ any, solicited bool }

// RunProgram runs the program encoded in data on the devices of tr and in a model of the verbs, and
// returns where they differ. quiet, if not nil, returns when nothing moves any more on the devices,
// as synctest.Wait does in a bubble; without it the devices need RDMA Reads, which show that what
// was sent before has arrived.
func RunProgram(t testing.TB, tr Transport, quiet func(), data []byte) error {
	da, db, addr := tr(t)
	defer func() {
		Close(t, da)
		if db != da {
			Close(t, db)
		}
	}()
	r := &run{t: t, quiet: quiet, dev: [2]iwarp.Device{da, db}, addr: addr, drawn: make(map[iwarp.STag]bool)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	err := r.setUp()
	c := &choices{data}
	for err == nil && len(c.data) > 0 {
		err = r.step(c)
	}
	if err == nil {
		err = r.settle()
	}
	if err == nil {
		err = r.tearDown()
	}
	if err != nil {
		const most = 60
		if n := len(r.trace); n > most {
			r.trace = append([]string{fmt.Sprintf("(%d steps)", n-most)}, r.trace[n-most:]...)
		}
		return fmt.Errorf("%w\nafter:\n%s\nprogram: %x", err, strings.Join(r.trace, "\n"), data)
	}
	return nil
}

func (r *run) log(format string, a ...any) { r.trace = append(r.trace, fmt.Sprintf(format, a...)) }

func (r *run) nextID() uint64 { r.id++; return r.id }

func (r *run) setUp() (err error) {
	for side, d := range r.dev {
		r.attr[side] = d.Attr()
		for i := range r.pd[side] {
			if r.pd[side][i], err = d.AllocPD(); err != nil {
				return err
			}
		}
		if r.cq[side], err = d.CreateCQ(modelQPs * (modelSends + modelRecvs)); err != nil {
			return err
		}
		for i, size := range []int{256, 256, 512, 6000} {
			b := &mBuf{real: make([]byte, size), want: pattern(size, byte(16*side+i)), undefined: make([]bool, size)}
			copy(b.real, b.want)
			r.bufs[side] = append(r.bufs[side], b)
		}
		if r.attr[side].MaxSRQ > 0 {
			r.srq[side] = &mSRQ{}
			if r.srq[side].real, err = r.pd[side][0].CreateSRQ(iwarp.SRQInitAttr{MaxRecv: modelRecvs, MaxSGE: modelSGEs}); err != nil {
				return err
			}
		}
		for i := range modelQPs {
			q := &mQP{name: fmt.Sprintf("%c%d", 'a'+side, i), side: side, pd: i & 1, oneDevice: r.dev[0] == r.dev[1]}
			if i == 2 {
				q.srq = r.srq[side]
			}
			if q.real, err = r.createQP(q); err != nil {
				return err
			}
			r.m.qps[side] = append(r.m.qps[side], q)
		}
		if err := r.makeHolders(side); err != nil {
			return err
		}
		for _, b := range r.bufs[side] { // some initial content
			for pd := range r.pd[side] {
				g := &mRegion{side: side, pd: pd, buf: b, hi: len(b.want), access: rights[0], remote: true, local: true}
				if err := r.register(g); err != nil {
					return err
				}
			}
		}
	}
	for i := range modelQPs {
		p := iwarp.ConnParam{ORD: 4, IRD: 4, Extensions: r.attr[0].Immediate && r.attr[1].Immediate}
		if err := r.connect(r.m.qps[0][i], r.m.qps[1][i], p, false); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) createQP(q *mQP) (iwarp.QP, error) {
	a := iwarp.QPInitAttr{SendCQ: r.cq[q.side], RecvCQ: r.cq[q.side], MaxSend: modelSends, MaxRecv: modelRecvs, MaxSGE: modelSGEs}
	if q.srq != nil {
		a.SRQ, a.MaxRecv = q.srq.real, modelShare
	}
	return r.pd[q.side][q.pd].CreateQP(a)
}

func (r *run) register(g *mRegion) error {
	o := &iwarp.MROptions{Base: g.base}
	if g.bound != nil {
		o.QP = g.bound.real
	}
	bad := g.bound != nil && g.bound.pd != g.pd || g.access&(iwarp.RemoteWrite|iwarp.RemoteAtomic) != 0 && g.access&iwarp.LocalWrite == 0
	mr, err := r.pd[g.side][g.pd].RegMR(g.buf.real[g.lo:g.hi:g.hi], g.access, o)
	if bad || err != nil {
		if (err != nil) != bad {
			return fmt.Errorf("RegMR: got %v, want an error: %v", err, bad)
		}
		return nil
	}
	g.mr, g.stag, g.base = mr, mr.STag(), mr.Base()
	if g.stag == 0 || r.drawn[g.stag] {
		return fmt.Errorf("RegMR: STag %#x was in use just now", g.stag)
	}
	r.drawn[g.stag] = true
	r.regions = append(r.regions, g)
	r.log("%c: region %#x of PD %d, buffer of %d, %d to %d, base %#x, access %#x, bound %v", 'a'+g.side, g.stag, g.pd, len(g.buf.want), g.lo, g.hi, g.base, g.access, g.bound != nil)
	return nil
}

// deregister and invalidate end regions that no request uses.
func (r *run) deregister(g *mRegion) error {
	if err := r.settle(); err != nil {
		return err
	}
	r.log("deregister %#x", g.stag)
	err := g.mr.Dereg()
	if g.windows > 0 {
		if err == nil {
			return fmt.Errorf("Dereg of %#x with open windows succeeded", g.stag)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("Dereg of %#x: %w", g.stag, err)
	}
	g.remote, g.local = false, false
	for i, x := range r.regions {
		if x == g {
			r.regions = append(r.regions[:i:i], r.regions[i+1:]...)
			break
		}
	}
	r.forget(g)
	return nil
}

// forget makes everything that names g name nothing.
func (r *run) forget(g *mRegion) {
	for _, side := range r.m.qps {
		for _, q := range side {
			queue := q.rq
			if q.srq != nil {
				queue = q.srq.queue
			}
			for _, w := range queue {
				for i := range w.sgl {
					if w.sgl[i].r == g {
						w.sgl[i].r = nil
					}
				}
			}
		}
	}
}

func (r *run) invalidate(g *mRegion) error {
	if err := r.settle(); err != nil {
		return err
	}
	r.log("invalidate %#x", g.stag)
	if err := g.mr.Invalidate(); err != nil {
		return fmt.Errorf("Invalidate of %#x: %w", g.stag, err)
	}
	for _, w := range r.regions {
		if w.parent == g {
			w.end()
		}
	}
	g.remote = false
	if g.kind == mFast {
		g.end()
	}
	return nil
}

// postSend posts w once nothing under way makes its outcome uncertain.
func (r *run) postSend(q *mQP, w *mWR) error {
	if w.Flags&iwarp.More != 0 && len(q.sends)+2 >= modelSends {
		w.Flags &^= iwarp.More // settling needs a place
	}
	if w.Flags&iwarp.Unsignaled != 0 && len(q.sends)+2 >= modelSends {
		w.Flags &^= iwarp.Unsignaled // likewise
	}
	e, err := r.prepare(q, func() effect { return r.m.send(q, w, &r.attr[q.side]) })
	if err != nil || e.err == errNever {
		return err
	}
	if e.ends || q.fresh || q.state != iwarp.StateRTS {
		w.Flags &^= iwarp.More
	}
	w.SGL = nil
	for _, s := range w.sgl {
		w.SGL = append(w.SGL, iwarp.SGE{Addr: s.to, Length: s.n, LKey: s.key})
	}
	r.log("%s: post %d: %s", q.name, w.ID, describe(w))
	real := w.SendWR
	real.Data = append([]byte(nil), w.Data...)
	err = q.real.PostSend(&real)
	// What was posted may be reused at once.
	clear(real.Data)
	clear(real.SGL)
	return r.posted(q, &e, err)
}

func (r *run) postRecv(q *mQP, w *mRecv) error {
	e, err := r.prepare(q, func() effect { return r.m.recv(q, w) })
	if err != nil {
		return err
	}
	wr := &iwarp.RecvWR{ID: w.id}
	for _, s := range w.sgl {
		wr.SGL = append(wr.SGL, iwarp.SGE{Addr: s.to, Length: s.n, LKey: s.key})
	}
	r.log("%s: receive %d of %d bytes", q.name, w.id, w.room())
	if q.srq != nil {
		return r.posted(q, &e, q.srq.real.PostRecv(wr))
	}
	return r.posted(q, &e, q.real.PostRecv(wr))
}

// prepare returns the effect of a request once it is certain.
func (r *run) prepare(q *mQP, predict func() effect) (effect, error) {
	for _, side := range r.m.qps {
		for _, x := range side {
			if x.fresh && !q.fresh {
				if err := r.settle(); err != nil {
					return effect{}, err
				}
			}
		}
	}
	for {
		e := predict()
		if !e.settle && !r.m.clashes(q, &e) {
			return e, nil
		}
		if err := r.settle(); err != nil {
			return e, err
		}
	}
}

func (r *run) posted(q *mQP, e *effect, err error) error {
	switch {
	case e.err == errPerhaps:
		if err != nil {
			return nil
		}
	case e.err == errAny && err == nil, e.err != nil && e.err != errAny && !errors.Is(err, e.err), e.err == nil && err != nil:
		return fmt.Errorf("%s: posting gave %v, want %v; QP %s, %v", q.name, err, e.err, q.real.State(), q.real.Err())
	case e.err != nil:
		return nil
	}
	r.m.begin(q, e)
	if e.made != nil {
		return r.madeRegion(e.holder, e.made)
	}
	return nil
}

// arm asks for a token of the CQ, at a time when nothing moves.
func (r *run) arm(side int, solicitedOnly bool) error {
	if solicitedOnly && !(r.attr[side].SolicitedOnly && r.attr[side].WCMarks) {
		return nil
	}
	if err := r.cq[side].ReqNotify(solicitedOnly); err != nil {
		return fmt.Errorf("ReqNotify: %w", err)
	}
	r.log("%c: arm, solicited only: %v", 'a'+side, solicitedOnly)
	if solicitedOnly {
		r.armed[side].solicited = true
	} else {
		r.armed[side].any = true
	}
	return nil
}
