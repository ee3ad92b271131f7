package iwarptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// barrier is the id of requests that only show that everything before them has arrived.
const barrier = 1 << 62

// polled holds the completions of one QP.
type polled struct{ sends, recvs []iwarp.WC }

// settle waits until nothing is under way, and compares everything observable with the model.
func (r *run) settle() error {
	for _, side := range r.m.qps {
		for _, q := range side {
			if q.more { // another request must follow
				q.more, q.after = false, perhapsAfterWrite
				if err := q.real.PostSend(&iwarp.SendWR{ID: barrier + 1, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled}); err != nil {
					return fmt.Errorf("%s: an empty Write: %w", q.name, err)
				}
				q.sends = append(q.sends, &expect{id: barrier + 1, ok: only(success), silent: true})
			}
		}
	}
	got := make(map[iwarp.QP]*polled)
	for _, side := range r.m.qps {
		for _, q := range side {
			got[q.real] = &polled{}
		}
	}
	var token [2]bool
	poll := func() error { return r.poll(got, &token) }
	if err := r.wait(got, poll); err != nil {
		return err
	}
	if err := poll(); err != nil {
		return err
	}
	for _, side := range r.m.qps {
		for _, q := range side {
			if err := r.check(q, got[q.real]); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
		}
	}
	for side := range r.cq {
		select {
		case <-r.cq[side].Events():
			if !token[side] {
				return fmt.Errorf("%c: a token that nothing has made", 'a'+side)
			}
		default:
			if token[side] {
				return fmt.Errorf("%c: no token", 'a'+side)
			}
		}
		if err := r.checkMemory(side); err != nil {
			return err
		}
	}
	r.m.settled()
	r.log("settled")
	return nil
}

