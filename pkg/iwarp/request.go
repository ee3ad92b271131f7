package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// connRequest is a peer that waits for a decision.
type connRequest struct {
	l       *listener
	c       net.Conn
	frame   mpa.Frame
	info    ConnInfo
	watched chan struct{} // closed when startUp no longer reads

	mu      sync.Mutex // guards what follows
	decided bool
	early   bool  // a byte came before the Reply
	lost    error // the peer went away, or broke a rule, before the decision
}

func (r *connRequest) Info() ConnInfo { return r.info }

func (r *connRequest) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil
}

// decide takes the connection from startUp.
func (r *connRequest) decide() error {
	r.mu.Lock()
	if r.decided {
		r.mu.Unlock()
		return fmt.Errorf("%w: the request from %s is already accepted or rejected", ErrInvalid, r.info.Remote)
	}
	r.decided = true
	lost := r.lost
	_ = r.c.SetReadDeadline(past) // makes startUp stop watching
	r.mu.Unlock()
	<-r.watched
	if r.early {
		lost = errEarly
		r.l.refuse(lost)
	}
	if lost != nil {
		_ = r.c.Close() // closed already, or to be closed because of its early data
		r.l.release(r.c)
		return fmt.Errorf("iwarp: %s: %w", r.info.Remote, lost)
	}
	r.l.release(r.c)
	return nil
}

func (r *connRequest) Accept(ctx context.Context, qpair QP, p *ConnParam) error {
	q, ok := qpair.(*qp)
	if !ok || q.dev != r.l.dev {
		return fmt.Errorf("%w: the QP is of another device", ErrInvalid)
	}
	if p == nil {
		p = &ConnParam{}
	}
	if err := p.check(q.dev.depths()); err != nil {
		return err
	}
	if p.Private != nil {
		p = r.withPrivate(p)
	}
	if err := private(p, r.frame.Enhanced != nil); err != nil {
		return err
	}
	if e := r.frame.Enhanced; e != nil && e.IRD < p.MinORD {
		// "the Reply MUST contain the ORD that is required" (after RFC 6581 §9.1).
		if err := r.reject(p, p.MinORD); err != nil {
			return err
		}
		return fmt.Errorf("iwarp: %s holds %d Reads, fewer than MinORD %d: rejected", r.info.Remote, e.IRD, p.MinORD)
	}
	if err := q.begin(); err != nil {
		return err
	}
	limitUnsent(r.c, p.Unsent)
	if err := r.accept(ctx, q, p); err != nil {
		return err
	}
	return nil
}

// accept answers and starts q, which is in state RTR.
func (r *connRequest) accept(ctx context.Context, q *qp, p *ConnParam) error {
	err := r.decide()
	if err == nil {
		if err = q.attach(r.c); err != nil {
			_ = r.c.Close() // it will not be used
		}
	}
	if err != nil {
		q.startFailed(err)
		return err
	}
	step := p.Timeout
	orDefault(&step, defaultStep)
	reply, t := r.answer(p)
	frame, err := reply.Append(nil)
	if err == nil {
		_ = r.c.SetDeadline(time.Time{})
		// Armed before the Reply, so that the peer's answer to it finds the receiver ready.
		err = q.start(startParam{
			link: newLink(r.c, p, &t), responder: true, enhanced: reply.Enhanced != nil,
			ord: t.ord, ird: t.ird, extensions: p.Extensions, rtr: t.rtr,
		})
	}
	if err != nil {
		_ = r.c.Close() // no goroutine of q has it
		q.startFailed(err)
		return err
	}
	_ = r.c.SetWriteDeadline(time.Now().Add(step))
	if _, err := r.c.Write(frame); err != nil {
		q.Abort()
		return fmt.Errorf("iwarp: reply to %s: %w", r.info.Remote, err)
	}
	// The write deadline stays: the sending side sets its own when it writes.
	peerToPeer := reply.Enhanced != nil && reply.Enhanced.PeerToPeer
	if !peerToPeer {
		if p.SendFirst <= 0 {
			return nil
		}
		step = p.SendFirst
	}
	timer := time.NewTimer(step)
	defer timer.Stop()
	select {
	case <-q.rx.first:
		return nil
	case <-q.done:
		if err = q.Err(); err == nil {
			err = errors.New("closed the connection")
		}
	case <-timer.C:
		if !peerToPeer {
			q.openGate()
			return nil
		}
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.Abort()
	if why := startupRefusal(err); why != RefusedTransport && ctx.Err() == nil { // otherwise there was a Terminate
		r.l.dev.refused.add(why)
	}
	return fmt.Errorf("iwarp: %s did not open the stream after our Reply: %w", r.info.Remote, err)
}

// withPrivate returns p with the private data that its owner derives from the outcome of
// start-up.
func (r *connRequest) withPrivate(p *ConnParam) *ConnParam {
	reply, t := r.answer(p)
	info := infoOf(&r.frame, r.c, &t)
	info.Request, info.Reply = r.info.Request, reply.Head()
	made := *p
	made.PrivateData, made.Private = p.Private(info), nil
	return &made
}

// answer returns the accepting Reply, and what is in force here with it.
func (r *connRequest) answer(p *ConnParam) (reply mpa.Frame, t terms) {
	dev := r.l.dev.depths()
	t = terms{ord: min(p.ORD, dev.ord), ird: min(p.IRD, dev.ird)}
	reply = mpa.Frame{
		Reply: true, Rev: r.frame.Rev, Private: p.PrivateData, Markers: p.Markers,
		CRC: r.frame.CRC || p.CRC == CRCRequired,
	}
	if e := r.frame.Enhanced; e != nil {
		var a mpa.Enhanced
		a, t = answerEnhanced(e, p, dev)
		reply.Enhanced = &a
	}
	t.crc, t.in, t.out = reply.CRC, p.Markers, r.frame.Markers
	return reply, t
}

func (r *connRequest) Reject(privateData []byte) error {
	return r.reject(&ConnParam{PrivateData: privateData}, 0)
}

// reject answers with R=1. ord is the number of Reads that the initiator would have to hold, or 0.
func (r *connRequest) reject(p *ConnParam, ord uint16) error {
	if err := private(p, r.frame.Enhanced != nil); err != nil {
		return err
	}
	if err := r.decide(); err != nil {
		return err
	}
	reply, _ := r.answer(p)
	reply.Reject, reply.CRC, reply.Markers = true, false, false
	if ord > 0 {
		reply.Enhanced.ORD = ord
	}
	frame, err := reply.Append(nil)
	if err != nil {
		return err
	}
	defer r.c.Close()
	_ = r.c.SetDeadline(time.Now().Add(r.l.dev.cfg.LingerTimeout))
	if _, err := r.c.Write(frame); err != nil {
		return fmt.Errorf("iwarp: reject %s: %w", r.info.Remote, err)
	}
	// The initiator should close first: siw takes a FIN that it sees before it has read the Reply
	// for a reset, and its program never hears of a rejection. An initiator that waits for our FIN
	// gets it soon.
	_ = r.c.SetReadDeadline(time.Now().Add(min(rejectGrace, r.l.dev.cfg.LingerTimeout)))
	if discard(r.c) {
		closeWrite(r.c)
		_ = r.c.SetReadDeadline(time.Now().Add(r.l.dev.cfg.LingerTimeout))
		discard(r.c) // closing now could discard the Reply by a reset
	}
	return nil
}

// rejectGrace is how long a rejected initiator has to close first.
const rejectGrace = 500 * time.Millisecond

// discard reads c until it ends or its deadline passes. It reports whether the latter happened.
func discard(c net.Conn) (late bool) {
	var b [64]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}
