package inproc

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

const (
	maxPrivate         = 512 // bytes
	maxPrivateEnhanced = 508 // bytes, with MPA revision 2
)

// wish is one side of a connection to be made.
type wish struct {
	p    iwarp.ConnParam
	q    *qp
	addr Addr
}

// newWish reserves q for a connection.
func newWish(q *qp, p *iwarp.ConnParam, enhanced bool) (wish, error) {
	if p == nil {
		p = &iwarp.ConnParam{}
	}
	limit := maxPrivate
	if enhanced {
		limit = maxPrivateEnhanced
	}
	switch {
	case len(p.PrivateData) > limit:
		return wish{}, fmt.Errorf("%w: %d bytes of private data: at most %d", iwarp.ErrInvalid, len(p.PrivateData), limit)
	case p.Rev < 0 || p.Rev > 2:
		return wish{}, fmt.Errorf("%w: MPA revision %d: 1 or 2", iwarp.ErrInvalid, p.Rev)
	case q.destroyed || q.state != iwarp.StateIdle:
		return wish{}, fmt.Errorf("%w: QP %d is in state %s, a connection needs IDLE", iwarp.ErrState, q.num, q.state)
	}
	q.state = iwarp.StateRTR
	w := wish{p: *p, q: q}
	w.p.PrivateData = append([]byte(nil), p.PrivateData...)
	return w, nil
}

// depths returns the ORD and IRD of a's side: its wishes within its device's limits.
func (a *wish) depths() (ord, ird uint16) {
	within := func(v uint16, most int) uint16 {
		if v == iwarp.DepthAny || int(v) > most {
			return uint16(most)
		}
		return v
	}
	return within(a.p.ORD, a.q.dev.attr.MaxORD), within(a.p.IRD, a.q.dev.attr.MaxIRD)
}

// offer returns the initiator's Request as the responder sees it.
func (a *wish) offer() iwarp.ConnInfo {
	i := iwarp.ConnInfo{
		PrivateData: a.p.PrivateData, Rev: 1, CRC: a.p.CRC == iwarp.CRCRequired, MarkersOut: a.p.Markers,
		Remote: a.addr,
	}
	if a.p.Rev == 1 {
		return i
	}
	i.Rev, i.PeerToPeer = 2, !a.p.ClientServer
	i.PeerORD, i.PeerIRD = a.sent()
	if i.PeerToPeer {
		i.RTR = a.p.RTR
		orDefault(&i.RTR, iwarp.RTRWrite|iwarp.RTRRead)
	}
	return i
}

// sent returns the depths that a puts into its Request.
func (a *wish) sent() (ord, ird uint16) {
	ord, ird = a.depths()
	if a.p.ORD == iwarp.DepthAny {
		ord = iwarp.DepthAny
	}
	if a.p.IRD == iwarp.DepthAny {
		ird = iwarp.DepthAny
	}
	return ord, ird
}

// agree settles what initiator a and responder b have in common, as their start-up frames would
// (RFC 6581 §9), and returns each side's view.
func agree(a, b *wish) (ai, bi iwarp.ConnInfo, rtr bool) {
	bi = a.offer()
	bi.CRC = bi.CRC || b.p.CRC == iwarp.CRCRequired
	bi.MarkersIn = b.p.Markers
	bi.Local = b.addr
	ai = iwarp.ConnInfo{
		PrivateData: b.p.PrivateData, Rev: bi.Rev, PeerToPeer: bi.PeerToPeer, CRC: bi.CRC,
		MarkersIn: a.p.Markers, MarkersOut: b.p.Markers, Local: a.addr, Remote: b.addr,
	}
	ai.ORD, ai.IRD = a.depths()
	bi.ORD, bi.IRD = b.depths()
	if bi.Rev == 1 {
		return ai, bi, true // revision 1 carries no depths: each side keeps its own
	}
	offered := bi.RTR
	ai.RTR, bi.RTR = 0, 0
	if bi.PeerToPeer {
		takes := b.p.RTR
		orDefault(&takes, iwarp.RTRWrite|iwarp.RTRRead|iwarp.RTRSend)
		for _, f := range []iwarp.RTRSet{iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend} {
			if offered&takes&f != 0 && bi.RTR == 0 {
				ai.RTR, bi.RTR = f, f
			}
		}
		if bi.RTR == 0 {
			return ai, bi, false
		}
		if bi.RTR == iwarp.RTRRead {
			bi.IRD = max(bi.IRD, 1)
		}
	}
	ai.PeerORD, ai.PeerIRD = bi.ORD, bi.IRD
	if bi.PeerIRD == iwarp.DepthAny {
		ai.PeerORD = iwarp.DepthAny
	} else {
		bi.ORD = min(bi.ORD, bi.PeerIRD)
		ai.PeerORD = bi.ORD
	}
	if bi.PeerORD == iwarp.DepthAny {
		ai.PeerIRD = iwarp.DepthAny
	} else {
		ai.ORD = min(ai.ORD, bi.IRD)
	}
	return ai, bi, true
}

// connect makes a and b the two ends of one stream.
func connect(a, b *wish, ai, bi *iwarp.ConnInfo) {
	for _, x := range []struct {
		w, peer *wish
		info    *iwarp.ConnInfo
		gate    bool
	}{
		{a, b, ai, true},
		// "The responder sends nothing before one valid FPDU has arrived" (after RFC
		// 5044 §7.1.2, rule 4): an RTR message is that FPDU.
		{b, a, bi, bi.PeerToPeer},
	} {
		q := x.w.q
		q.peer, q.gate, q.ext = x.peer.q, x.gate, x.w.p.Extensions
		q.opened = make(chan struct{})
		q.ord, q.ird = int(x.info.ORD), int(x.info.IRD)
		q.afterWith = false
		q.state = iwarp.StateRTS
	}
}
