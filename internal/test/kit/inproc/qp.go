package inproc

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var (
	errAborted = errors.New("iwarp: aborted by this side")
	errReset   = fmt.Errorf("iwarp: the peer aborted: %w", syscall.ECONNRESET)
)

// qp is a queue pair.
type qp struct {
	// set once in CreateQP
	dev              *device
	pd               *pd
	num              uint32
	sendCQ, recvCQ   *cq
	srq              *srq
	maxSend, maxRecv int
	maxSGE           int

	state          iwarp.QPState
	life           int       // streams carried so far
	sq             []request // oldest first; empty except for a responder that may not send yet
	rq             []receive // oldest first
	sqHeld, rqHeld int       // places: posted, or completed and not yet polled
	destroyed      bool

	// of the connection
	peer      *qp
	ord, ird  int           // 0 = no Reads
	gate      bool          // requests may be executed
	opened    chan struct{} // closed when the gate opens
	ext       bool          // Immediate Data and atomics, both ways
	afterWith bool          // the last message that arrived was a Write...
	written   uint32        // ...of so many bytes

	done  chan struct{} // closed when all is flushed
	cause error         // what Err returns after that
	stats iwarp.QPStats
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (p *pd) CreateQP(a iwarp.QPInitAttr) (iwarp.QP, error) {
	d := p.dev
	d.n.lock()
	defer d.n.unlock()
	orDefault(&a.MaxSend, 64)
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	if a.MaxSend < 0 || a.MaxRecv < 0 || a.MaxSGE < 0 ||
		a.MaxSend > d.attr.MaxQPWR || a.MaxRecv > d.attr.MaxQPWR || a.MaxSGE > d.attr.MaxSGE {
		return nil, fmt.Errorf("%w: QP of %d sends, %d receives, %d SGEs: at most %d, %d, %d",
			iwarp.ErrLimit, a.MaxSend, a.MaxRecv, a.MaxSGE, d.attr.MaxQPWR, d.attr.MaxQPWR, d.attr.MaxSGE)
	}
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != d || rcq.dev != d {
		return nil, fmt.Errorf("%w: a QP needs a send and a receive CQ of its own device", iwarp.ErrInvalid)
	}
	q := &qp{
		dev: d, pd: p, sendCQ: scq, recvCQ: rcq,
		maxSend: a.MaxSend, maxRecv: a.MaxRecv, maxSGE: a.MaxSGE,
		done: make(chan struct{}),
	}
	if a.SRQ != nil {
		s, ok := a.SRQ.(*srq)
		if !ok || s.pd != p || s.dead {
			return nil, fmt.Errorf("%w: the SRQ is of another protection domain", iwarp.ErrInvalid)
		}
		q.srq = s
	}
	if err := d.room(len(d.qps), d.attr.MaxQP, "QPs"); err != nil {
		return nil, err
	}
	if err := scq.reserve(a.MaxSend, a.Overcommit); err != nil {
		return nil, err
	}
	if err := rcq.reserve(a.MaxRecv, a.Overcommit); err != nil {
		scq.unreserve(a.MaxSend)
		return nil, err
	}
	if q.srq != nil {
		q.srq.users++
	}
	d.nextQP++
	q.num = d.nextQP
	d.qps[q] = struct{}{}
	p.qps++
	return q, nil
}

func (q *qp) Num() uint32 { return q.num }

func (q *qp) State() iwarp.QPState {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	return q.state
}

func (q *qp) Done() <-chan struct{} {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	return q.done
}

func (q *qp) Err() error {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	return q.cause
}

func (q *qp) Stats() iwarp.QPStats {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	return q.stats
}

func (q *qp) Modify(s iwarp.QPState) error {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	switch {
	case q.state == iwarp.StateRTS && s == iwarp.StateClosing:
		if len(q.sq) > 0 {
			q.abort(errAborted)
			return nil
		}
		q.close()
		return nil
	case q.state == iwarp.StateRTS && s == iwarp.StateTerminate:
		q.terminateTelling(code{0, 0, 0x00}, noEvent) // the application knows
		return nil
	case s == iwarp.StateError && q.state != iwarp.StateError && !q.destroyed:
		q.abort(errAborted)
		return nil
	case q.state == iwarp.StateError && s == iwarp.StateIdle && q.sqHeld+q.rqHeld == 0 && !q.destroyed:
		q.life++
		q.state = iwarp.StateIdle
		q.done, q.cause = make(chan struct{}), nil
		return nil
	}
	return fmt.Errorf("%w: no way from %s to %s", iwarp.ErrState, q.state, s)
}

// Disconnect releases the lock while it waits.
func (q *qp) Disconnect(ctx context.Context) error {
	q.dev.n.lock()
	switch q.state {
	case iwarp.StateRTS:
		q.close()
	case iwarp.StateIdle, iwarp.StateRTR:
		defer q.dev.n.unlock()
		return fmt.Errorf("%w: Disconnect in state %s", iwarp.ErrState, q.state)
	}
	done := q.done
	q.dev.n.unlock()
	select {
	case <-done:
		return q.Err()
	case <-ctx.Done():
		q.Abort()
		return ctx.Err()
	}
}

func (q *qp) Abort() {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	q.abort(errAborted)
}

func (q *qp) Destroy() error {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	q.destroy()
	return nil
}

func (q *qp) destroy() {
	if q.destroyed {
		return
	}
	q.destroyed = true
	q.abort(errAborted)
	q.sendCQ.forget(q)
	q.recvCQ.forget(q)
	q.sendCQ.unreserve(q.maxSend)
	q.recvCQ.unreserve(q.maxRecv)
	if q.srq != nil {
		q.srq.users--
	}
	q.pd.qps--
	delete(q.dev.qps, q)
}
