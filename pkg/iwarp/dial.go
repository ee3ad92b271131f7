package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

func (d *soft) Dial(ctx context.Context, addr string, qpair QP, p *ConnParam) (*ConnInfo, error) {
	q, ok := qpair.(*qp)
	if !ok || q.dev != d {
		return nil, fmt.Errorf("%w: the QP is of another device", ErrInvalid)
	}
	if p == nil {
		p = &ConnParam{}
	}
	if err := p.check(d.depths()); err != nil {
		return nil, err
	}
	if err := private(p, p.Rev != mpa.Rev1); err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	info, err := d.dial(ctx, addr, q, p)
	if err != nil {
		var rejected *RejectedError
		if !errors.As(err, &rejected) {
			err = fmt.Errorf("iwarp: dial %s: %w", addr, unaddressed(err))
		}
		q.startFailed(err)
		return nil, err
	}
	if err := q.settle(ctx, p.Settle); err != nil {
		q.Abort()
		<-q.gone
		return nil, fmt.Errorf("iwarp: dial %s: %w", addr, err)
	}
	return info, nil
}

// dial connects q. If it fails, q has not been started.
func (d *soft) dial(ctx context.Context, addr string, q *qp, p *ConnParam) (*ConnInfo, error) {
	info, err := d.dialOnce(ctx, addr, q, p)
	if !errors.As(err, new(notEnhanced)) || !p.Fallback || p.needsEnhanced() {
		return info, err
	}
	// "on a new TCP connection" (after RFC 6581 §10): the old one has had its Request.
	old := *p
	old.Rev = mpa.Rev1
	info, err1 := d.dialOnce(ctx, addr, q, &old)
	if err1 != nil {
		return nil, fmt.Errorf("%w; then with revision 1: %w", err, err1)
	}
	return info, nil
}

func (d *soft) dialOnce(ctx context.Context, addr string, q *qp, p *ConnParam) (*ConnInfo, error) {
	step := p.Timeout
	orDefault(&step, defaultStep)
	tctx, cancel := context.WithTimeout(ctx, step)
	c, err := d.cfg.Dial(tctx, addr)
	cancel()
	if err != nil {
		return nil, err
	}
	if err := q.attach(c); err != nil {
		_ = c.Close() // never used
		return nil, err
	}
	tuneConn(c, d.cfg.StallTimeout)
	limitUnsent(c, p.Unsent)
	if p.Connected != nil {
		p.Connected(c.RemoteAddr())
	}
	info, err := d.initiate(ctx, c, q, p, step)
	if err != nil {
		_ = c.Close() // the error that counts is err
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	return info, err
}

// settle waits for d, or for the peer to send, and then opens the gate, unless an RTR has
// done its waiting and opened it already.
func (q *qp) settle(ctx context.Context, d time.Duration) error {
	q.mu.Lock()
	open := q.gateOpen
	q.mu.Unlock()
	if open {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		q.openGate()
	case <-q.rx.first: // has opened it
	case <-q.done: // Err says why to users of the QP
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// initiate runs the start-up of an initiator on c.
func (d *soft) initiate(ctx context.Context, c net.Conn, q *qp, p *ConnParam, step time.Duration) (*ConnInfo, error) {
	undo := bounded(ctx, c, step)
	defer undo()
	request := mpa.Frame{CRC: p.CRC == CRCRequired, Markers: p.Markers, Rev: mpa.Rev2, Private: p.PrivateData}
	if p.Rev == mpa.Rev1 {
		request.Rev = mpa.Rev1
	} else {
		request.Enhanced = askEnhanced(p, d.depths())
	}
	frame, err := request.Append(nil)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	var fr frameReader
	reply, rest, err := fr.read(c, true)
	if err != nil {
		if request.Enhanced != nil && fr.n == 0 && hungUp(err) {
			err = notEnhanced{err}
		}
		return nil, err
	}
	t, err := settle(&request, &reply, p, d.depths())
	info := infoOf(&reply, c, &t)
	info.Request, info.Reply = request.Head(), reply.Head()
	if reply.Reject {
		return nil, &RejectedError{PrivateData: info.PrivateData, PeerORD: info.PeerORD, PeerIRD: info.PeerIRD}
	}
	link := newLink(c, p, &t)
	if err == nil && request.Enhanced != nil && ctx.Err() != nil {
		err = &mpa.Error{Code: mpa.CodeEnhanced}
	}
	if err != nil {
		if merr := new(mpa.Error); errors.As(err, &merr) && merr.Code != mpa.CodeStartup {
			d.lastWords(c, link, merr)
		}
		return nil, err
	}
	open := p.Settle <= 0 || t.p2p // else settle opens it
	if t.p2p {
		if len(rest) == 0 { // or the peer is awake already
			if err := pause(ctx, p.Settle); err != nil {
				return nil, err
			}
			_ = c.SetDeadline(time.Now().Add(step)) // fails with the connection, as the write will
		}
		if err := d.sendRTR(c, link, t.rtr); err != nil {
			return nil, err
		}
	}
	undo()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &info, q.start(startParam{
		link: link, leftover: rest, gateOpen: open,
		ord: t.ord, ird: t.ird, extensions: p.Extensions, rtrSent: t.rtr,
	})
}

// hungUp reports whether err means that the peer has closed the connection in any way.
func hungUp(err error) bool {
	return errors.Is(err, errClosedEarly) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// sendRTR sends the very first FPDU (RFC 6581 §5), which opens the responder's gate. It is
// not a request of the SQ and completes nothing.
func (d *soft) sendRTR(c net.Conn, l *link, form mpa.RTR) error {
	m := rdmap.Message{Op: rdmap.OpWrite, STag: 1} // not checked, but STag 0 upsets some RNICs
	switch form {
	case mpa.RTRSend:
		m = rdmap.Message{Op: rdmap.OpSend}
	case mpa.RTRRead: // of length zero; start records that its response is due
		var head [rdmap.ReadRequestSize]byte
		(&rdmap.ReadRequest{SinkSTag: 1, SrcSTag: 1}).Put(head[:])
		m = rdmap.Message{Op: rdmap.OpReadRequest, Head: head[:]}
	}
	batch := l.borrowBatch()
	defer returnBatch(batch)
	l.sender.Start(m)
	l.sender.Cut(batch)
	if _, err := c.Write(batch.Bufs()[0]); err != nil {
		return err
	}
	d.fpdusSent.Add(1)
	d.bytesSent.Add(uint64(batch.Size()))
	return nil
}

// lastWords ends start-up with a Terminate, and closes the connection so that it arrives.
func (d *soft) lastWords(c net.Conn, l *link, reason *mpa.Error) {
	t := rdmap.TerminateFor(reason, nil)
	batch := l.borrowBatch()
	defer returnBatch(batch)
	l.sender.Terminate(batch, &t)
	_ = c.SetDeadline(time.Now().Add(d.cfg.LingerTimeout))
	if _, err := c.Write(batch.Bufs()[0]); err != nil {
		return // best effort
	}
	d.countTerminate(true, t.Layer, t.Type, t.Code)
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c) // until the peer closes, or the deadline
}

// unaddressed returns the cause of an error of package net, whose message begins with operation and address. They are in the message of
// what fails here already.
func unaddressed(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Err != nil {
		return op.Err
	}
	return err
}
