package iwarp

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// depths holds the most Reads that the device holds for a peer (ird), and has outstanding there
// (ord), on one connection.
type depths struct{ ird, ord uint16 }

// terms is the outcome of start-up as this side sees it.
type terms struct {
	crc      bool
	in, out  bool    // markers
	ird, ord uint16  // in force here
	p2p      bool    //
	rtr      mpa.RTR // of p2p: the form that is sent
}

// rtrForms lists the forms of RTR message in order of preference: a Write costs the peer nothing,
// a Read a place of its IRD, and a Send, with stacks other than this one, a receive.
var rtrForms = []struct {
	set RTRSet
	mpa mpa.RTR
}{{RTRWrite, mpa.RTRWrite}, {RTRRead, mpa.RTRRead}, {RTRSend, mpa.RTRSend}}

func (s RTRSet) mpa() (r mpa.RTR) {
	for _, f := range rtrForms {
		if s&f.set != 0 {
			r |= f.mpa
		}
	}
	return r
}

func rtrSet(r mpa.RTR) (s RTRSet) {
	for _, f := range rtrForms {
		if r&f.mpa != 0 {
			s |= f.set
		}
	}
	return s
}

// firstRTR returns the preferred form of a set, or 0.
func firstRTR(r mpa.RTR) mpa.RTR {
	for _, f := range rtrForms {
		if r&f.mpa != 0 {
			return f.mpa
		}
	}
	return 0
}

// notEnhanced is a failure that may mean that the peer knows no enhanced start-up: revision 1 may
// succeed.
type notEnhanced struct{ error }

func (e notEnhanced) Unwrap() error { return e.error }

// check rejects wishes that no peer could fulfil.
func (p *ConnParam) check(dev depths) error {
	switch {
	case p.Rev < 0 || p.Rev > mpa.Rev2:
		return fmt.Errorf("%w: MPA revision %d: 1 and 2 are supported", ErrInvalid, p.Rev)
	case p.RTR&^(RTRWrite|RTRRead|RTRSend) != 0:
		return fmt.Errorf("%w: RTR set %#x", ErrInvalid, p.RTR)
	case p.RTR == RTRRead && dev.ord == 0:
		return fmt.Errorf("%w: an RTR by RDMA Read: the device has no RDMA Read", ErrUnsupported)
	case p.ORD > DepthAny || p.IRD > DepthAny:
		return fmt.Errorf("%w: ORD %d, IRD %d: at most %d, or DepthAny", ErrInvalid, p.ORD, p.IRD, DepthAny-1)
	case p.MinORD > min(p.ORD, dev.ord):
		return fmt.Errorf("%w: MinORD %d is more than ORD %d, or than the device's %d", ErrInvalid, p.MinORD, p.ORD, dev.ord)
	}
	return nil
}

// askEnhanced returns the enhanced block of an initiator's Request.
func askEnhanced(p *ConnParam, dev depths) *mpa.Enhanced {
	e := &mpa.Enhanced{PeerToPeer: !p.ClientServer, IRD: p.IRD, ORD: p.ORD}
	if p.IRD != DepthAny {
		e.IRD = min(p.IRD, dev.ird)
	}
	if p.ORD != DepthAny {
		e.ORD = min(p.ORD, dev.ord)
	}
	if e.PeerToPeer {
		// A Send would take a receive of a peer that does not expect it.
		if e.RTR = p.RTR.mpa(); e.RTR == 0 {
			e.RTR = mpa.RTRWrite | mpa.RTRRead
		}
		if dev.ord == 0 {
			e.RTR &^= mpa.RTRRead
		}
	}
	return e
}

