package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// ctlSize is the length in bytes of a control message: two numbers.
const ctlSize = 16

// ctlRecvs is the number of receives beyond those for data: hello, acks and figures.
const ctlRecvs = 8

// endpoint is one side of one connection. Its receives all share one buffer: its content matters only for
// control messages, and no other message arrives while one of those is sent.
type endpoint struct {
	o        *options
	pd       iwarp.PD
	ownPD    bool
	scq, rcq iwarp.CQ
	qp       iwarp.QP
	data     iwarp.MR // source of Sends and sink of Reads, and the peer's window
	dataBuf  []byte
	recv     iwarp.MR
	recvBuf  []byte
	wcs      []iwarp.WC
	peer     iwarp.STag
	peerTO   uint64
	info     iwarp.ConnInfo
	proof    []byte // goes after the next control message; empty: there is nothing to prove
	provider string
	send1    iwarp.SendWR // the request being posted, which the device copies
	sge1     [1]iwarp.SGE
	recv1    iwarp.RecvWR
	posted   int   // requests not yet completed
	sent     int64 // messages of a bandwidth test, set when it has ended
}

// shape holds the sizes of an endpoint's queues and buffers.
type shape struct {
	pd              iwarp.PD // nil: one of its own
	sends, recvs    int
	recvLen, window int // bytes
}

// shape returns the shape that a test between two rdistcc-perf needs.
func (o *options) shape() shape {
	s := shape{sends: o.depth + ctlRecvs, recvs: ctlRecvs, recvLen: ctlSize + psk.ProofLen, window: int(o.size)}
	if o.t.id == testSendBW || o.t.id == testSendLat {
		s.recvs += o.depth
		s.recvLen = max(s.recvLen, int(o.size))
	}
	return s
}

// newEndpoint returns an endpoint with its receives posted.
func newEndpoint(dev iwarp.Device, o *options, s shape) (e *endpoint, err error) {
	e = &endpoint{o: o, provider: dev.Attr().Provider, wcs: make([]iwarp.WC, 64)}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if o.t.read && !dev.Attr().RDMARead {
		return e, fmt.Errorf("%s: the %s device has no RDMA Read", o.t.name, dev.Attr().Provider)
	}
	if used := dev.Stats().RegisteredBytes; used+int64(s.window)+int64(s.recvLen) > maxMemory+maxDepth {
		return e, errors.New("buffers of more than 4GiB: take fewer connections or smaller messages")
	}
	if e.pd = s.pd; e.pd == nil {
		if e.pd, err = dev.AllocPD(); err != nil {
			return e, err
		}
		e.ownPD = true
	}
	if e.scq, err = dev.CreateCQ(2 * s.sends); err != nil {
		return e, err
	}
	if e.rcq, err = dev.CreateCQ(2 * s.recvs); err != nil {
		return e, err
	}
	for _, cq := range []iwarp.CQ{e.scq, e.rcq} {
		if err = cq.SetWaiting(o.wait); err != nil {
			return e, err
		}
	}
	e.dataBuf = make([]byte, s.window)
	fill(e.dataBuf[:min(s.window, int(o.size))])
	// RDMA Reads may require rights for the peer on their sink too.
	e.data, err = e.pd.RegMR(e.dataBuf, iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead, nil)
	if err != nil {
		return e, err
	}
	e.recvBuf = make([]byte, s.recvLen)
	fill(e.recvBuf)
	if e.recv, err = e.pd.RegMR(e.recvBuf, iwarp.LocalWrite, nil); err != nil {
		return e, err
	}
	e.qp, err = e.pd.CreateQP(iwarp.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, MaxSend: s.sends, MaxRecv: s.recvs})
	if err != nil {
		return e, err
	}
	for range s.recvs {
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
	if e.ownPD {
		_ = e.pd.Dealloc()
	}
}

func (e *endpoint) postRecv() error {
	if e.recv1.SGL == nil {
		e.recv1.SGL = []iwarp.SGE{{Addr: e.recv.Base(), Length: uint32(len(e.recvBuf)), LKey: e.recv.STag()}}
	}
	return e.qp.PostRecv(&e.recv1)
}

// failure turns a failed completion, or the end of a connection, into an error.
func (e *endpoint) failure(what string, status iwarp.Status) error {
	if status == iwarp.StatusWRFlushErr {
		<-e.qp.Done() // the reason is on its way
	}
	select {
	case <-e.qp.Done():
		err := e.qp.Err()
		if err == nil {
			err = errors.New("the peer closed the connection: look at its own messages")
		}
		return &exitError{exitIO, fmt.Errorf("%s: %w", what, err)}
	default:
		return &exitError{exitIO, fmt.Errorf("%s: completion with status %v", what, status)}
	}
}

// reap takes send completions. With wait set it waits for at least one.
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

// reapMany takes send completions once there are many of them.
func (e *endpoint) reapMany(ctx context.Context) error {
	if e.posted < min(e.o.depth, len(e.wcs)) {
		return nil
	}
	return e.reap(ctx, false)
}

// post posts a send request as soon as there is room.
func (e *endpoint) post(ctx context.Context, wr *iwarp.SendWR) error {
	for {
		err := e.qp.PostSend(wr)
		if err == nil {
			if wr.Flags&iwarp.Unsignaled == 0 {
				e.posted++
			}
			return nil
		}
		if errors.Is(err, iwarp.ErrState) {
			return e.failure("post", iwarp.StatusWRFlushErr)
		}
		if !errors.Is(err, iwarp.ErrQueueFull) {
			return err
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

// receive waits for one or more receives, passes each to f, and posts as many again, until f returns true. It
// is not an error if the connection ended after a peer's last message, or if no receive could be posted any
// more: a caller that needs more will find out.
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
				if done {
					return nil
				}
				return e.failure("receive", wc.Status)
			}
			done = f(&wc) || done
			if err := e.postRecv(); err != nil && !done {
				return e.failure("post a receive", iwarp.StatusWRFlushErr)
			}
		}
	}
	return nil
}

// control sends two numbers. Only these messages are solicited, which distinguishes them from data.
func (e *endpoint) control(ctx context.Context, a, b uint64) error {
	m := binary.BigEndian.AppendUint64(nil, a)
	m = append(binary.BigEndian.AppendUint64(m, b), e.proof...)
	e.proof = nil
	return e.post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Solicited, Data: m})
}

// awaitControl waits for a control message and counts the data that arrives before it.
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

// payload returns the part of the data buffer that is sent.
func (e *endpoint) payload() []iwarp.SGE {
	e.sge1[0] = iwarp.SGE{Addr: e.data.Base(), Length: uint32(e.o.size), LKey: e.data.STag()}
	return e.sge1[:]
}

// write posts an RDMA Write of the data into the peer's window.
func (e *endpoint) write(ctx context.Context, flags iwarp.SendFlags) error {
	e.send1 = iwarp.SendWR{Op: iwarp.OpWrite, Flags: flags, SGL: e.payload(), STag: e.peer, TO: e.peerTO}
	return e.post(ctx, &e.send1)
}

// read posts an RDMA Read of the peer's window into the data.
func (e *endpoint) read(ctx context.Context) error {
	e.send1 = iwarp.SendWR{Op: iwarp.OpRead, SGL: e.payload(), STag: e.peer, TO: e.peerTO}
	return e.post(ctx, &e.send1)
}

// send posts a Send of the data, or an empty one.
func (e *endpoint) send(ctx context.Context, empty bool) error {
	e.send1 = iwarp.SendWR{Op: iwarp.OpSend}
	if !empty {
		e.send1.SGL = e.payload()
	}
	return e.post(ctx, &e.send1)
}
