package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// ctlSize is the length in bytes of a control message: two numbers.
const ctlSize = 16

// ctlRecvs are receives beyond those for data: hello, acks and figures.
const ctlRecvs = 8

// endpoint is one side of one connection. Its receives all share one buffer: what
// is in it matters only for the control messages, which have the line to
// themselves when they are sent.
type endpoint struct {
	o        *options
	pd       iwarp.PD
	scq, rcq iwarp.CQ
	qp       iwarp.QP
	data     iwarp.MR // source of what is sent, and the peer's window
	recv     iwarp.MR
	recvBuf  []byte
	wcs      []iwarp.WC
	peer     iwarp.STag
	crc      bool  // agreed
	posted   int   // sends without a completion yet
	sent     int64 // messages of a bandwidth test, once it has ended
}

// newEndpoint makes a QP with its receives posted.
func newEndpoint(dev iwarp.Device, o *options) (e *endpoint, err error) {
	e = &endpoint{o: o, wcs: make([]iwarp.WC, 64)}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	recvs, recvLen := ctlRecvs, ctlSize
	if o.t.id == testSendBW || o.t.id == testSendLat {
		recvs, recvLen = recvs+o.depth, max(recvLen, int(o.size))
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	sends := o.depth + ctlRecvs
	if e.scq, err = dev.CreateCQ(2 * sends); err != nil {
		return e, err
	}
	if e.rcq, err = dev.CreateCQ(2 * recvs); err != nil {
		return e, err
	}
	if e.data, err = e.pd.RegMR(filled(int(o.size)), iwarp.LocalWrite|iwarp.RemoteWrite, nil); err != nil {
		return e, err
	}
	e.recvBuf = filled(recvLen)
	if e.recv, err = e.pd.RegMR(e.recvBuf, iwarp.LocalWrite, nil); err != nil {
		return e, err
	}
	e.qp, err = e.pd.CreateQP(iwarp.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, MaxSend: sends, MaxRecv: recvs})
	if err != nil {
		return e, err
	}
	for range recvs {
		if err := e.postRecv(); err != nil {
			return e, err
		}
	}
	return e, nil
}

// close ends the connection and frees everything.
func (e *endpoint) close() {
	if e.qp != nil {
		_ = e.qp.Destroy()
	}
	for _, mr := range []iwarp.MR{e.data, e.recv} {
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	for _, cq := range []iwarp.CQ{e.scq, e.rcq} {
		if cq != nil {
			_ = cq.Close()
		}
	}
	if e.pd != nil {
		_ = e.pd.Dealloc()
	}
}

// connParam is what this side of a connection wishes.
func (o *options) connParam() *iwarp.ConnParam {
	p := &iwarp.ConnParam{MaxULPDU: o.maxULPDU()}
	if !o.crc {
		p.CRC = iwarp.CRCOffIfAgreed
	}
	return p
}

func (e *endpoint) postRecv() error {
	return e.qp.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{{Length: uint32(len(e.recvBuf)), LKey: e.recv.STag()}}})
}

// failure turns a completion that is none, or the end of a connection, into an error.
func (e *endpoint) failure(what string, status iwarp.Status) error {
	select {
	case <-e.qp.Done():
		if err := e.qp.Err(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return fmt.Errorf("%s: the peer closed the connection", what)
	default:
		return fmt.Errorf("%s: completion with status %v", what, status)
	}
}

// reap takes send completions, waiting for at least one when wait is set.
func (e *endpoint) reap(ctx context.Context, wait bool) error {
	for {
		n := e.scq.Poll(e.wcs)
		for i := range n {
			if s := e.wcs[i].Status; s != iwarp.StatusSuccess {
				return e.failure("send", s)
			}
		}
		e.posted -= n
		if n > 0 || !wait {
			return nil
		}
		if err := e.scq.Wait(ctx); err != nil {
			return err
		}
	}
}

// post posts a send request as soon as there is room.
func (e *endpoint) post(ctx context.Context, wr *iwarp.SendWR) error {
	for {
		err := e.qp.PostSend(wr)
		if err == nil {
			e.posted++
			return nil
		}
		if !errors.Is(err, iwarp.ErrQueueFull) {
			select {
			case <-e.qp.Done():
				return e.failure("post", iwarp.StatusWRFlushErr)
			default:
				return err
			}
		}
		if err := e.reap(ctx, true); err != nil {
			return err
		}
	}
}

// drain waits until every send has completed.
func (e *endpoint) drain(ctx context.Context) error {
	for e.posted > 0 {
		if err := e.reap(ctx, true); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for one or more receives, posts as many anew, and hands each
// to f; until f returns true.
func (e *endpoint) receive(ctx context.Context, f func(wc *iwarp.WC) bool) error {
	for done := false; !done; {
		n := e.rcq.Poll(e.wcs)
		if n == 0 {
			if err := e.rcq.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		for i := range n {
			wc := e.wcs[i]
			if wc.Status != iwarp.StatusSuccess {
				return e.failure("receive", wc.Status)
			}
			if err := e.postRecv(); err != nil {
				return e.failure("post a receive", iwarp.StatusWRFlushErr)
			}
			done = f(&wc) || done
		}
	}
	return nil
}

// control sends two numbers. Only these messages are solicited: that tells them
// from data.
func (e *endpoint) control(ctx context.Context, a, b uint64) error {
	m := binary.BigEndian.AppendUint64(nil, a)
	m = binary.BigEndian.AppendUint64(m, b)
	return e.post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Solicited, Data: m})
}

// awaitControl waits for a control message; data that comes before it is counted.
func (e *endpoint) awaitControl(ctx context.Context) (a, b uint64, data int, err error) {
	short := false
	err = e.receive(ctx, func(wc *iwarp.WC) bool {
		if !wc.Solicited {
			data++
			return false
		}
		short = wc.ByteLen < ctlSize
		return true
	})
	if err == nil && short {
		err = errors.New("a control message is too short: the peer is not rdistcc-perf, or another version")
	}
	return binary.BigEndian.Uint64(e.recvBuf), binary.BigEndian.Uint64(e.recvBuf[8:]), data, err
}

// payload is the whole data buffer.
func (e *endpoint) payload() []iwarp.SGE {
	return []iwarp.SGE{{Length: uint32(e.o.size), LKey: e.data.STag()}}
}

// write posts an RDMA Write of the data into the peer's window.
func (e *endpoint) write(ctx context.Context) error {
	return e.post(ctx, &iwarp.SendWR{Op: iwarp.OpWrite, SGL: e.payload(), STag: e.peer})
}

// send posts a Send of the data, or an empty one.
func (e *endpoint) send(ctx context.Context, empty bool) error {
	wr := &iwarp.SendWR{Op: iwarp.OpSend}
	if !empty {
		wr.SGL = e.payload()
	}
	return e.post(ctx, wr)
}
