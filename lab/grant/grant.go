// Package grant has the ways to give a peer access to a buffer for one job and to take it
// away again, side by side: what each costs, and what a peer can still do when its job is
// over.
//
//	way     for each job                          a Write after the job
//	anew    RegMR, Dereg                          ends the peer's stream
//	fast    OpFastReg, OpLocalInv                 ends the peer's stream
//	window  OpBindMW of a registered region, and
//	        a bind of nothing                     ends the peer's stream
//	kept    nothing                               lands
//
// A device that pins memory makes anew expensive, and few devices have all of the others.
// Try measures both columns on a pair of connected QPs.
package grant

import (
	"context"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Way is a way to grant access.
type Way uint8

// Ways to grant access.
const (
	Anew Way = iota
	Fast
	Window
	Kept
)

// Ways lists all of them.
var Ways = []Way{Anew, Fast, Window, Kept}

func (w Way) String() string { return [...]string{"anew", "fast", "window", "kept"}[w] }

// On reports whether a device can do it.
func (w Way) On(a iwarp.DeviceAttr) bool {
	switch w {
	case Fast:
		return a.FastReg && a.LocalInv
	case Window:
		return a.MemoryWindow
	}
	return true
}

// Side is one end of a connection.
type Side struct {
	Dev iwarp.Device
	PD  iwarp.PD
	QP  iwarp.QP
	CQ  iwarp.CQ // of its sends and receives; nothing else may take from it meanwhile
}

// Grant gives the peer of one QP access to one buffer, for one job after the other. It is not safe for
// concurrent use.
type Grant struct {
	way Way
	s   Side
	buf []byte

	mr   iwarp.MR // Anew: only while it is open
	mw   iwarp.MW
	open bool
}

const access = iwarp.LocalWrite | iwarp.RemoteWrite

// New prepares a Grant of buf. Close frees what it holds.
func New(s Side, w Way, buf []byte) (*Grant, error) {
	g := &Grant{way: w, s: s, buf: buf}
	if !w.On(s.Dev.Attr()) {
		return nil, fmt.Errorf("%w: grant access by way of %s", iwarp.ErrUnsupported, w)
	}
	var err error
	switch w {
	case Fast:
		g.mr, err = s.PD.AllocMR(len(buf))
	case Window:
		if g.mr, err = s.PD.RegMR(buf, iwarp.LocalWrite, nil); err == nil {
			if g.mw, err = s.PD.AllocMW(); err != nil {
				_ = g.mr.Dereg() // err says more
			}
		}
	case Kept:
		g.mr, err = s.PD.RegMR(buf, access, &iwarp.MROptions{QP: bound(s)})
	}
	return g, err
}

// bound returns the QP to bind a region to, where the device can do that.
func bound(s Side) iwarp.QP {
	if s.Dev.Attr().BoundMR {
		return s.QP
	}
	return nil
}

// Open lets the peer write to the buffer, and returns what it has to know.
func (g *Grant) Open(ctx context.Context) (stag iwarp.STag, to uint64, err error) {
	switch g.way {
	case Anew:
		g.mr, err = g.s.PD.RegMR(g.buf, access, &iwarp.MROptions{QP: bound(g.s)})
	case Fast:
		err = g.do(ctx, &iwarp.SendWR{Op: iwarp.OpFastReg, Reg: &iwarp.FastReg{MR: g.mr, Buf: g.buf, Access: access}})
	case Window:
		err = g.do(ctx, &iwarp.SendWR{Op: iwarp.OpBindMW, Bind: &iwarp.BindMW{MW: g.mw, MR: g.mr, Addr: g.mr.Base(), Len: uint64(len(g.buf)), Access: iwarp.RemoteWrite}})
		if err == nil {
			stag = g.mw.STag()
		}
	}
	if err != nil {
		return 0, 0, err
	}
	g.open = true
	if stag == 0 {
		stag = g.mr.STag()
	}
	return stag, g.mr.Base(), nil
}

// Shut takes the access away, except with Kept. When it has returned, nothing is placed any more.
func (g *Grant) Shut(ctx context.Context) error {
	if !g.open {
		return nil
	}
	g.open = false
	switch g.way {
	case Anew:
		return g.mr.Dereg()
	case Fast:
		return g.do(ctx, &iwarp.SendWR{Op: iwarp.OpLocalInv, InvSTag: g.mr.STag()})
	case Window:
		return g.do(ctx, &iwarp.SendWR{Op: iwarp.OpBindMW, Bind: &iwarp.BindMW{MW: g.mw, MR: g.mr}})
	}
	return nil
}

// Close frees the grant. The QP may have ended.
func (g *Grant) Close() error {
	if g.mw != nil {
		if err := g.mw.Dealloc(); err != nil {
			return err
		}
	}
	if g.mr == nil || g.way == Anew && !g.open {
		return nil
	}
	return g.mr.Dereg()
}

// do executes a request that concerns memory.
func (g *Grant) do(ctx context.Context, wr *iwarp.SendWR) error {
	if err := g.s.QP.PostSend(wr); err != nil {
		return err
	}
	return g.s.done(ctx)
}

// done waits for the completion of the only request under way.
func (s *Side) done(ctx context.Context) error {
	wc, err := s.next(ctx)
	if err == nil && wc.Status != iwarp.StatusSuccess {
		err = fmt.Errorf("grant: request: %s", wc.Status)
	}
	return err
}

// next waits for the next completion.
func (s *Side) next(ctx context.Context) (iwarp.WC, error) {
	var wc [1]iwarp.WC
	for s.CQ.Poll(wc[:]) == 0 {
		if err := s.CQ.Wait(ctx); err != nil {
			return wc[0], err
		}
	}
	return wc[0], nil
}
