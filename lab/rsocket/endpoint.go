package rsocket

import (
	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Work requests of a connection. Data and direct writes take up to two places of the SQ each, and
// so do control messages, which have places of their own: data must not keep them waiting.
const (
	maxData    = 128 // data messages, maps and direct writes in the SQ
	maxControl = 4   // grants and keepalives in the SQ, as librdmacm has them
	lastWords  = 2   // a shutdown and a disconnect
	maxSend    = 2*maxData + 2*maxControl + lastWords
	// spareReceives are beyond those that data needs: messages other than data cost no credit. A
	// peer that sends more of them than this while we do not look loses its connection.
	spareReceives = 64
)

// endpoint is what one end of a connection uses of a device. All of it is set once.
type endpoint struct {
	pd  iwarp.PD
	cq  iwarp.CQ
	qp  iwarp.QP
	own proto.ConnData

	// far is what the peer may write into: the table and the receive buffer. near is what it may
	// not: the send buffer, and the messages that arrive.
	far, near           []byte
	farMR, nearMR       iwarp.MR
	table, recv         []byte // of far
	send, messages      []byte // of near
	sendBase, messageTO uint64
}

// bufferAlign is where the receive buffer begins in far, at least after the table.
const bufferAlign = 64

// newEndpoint makes an end that is not connected yet, with all its receives posted. release frees it.
func newEndpoint(dev iwarp.Device, o *Options, bigEndian bool) (e *endpoint, err error) {
	e = new(endpoint)
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	receives := o.Credits + spareReceives
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = dev.CreateCQ(maxSend + receives); err != nil {
		return e, err
	}
	if e.qp, err = e.pd.CreateQP(iwarp.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: maxSend, MaxRecv: receives, MaxSGE: 2}); err != nil {
		return e, err
	}
	if err = e.register(o, receives); err != nil {
		return e, err
	}
	e.own = proto.ConnData{
		BigEndian: bigEndian, Credits: uint16(o.Credits), IOMaps: o.IOMaps,
		Table:  proto.SGE{Addr: e.farMR.Base(), Key: uint32(e.farMR.STag()), Length: proto.TableEntries},
		Buffer: proto.SGE{Addr: e.farMR.Base() + uint64(len(e.far)-o.RecvBuffer), Key: uint32(e.farMR.STag()), Length: uint32(o.RecvBuffer / 2)},
	}
	for i := range receives {
		if err = e.postRecv(uint64(i)); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (e *endpoint) register(o *Options, receives int) (err error) {
	table := proto.TableSize(o.IOMaps)
	gap := (table + bufferAlign - 1) / bufferAlign * bufferAlign
	e.far = make([]byte, gap+o.RecvBuffer)
	e.table, e.recv = e.far[:table:table], e.far[gap:]
	e.near = make([]byte, o.SendBuffer+receives*proto.MessageSize)
	e.send, e.messages = e.near[:o.SendBuffer:o.SendBuffer], e.near[o.SendBuffer:]
	if e.farMR, err = e.pd.RegMR(e.far, iwarp.LocalWrite|iwarp.RemoteWrite, nil); err != nil {
		return err
	}
	if e.nearMR, err = e.pd.RegMR(e.near, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	e.sendBase = e.nearMR.Base()
	e.messageTO = e.sendBase + uint64(o.SendBuffer)
	return nil
}

// postRecv posts receive i, whose message arrives in message(i).
func (e *endpoint) postRecv(i uint64) error {
	return e.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: e.messageTO + i*proto.MessageSize, Length: proto.MessageSize, LKey: e.nearMR.STag()}}})
}

func (e *endpoint) message(i uint64, n uint32) []byte {
	return e.messages[i*proto.MessageSize:][:min(n, proto.MessageSize)]
}

// release frees whatever there is. It ends the connection if there is one. No goroutine may wait
// on the CQ.
func (e *endpoint) release() {
	// The errors would be those of a device that is closed, which has freed everything itself.
	if e.qp != nil {
		_ = e.qp.Destroy()
	}
	for _, mr := range []iwarp.MR{e.farMR, e.nearMR} {
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	if e.cq != nil {
		_ = e.cq.Close()
	}
	if e.pd != nil {
		_ = e.pd.Dealloc()
	}
}