// poll moves completions to got, and records in token which CQs must have made a token.
func (r *run) poll(got map[iwarp.QP]*polled, token *[2]bool) error {
	for side, cq := range r.cq {
		var wc [16]iwarp.WC
		for {
			n := cq.Poll(wc[:])
			for _, c := range wc[:n] {
				p := got[c.QP]
				if p == nil {
					return fmt.Errorf("%c: a completion of no known QP: %+v", 'a'+side, c)
				}
				if c.Op == iwarp.OpRecv || c.Op == iwarp.OpRecvWriteImm {
					p.recvs = append(p.recvs, c)
				} else {
					p.sends = append(p.sends, c)
				}
				if a := &r.armed[side]; a.any || a.solicited && (c.Solicited || c.Status != success) {
					token[side] = true
					*a = armedFor{}
				}
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

// wait returns when nothing moves any more.
func (r *run) wait(got map[iwarp.QP]*polled, poll func() error) error {
	if r.quiet != nil {
		r.quiet()
		return nil
	}
	// A QP that holds its maximum of an SRQ's receives gets no more until they are polled, so the
	// messages that must find it in that state have to arrive first.
	for _, qps := range r.m.qps {
		for _, q := range qps {
			if q.srq == nil || !q.fresh {
				continue
			}
			select {
			case <-q.real.Done():
			case <-r.ctx.Done():
				return fmt.Errorf("%s does not end before a poll: state %s", q.name, q.real.State())
			}
		}
	}
	more := func(side int) error {
		if err := r.cq[side].Wait(r.ctx); err != nil {
			return fmt.Errorf("%c: waiting for completions: %w", 'a'+side, err)
		}
		return poll()
	}
	if err := poll(); err != nil {
		return err
	}
	for side, qps := range r.m.qps {
		for _, q := range qps {
			for p := got[q.real]; len(p.sends) < held(q.sends) || len(p.recvs) < held(q.recvs); {
				if err := more(side); err != nil {
					return fmt.Errorf("%s: %d of %d sends, %d of %d receives have completed: %w", q.name,
						len(p.sends), held(q.sends), len(p.recvs), held(q.recvs), err)
				}
			}
			if q.state == iwarp.StateError {
				select {
				case <-q.real.Done():
				case <-r.ctx.Done():
					return fmt.Errorf("%s does not end: state %s", q.name, q.real.State())
				}
			}
		}
	}
	for side, qps := range r.m.qps {
		for _, q := range qps {
			if q.state != iwarp.StateRTS {
				continue
			}
			// "Completion of a Read proves that the messages before it have been
			// placed" (after RFC 5040 §5.5).
			if err := q.real.PostSend(&iwarp.SendWR{ID: barrier, Op: iwarp.OpRead}); err != nil {
				return fmt.Errorf("%s: a Read of nothing: %w; QP %s, %v", q.name, err, q.real.State(), q.real.Err())
			}
			q.sends = append(q.sends, &expect{id: barrier, ok: only(success), wc: iwarp.WC{Op: iwarp.OpRead}})
			q.peer.responds()
			q.after = notAfterWrite
			for p := got[q.real]; len(p.sends) < held(q.sends); {
				if err := more(side); err != nil {
					return fmt.Errorf("%s: a Read of nothing: %w; QP %s, %v", q.name, err, q.real.State(), q.real.Err())
				}
			}
		}
	}
	return nil
}

// check compares a QP with the model.
func (r *run) check(q *mQP, got *polled) error {
	if err := match("send", q.sends, got.sends, true); err != nil {
		return err
	}
	if err := match("receive", q.recvs, got.recvs, r.attr[q.side].WCMarks); err != nil {
		return err
	}
	if s := q.real.State(); s != q.state {
		return fmt.Errorf("state %s, want %s; %v", s, q.state, q.real.Err())
	}
	ended := false
	select {
	case <-q.real.Done():
		ended = true
	default:
	}
	if ended != (q.state == iwarp.StateError) {
		return fmt.Errorf("Done is closed: %v, in state %s", ended, q.state)
	}
	err := q.real.Err()
	if !ended || !r.attr[q.side].EndReason {
		if err != nil && !ended {
			return fmt.Errorf("Err before the end: %w", err)
		}
		return nil
	}
	var t *iwarp.TerminateError
	is := errors.As(err, &t)
	switch q.end.kind {
	case endGraceful:
		if err != nil {
			return fmt.Errorf("ended with %w, want a graceful end", err)
		}
	case endAborted:
		if err == nil || is {
			return fmt.Errorf("ended with %w, want an abort", err)
		}
	default:
		if !is || t.FromPeer != (q.end.kind == endTerminated) || (code{t.Layer, t.Type, t.Code}) != q.end.code {
			return fmt.Errorf("ended with %w, want %+v", err, q.end)
		}
	}
	return nil
}

// match compares completions with those expected.
func match(what string, want []*expect, got []iwarp.WC, marks bool) error {
	failed, blamed := false, false
	for _, c := range got {
		for len(want) > 0 && want[0].id != c.ID && want[0].silent {
			want = want[1:]
		}
		if len(want) == 0 || want[0].id != c.ID {
			next := "none"
			if len(want) > 0 {
				next = fmt.Sprint(want[0].id)
			}
			return fmt.Errorf("completion of %s %d (%s), want %s", what, c.ID, c.Status, next)
		}
		x := want[0]
		want = want[1:]
		if x.ok&only(c.Status) == 0 || c.Status == success && x.silent {
			return fmt.Errorf("%s %d: %s, want one of %s, silent %v", what, c.ID, c.Status, x.ok, x.silent)
		}
		if failed && c.Status == success || blamed && c.Status != flushed {
			return fmt.Errorf("%s %d: %s after a failed one", what, c.ID, c.Status)
		}
		if c.Status != success {
			failed = true // only one of them is to blame
			blamed = blamed || c.Status != flushed
			continue
		}
		if x.anyOp {
			c.Op, c.ByteLen = x.wc.Op, x.wc.ByteLen
		}
		if what == "send" && x.wc.Op != iwarp.OpRead {
			c.ByteLen = x.wc.ByteLen // it means nothing for the others
		}
		g := iwarp.WC{Op: c.Op, ByteLen: c.ByteLen, HasImm: c.HasImm, Imm: c.Imm}
		if marks {
			g.Inv, g.InvSTag, g.Solicited = c.Inv, c.InvSTag, c.Solicited
		}
		if g != x.wc {
			return fmt.Errorf("%s %d: got %+v, want %+v", what, c.ID, g, x.wc)
		}
	}
	for _, x := range want {
		if !x.silent {
			return fmt.Errorf("%s %d does not complete", what, x.id)
		}
	}
	return nil
}

func (s statusSet) String() string {
	var all []string
	for i := success; i <= iwarp.StatusGeneralErr; i++ {
		if s&only(i) != 0 {
			all = append(all, i.String())
		}
	}
	return fmt.Sprint(all)
}

// checkMemory compares the memory of a side with the model; where the model does not know the
// content, it learns it.
func (r *run) checkMemory(side int) error {
	for i, b := range r.bufs[side] {
		for at, u := range b.undefined {
			if u {
				b.want[at], b.undefined[at] = b.real[at], false
			}
		}
		if !bytes.Equal(b.real, b.want) {
			at := 0
			for b.real[at] == b.want[at] {
				at++
			}
			return fmt.Errorf("%c: buffer %d of %d bytes differs from byte %d on: got %x, want %x", 'a'+side, i, len(b.want), at,
				b.real[at:min(at+24, len(b.real))], b.want[at:min(at+24, len(b.want))])
		}
	}
	return nil
}

func (r *run) connect(a, b *mQP, p iwarp.ConnParam, reject bool) error {
	r.log("connect %s and %s, %+v, reject %v", a.name, b.name, p, reject)
	l, err := r.dev[1].Listen(r.ctx, r.addr, nil)
	if err != nil {
		return err
	}
	accepted := make(chan error, 1)
	go func() {
		q, err := l.Accept(r.ctx)
		switch {
		case err != nil:
		case reject:
			err = q.Reject([]byte("no"))
		default:
			err = q.Accept(r.ctx, b.real, &p)
		}
		accepted <- err
	}()
	_, err = r.dev[0].Dial(r.ctx, l.Addr().String(), a.real, &p)
	aerr := <-accepted
	if cerr := l.Close(); cerr != nil {
		return cerr
	}
	if aerr != nil {
		return fmt.Errorf("accept: %w; Dial: %v", aerr, err)
	}
	if reject {
		var re *iwarp.RejectedError
		if !errors.As(err, &re) || string(re.PrivateData) != "no" {
			return fmt.Errorf("Dial that is rejected: %w", err)
		}
		a.finish(ending{kind: endAborted})
		return r.settle()
	}
	if err != nil {
		return err
	}
	for _, q := range []*mQP{a, b} {
		q.state, q.after = iwarp.StateRTS, notAfterWrite
		q.reads, q.ext = p.ORD > 0 && p.IRD > 0, p.Extensions
	}
	a.peer, b.peer = b, a
	return nil
}

// disconnect ends q's stream gracefully; what q has posted is still done.
func (r *run) disconnect(q *mQP) error {
	for i := range r.m.batch {
		if r.m.batch[i].flow != q {
			if err := r.settle(); err != nil {
				return err
			}
			break
		}
	}
	if q.fresh {
		return r.settle()
	}
	r.log("%s: disconnect", q.name)
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Second)
	defer cancel()
	switch err := q.real.Disconnect(ctx); q.state {
	case iwarp.StateIdle:
		if !errors.Is(err, iwarp.ErrState) {
			return fmt.Errorf("%s: Disconnect in IDLE: %w", q.name, err)
		}
		return nil
	case iwarp.StateRTS:
		if err != nil {
			return fmt.Errorf("%s: Disconnect: %w", q.name, err)
		}
		r.part(q, ending{kind: endGraceful})
	}
	return r.settle()
}

// part records the end of q's stream on both sides.
func (r *run) part(q *mQP, e ending) {
	if p := q.peer; p != nil {
		p.finish(e)
	}
	q.finish(e)
}

func (r *run) abort(q *mQP) error {
	if err := r.settle(); err != nil {
		return err
	}
	r.log("%s: abort", q.name)
	q.real.Abort()
	if q.state != iwarp.StateError {
		r.part(q, ending{kind: endAborted})
	}
	return r.settle()
}

func (r *run) modify(q *mQP, s iwarp.QPState) error {
	if err := r.settle(); err != nil {
		return err
	}
	r.log("%s: modify from %s to %s", q.name, q.state, s)
	err := q.real.Modify(s)
	want := error(nil)
	switch from := q.state; {
	case from == iwarp.StateRTS && s == iwarp.StateClosing:
		r.part(q, ending{kind: endGraceful})
	case from == iwarp.StateRTS && s == iwarp.StateTerminate:
		r.m.terminate(q, code{0, 0, 0})
	case (from == iwarp.StateRTS || from == iwarp.StateIdle) && s == iwarp.StateError:
		r.part(q, ending{kind: endAborted})
	case from == iwarp.StateError && s == iwarp.StateIdle:
		q.state = iwarp.StateIdle
		q.life++
	default:
		want = iwarp.ErrState
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: Modify to %s gave %v, want %v", q.name, s, err, want)
	}
	return r.settle()
}

// recycle destroys q and creates another one in its place.
func (r *run) recycle(q *mQP) (err error) {
	if err := r.settle(); err != nil {
		return err
	}
	r.log("%s: destroy", q.name)
	if err := q.real.Destroy(); err != nil {
		return fmt.Errorf("%s: Destroy: %w", q.name, err)
	}
	if r.armed[q.side] != (armedFor{}) { // flushed requests may have made a token, and are forgotten
		if err := r.arm(q.side, false); err != nil {
			return err
		}
		select {
		case <-r.cq[q.side].Events():
		default:
		}
	}
	if p := q.peer; p != nil {
		p.finish(ending{kind: endAborted})
	}
	fresh := mQP{name: q.name, side: q.side, pd: q.pd, srq: q.srq, oneDevice: q.oneDevice, life: q.life + 1}
	if fresh.real, err = r.createQP(q); err != nil {
		return fmt.Errorf("%s: CreateQP: %w", q.name, err)
	}
	*q = fresh
	return r.settle()
}

// tearDown ends everything in a permitted order.
func (r *run) tearDown() error {
	var errs []error
	for side, qps := range r.m.qps {
		if err := r.pd[side][0].Dealloc(); err == nil {
			errs = append(errs, errors.New("a PD in use could be deallocated"))
		}
		for _, q := range qps {
			errs = append(errs, q.real.Destroy())
		}
		if s := r.srq[side]; s != nil {
			errs = append(errs, s.real.Destroy())
		}
		errs = append(errs, r.cq[side].Close())
	}
	for _, h := range r.holders {
		if h.mw != nil {
			errs = append(errs, h.mw.Dealloc())
		}
	}
	for _, h := range r.holders {
		if h.mr != nil {
			errs = append(errs, h.mr.Dereg())
		}
	}
	for _, g := range r.regions {
		if g.kind == mRegistered {
			errs = append(errs, g.mr.Dereg())
		}
	}
	for _, pds := range r.pd {
		for _, pd := range pds {
			errs = append(errs, pd.Dealloc())
		}
	}
	return errors.Join(errs...)
}