// answerEnhanced does the responder's side of the IRD/ORD and RTR negotiation (RFC 6581 §9.1,
// 9.2) for the request r and the wishes p. It returns the responder's block, and what is then in
// force here.
func answerEnhanced(r *mpa.Enhanced, p *ConnParam, dev depths) (a mpa.Enhanced, t terms) {
	a.PeerToPeer, t.p2p = r.PeerToPeer, r.PeerToPeer
	t.ord, t.ird = min(p.ORD, dev.ord), min(p.IRD, dev.ird)
	if r.PeerToPeer {
		// Exactly one form, out of those offered: RNIC drivers treat a second bit as a mismatch. If none
		// is common, it is up to the peer to reject ours.
		ours := p.RTR.mpa()
		if ours == 0 {
			ours = mpa.RTRWrite | mpa.RTRRead | mpa.RTRSend
		}
		if dev.ird == 0 {
			ours &^= mpa.RTRRead
		}
		for _, set := range []mpa.RTR{ours & r.RTR, ours, mpa.RTRWrite} {
			if t.rtr = firstRTR(set); t.rtr != 0 {
				break
			}
		}
		a.RTR = t.rtr
		if t.rtr == mpa.RTRRead {
			t.ird = max(t.ird, 1) // it takes a place until it is answered
		}
	}
	// "The responder's ORD MUST NOT exceed the initiator's IRD" (after RFC 6581
	// §9.1), and all ones on the one side leave the other's value alone.
	if a.IRD = t.ird; r.ORD == DepthAny {
		a.IRD = DepthAny
	}
	if r.IRD == DepthAny {
		a.ORD = DepthAny
	} else {
		t.ord = min(t.ord, r.IRD)
		a.ORD = t.ord
	}
	return a, t
}

// settle does the initiator's side of an accepting Reply. It returns what is in force here, or
// what is wrong with the Reply: a *mpa.Error whose code decides whether a Terminate follows.
func settle(request, reply *mpa.Frame, p *ConnParam, dev depths) (t terms, err error) {
	t.crc = request.CRC || reply.CRC
	t.in, t.out = request.Markers, reply.Markers
	t.ord, t.ird = min(p.ORD, dev.ord), min(p.IRD, dev.ird)
	if reply.Rev != request.Rev {
		err = &mpa.Error{Code: mpa.CodeStartup, Detail: fmt.Sprintf("MPA revision %d in the Reply to a Request of revision %d", reply.Rev, request.Rev)}
		if reply.Rev < request.Rev {
			err = notEnhanced{err}
		}
		return t, err
	}
	want, got := request.Enhanced, reply.Enhanced
	if want == nil {
		return t, nil
	}
	if got == nil {
		return t, notEnhanced{&mpa.Error{Code: mpa.CodeStartup, Detail: "unenhanced Reply to an enhanced Request"}}
	}
	// "The initiator's ORD MUST be at most the responder's IRD, and its IRD at least
	// the responder's ORD" (after RFC 6581 §9.1).
	if got.IRD != DepthAny {
		t.ord = min(t.ord, got.IRD)
	}
	t.p2p = want.PeerToPeer
	t.rtr = firstRTR(got.RTR & want.RTR)
	switch {
	case got.PeerToPeer != want.PeerToPeer:
		return t, &mpa.Error{Code: mpa.CodeEnhanced, Detail: "the Reply is of another connection model than the Request"}
	case got.ORD != DepthAny && got.ORD > t.ird:
		return t, &mpa.Error{Code: mpa.CodeIRD, Detail: fmt.Sprintf("insufficient IRD: the peer wants %d Reads outstanding, this side holds %d", got.ORD, t.ird)}
	case t.p2p && t.rtr == 0:
		return t, &mpa.Error{Code: mpa.CodeRTR}
	case t.ord < p.MinORD:
		return t, &mpa.Error{Code: mpa.CodeEnhanced, Detail: fmt.Sprintf("the peer holds %d Reads, fewer than MinORD %d", got.IRD, p.MinORD)}
	}
	if !t.p2p {
		t.rtr = 0
	}
	return t, nil
}

// needsEnhanced reports whether p rules out revision 1.
func (p *ConnParam) needsEnhanced() bool { return p.RTR != 0 || p.MinORD > 0 }
