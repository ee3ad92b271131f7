package faults

import (
	"context"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// peer is one side of a connection that speaks the job protocol as a test wants,
// not as it should be spoken.
type peer struct {
	t   *testing.T
	dev iwarp.Device
	pd  iwarp.PD
	cq  iwarp.CQ
	qp  iwarp.QP
	mem []byte // receives first, then memory for the other side and for what is sent
	mr  iwarp.MR
}

const (
	peerRecvs = 64
	peerMem   = 1 << 20 // bytes after the receives
	peerBase  = peerRecvs * job.MaxMessage
)

// newPeer returns a peer whose receives are posted.
func newPeer(t *testing.T, dev iwarp.Device) (*peer, error) {
	p := &peer{t: t, dev: dev, mem: make([]byte, peerBase+peerMem)}
	var err error
	if p.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if p.cq, err = dev.CreateCQ(4096); err != nil {
		return nil, err
	}
	if p.qp, err = p.pd.CreateQP(iwarp.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 2048, MaxRecv: peerRecvs}); err != nil {
		return nil, err
	}
	if p.mr, err = p.pd.RegMR(p.mem, iwarp.LocalWrite, nil); err != nil {
		return nil, err
	}
	for i := range uint64(peerRecvs) {
		if err := p.post(i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *peer) post(i uint64) error {
	return p.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{Addr: i * job.MaxMessage, Length: job.MaxMessage, LKey: p.mr.STag()}}})
}

// receive returns the next message; nil at the connection's end.
func (p *peer) receive() job.Message {
	for {
		var wc [1]iwarp.WC
		if p.cq.Poll(wc[:]) == 0 {
			if p.cq.Wait(context.Background()) != nil {
				return nil
			}
			continue
		}
		switch {
		case wc[0].Op != iwarp.OpRecv:
		case wc[0].Status != iwarp.StatusSuccess:
			return nil
		default:
			m, err := job.Parse(p.mem[wc[0].ID*job.MaxMessage:][:wc[0].ByteLen])
			if err != nil {
				p.t.Errorf("the other side sent a %v", err)
			}
			if p.post(wc[0].ID) != nil || m == nil {
				return nil
			}
			return m
		}
	}
}

// send sends a message, with an invalidation if inv is not 0.
func (p *peer) send(m job.Message, inv uint32) { p.sendBytes(job.Append(nil, m), inv) }

// sendBytes sends anything. That the connection has ended shows elsewhere.
func (p *peer) sendBytes(b []byte, inv uint32) {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: b}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	_ = p.qp.PostSend(wr)
}

// write writes b into a window of the other side's, or past it.
func (p *peer) write(b []byte, stag uint32, to uint64) {
	copy(p.mem[peerBase:], b)
	_ = p.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled, STag: iwarp.STag(stag), TO: to,
		SGL: []iwarp.SGE{{Addr: peerBase, Length: uint32(len(b)), LKey: p.mr.STag()}}})
}

// destroy ends the connection and frees all.
func (p *peer) destroy() {
	_ = p.qp.Destroy()
	_ = p.mr.Dereg()
	_ = p.cq.Close()
	_ = p.pd.Dealloc()
}
