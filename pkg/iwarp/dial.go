package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	if p.Rev < 0 || p.Rev > mpa.Rev2 {
		return nil, fmt.Errorf("%w: MPA revision %d: 1 and 2 are supported", ErrInvalid, p.Rev)
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
			err = fmt.Errorf("iwarp: dial %s: %w", addr, err)
		}
		q.startFailed(err)
		return nil, err
	}
	return info, nil
}

// dial connects q. On error q has not been started.
func (d *soft) dial(ctx context.Context, addr string, q *qp, p *ConnParam) (*ConnInfo, error) {
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
	info, err := d.initiate(ctx, c, q, p, step)
	if err != nil {
		_ = c.Close() // the error that counts is err
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	return info, err
}

// initiate is the start-up of an initiator on c.
func (d *soft) initiate(ctx context.Context, c net.Conn, q *qp, p *ConnParam, step time.Duration) (*ConnInfo, error) {
	undo := bounded(ctx, c, step)
	defer undo()
	request := mpa.Frame{CRC: p.CRC == CRCRequired, Rev: mpa.Rev2, Private: p.PrivateData}
	if p.Rev == mpa.Rev1 {
		request.Rev = mpa.Rev1
	} else {
		request.Enhanced = &mpa.Enhanced{
			PeerToPeer: !p.ClientServer,
			IRD:        min(p.IRD, deviceIRD),
			ORD:        min(p.ORD, deviceORD),
		}
		if !p.ClientServer {
			request.Enhanced.RTR = mpa.RTRWrite
		}
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
		return nil, err
	}
	crc := request.CRC || reply.CRC
	info := infoOf(&reply, c, crc)
	if reply.Reject {
		return nil, &RejectedError{PrivateData: info.PrivateData, PeerORD: info.PeerORD, PeerIRD: info.PeerIRD}
	}
	sender := newSender(c, p.MaxULPDU)
	batch := mpa.NewBatch()
	batch.Reset(crc)
	if err := checkReply(&request, &reply); err != nil {
		if merr := new(mpa.Error); errors.As(err, &merr) && merr.Code != mpa.CodeStartup {
			t := rdmap.TerminateFor(merr, nil)
			sender.Terminate(batch, &t)
			d.lastWords(c, batch, &t)
		}
		return nil, err
	}
	info.PeerToPeer = request.Enhanced != nil && request.Enhanced.PeerToPeer
	if info.PeerToPeer {
		// The very first FPDU (RFC 6581 §5): it opens the responder's gate.
		sender.Start(rdmap.Message{Op: rdmap.OpWrite, STag: 1})
		sender.Cut(batch)
		if _, err := c.Write(batch.Bufs()[0]); err != nil {
			return nil, err
		}
		d.fpdusSent.Add(1)
		d.bytesSent.Add(uint64(batch.Size()))
	}
	undo()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &info, q.start(startParam{crc: crc, sender: sender, leftover: rest, gateOpen: true})
}

// checkReply says what is wrong with an accepting Reply: a *mpa.Error, whose code
// decides whether a Terminate follows.
func checkReply(request, reply *mpa.Frame) error {
	if reply.Rev != request.Rev {
		return &mpa.Error{Code: mpa.CodeStartup, Detail: fmt.Sprintf("MPA revision %d in the Reply to a Request of revision %d", reply.Rev, request.Rev)}
	}
	if reply.Markers {
		return &mpa.Error{Code: mpa.CodeEnhanced, Detail: "the peer demands markers, which this side cannot send"}
	}
	want, got := request.Enhanced, reply.Enhanced
	if want == nil {
		return nil
	}
	switch {
	case got == nil:
		return &mpa.Error{Code: mpa.CodeStartup, Detail: "unenhanced Reply to an enhanced Request"}
	case got.PeerToPeer != want.PeerToPeer:
		return &mpa.Error{Code: mpa.CodeEnhanced, Detail: "the Reply is of another connection model than the Request"}
	case got.ORD > want.IRD && got.ORD != mpa.DepthAny:
		return &mpa.Error{Code: mpa.CodeIRD}
	case want.PeerToPeer && got.RTR&want.RTR == 0:
		return &mpa.Error{Code: mpa.CodeRTR}
	}
	return nil
}

// lastWords sends the Terminate t, which is in batch, in start-up, and closes so
// that it arrives.
func (d *soft) lastWords(c net.Conn, batch *mpa.Batch, t *rdmap.Terminate) {
	_ = c.SetDeadline(time.Now().Add(d.cfg.LingerTimeout))
	if _, err := c.Write(batch.Bufs()[0]); err != nil {
		return // best effort
	}
	d.countTerminate(true, t.Layer, t.Type, t.Code)
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c) // until the peer closes, or the deadline
}
