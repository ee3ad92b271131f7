package iwarptest

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var cqCases = []suiteCase{
	{"NotifyOnce", (*conn).notifyOnce},
	{"NotifySolicited", (*conn).notifySolicited},
	{"NotifyLosesNoWakeUp", (*conn).notifyNoLoss},
	{"CQOverflow", (*conn).cqOverflow},
	{"CQClose", (*conn).cqClose},
}

// token reports whether there is a token, and takes it.
func token(cq iwarp.CQ) bool {
	select {
	case <-cq.Events():
		return true
	default:
		return false
	}
}

func (e *End) notify(c *conn, solicitedOnly bool) {
	c.Helper()
	if err := e.CQ.ReqNotify(solicitedOnly); err != nil {
		c.Fatal(err)
	}
}

// wantToken waits for the token of ReqNotify.
func (e *End) wantToken(c *conn) {
	c.Helper()
	select {
	case <-e.CQ.Events():
	case <-time.After(Timeout):
		c.Fatal("no token came")
	}
}

// noToken checks that no token has arrived. A polled completion was pushed together with its token.
func (e *End) noToken(c *conn, why string) {
	c.Helper()
	if token(e.CQ) {
		c.Errorf("a token came: %s", why)
	}
}

// notifyOnce covers VRB-12: one token for each arming.
func (c *conn) notifyOnce() {
	a, b := c.pair()
	for i := range uint64(4) {
		b.Recv(c, i, 32)
	}
	a.send(c, "not armed")
	b.WaitOK(c, 0)
	b.noToken(c, "nobody asked")
	b.notify(c, false)
	b.notify(c, false)
	a.send(c, "armed")
	b.wantToken(c)
	b.WaitOK(c, 1)
	a.send(c, "not any more")
	b.WaitOK(c, 2)
	b.noToken(c, "it is one-shot")
	a.send(c, "there before the arming")
	for b.QP.Stats().SendsReceived < 4 && ours(c.db.Attr()) {
		time.Sleep(time.Millisecond)
	}
	if ours(c.db.Attr()) {
		b.notify(c, false)
		b.noToken(c, "for what was in the queue already")
	}
	b.WaitOK(c, 3)
}

// notifySolicited covers VRB-12 and RDMAP-26: solicited only; failures count as solicited.
func (c *conn) notifySolicited() {
	c.need("solicited-only notification", func(a iwarp.DeviceAttr) bool { return a.SolicitedOnly })
	a, b := c.pair()
	for i := range uint64(4) {
		b.Recv(c, i, 32)
	}
	b.notify(c, true)
	a.send(c, "plain")
	b.WaitOK(c, 0)
	b.noToken(c, "for an unsolicited message")
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Solicited | iwarp.Inline, Data: []byte("ring")})
	b.wantToken(c)
	if wc := b.WaitOK(c, 1); c.db.Attr().WCMarks && !wc.Solicited {
		c.Errorf("%+v is not marked", wc)
	}
	b.notify(c, false)
	b.notify(c, true) // does not narrow the request
	a.WaitOK(c, 1)
	a.send(c, "plain")
	b.wantToken(c)
	b.WaitOK(c, 2)
	b.notify(c, true)
	a.QP.Abort()
	b.wantToken(c)
	if wc := b.Wait(c); wc.ID != 3 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("%+v, want receive 3 flushed", wc)
	}
}

// notifyNoLoss covers VRB-13: a program that arms, polls until the queue is empty and then waits for
// the token gets every completion.
func (c *conn) notifyNoLoss() {
	a, b := c.pair()
	const n = 5000
	mr := b.Reg(c, make([]byte, 32), iwarp.LocalWrite, nil)
	post := func(id uint64) {
		if err := b.QP.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{Seg(mr, 0, 32)}}); err != nil {
			c.Error(err)
		}
	}
	const window = 32
	for i := range uint64(window) {
		post(i)
	}
	credit := make(chan struct{}, n)
	for range window {
		credit <- struct{}{}
	}
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(n) {
			<-credit
			err := a.QP.PostSend(&iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
			for err == nil {
				if err = a.CQ.Wait(context.Background()); err != nil {
					break
				}
				var wc [1]iwarp.WC
				if a.CQ.Poll(wc[:]) == 1 {
					break
				}
			}
			if err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var wc [4]iwarp.WC
	for got := uint64(0); got < n; {
		b.notify(c, false)
		for {
			k := b.CQ.Poll(wc[:])
			for _, w := range wc[:k] {
				if w.ID != got || w.Status != iwarp.StatusSuccess {
					c.Fatalf("completion %+v, want %d", w, got)
				}
				got++
				post(got + window - 1)
				credit <- struct{}{}
			}
			if k == 0 {
				break
			}
		}
		if got < n {
			b.wantToken(c)
		}
	}
	if err := <-sent; err != nil {
		c.Error(err)
	}
}

// cqOverflow covers SEC-10 and VRB-27: QPs that may promise more than their CQ holds end when it
// overflows; others are not affected.
func (c *conn) cqOverflow() {
	c.need("end of QPs whose CQ overflows", ours)
	pd, err := c.db.AllocPD()
	if err != nil {
		c.Fatal(err)
	}
	small, err := c.db.CreateCQ(4)
	if err != nil {
		c.Fatal(err)
	}
	make1 := func(send, recv iwarp.CQ) *End {
		attr := iwarp.QPInitAttr{SendCQ: send, RecvCQ: recv, MaxSend: 8, MaxRecv: 8}
		if send == small || recv == small {
			if _, err := pd.CreateQP(attr); !errors.Is(err, iwarp.ErrLimit) {
				c.Fatalf("a CQ of 4 took a QP of 16: %v", err)
			}
			attr.Overcommit = true
		}
		qp, err := pd.CreateQP(attr)
		if err != nil {
			c.Fatal(err)
		}
		return &End{Dev: c.db, PD: pd, CQ: recv, QP: qp}
	}
	roomy, err := c.db.CreateCQ(64)
	if err != nil {
		c.Fatal(err)
	}
	victim, companion, other := make1(small, small), make1(small, roomy), make1(roomy, roomy)
	var peers [3]*End
	for i, b := range []*End{victim, companion, other} {
		peers[i] = NewEnd(c, c.da, iwarp.QPInitAttr{})
		Connect(c, peers[i], b, c.addr, nil, nil)
	}
	for i := range uint64(8) {
		victim.Recv(c, i, 32)
		other.Recv(c, i, 32)
	}
	for range 6 { // nothing is polled
		peers[0].Post(c, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled})
	}
	if e := c.event(c.db, iwarp.EventCQErr); e.CQ != small || e.Err == nil {
		c.Errorf("event %+v", e)
	}
	for _, b := range []*End{victim, companion} {
		if err := b.WaitDone(c); !errors.Is(err, iwarp.ErrLimit) {
			c.Errorf("a QP of the CQ that overflowed ended by %v", err)
		}
	}
	for i := range uint64(4) { // the completions that the CQ held are still there
		victim.WaitOK(c, i)
	}
	if err := small.Wait(Context(c)); !errors.Is(err, iwarp.ErrLimit) {
		c.Errorf("Wait on a CQ that overflowed: %v", err)
	}
	if err := small.ReqNotify(false); !errors.Is(err, iwarp.ErrLimit) {
		c.Errorf("ReqNotify on a CQ that overflowed: %v", err)
	}
	peers[2].send(c, "unharmed")
	for {
		if wc := other.Wait(c); wc.QP == other.QP {
			if wc.Status != iwarp.StatusSuccess || wc.ID != 0 {
				c.Errorf("the other QP: %+v", wc)
			}
			break
		}
	}
	for _, b := range []*End{victim, companion} {
		if err := b.QP.Destroy(); err != nil {
			c.Error(err)
		}
	}
	if _, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: small, RecvCQ: small, MaxSend: 1, MaxRecv: 1}); !errors.Is(err, iwarp.ErrLimit) {
		c.Errorf("a QP on a CQ that overflowed: %v", err)
	}
	if err := small.Close(); err != nil {
		c.Error(err)
	}
}

// cqClose covers VRB-26: a CQ in use stays; closing one wakes its waiters.
func (c *conn) cqClose() {
	a, b := c.pair()
	if err := a.CQ.Close(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Close of a CQ in use: %v", err)
	}
	b.Recv(c, 1, 32)
	a.send(c, "as before")
	b.WaitOK(c, 1)
	if err := a.QP.Destroy(); err != nil {
		c.Error(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- a.CQ.Wait(Context(c)) }()
	if err := a.CQ.Close(); err != nil {
		c.Error(err)
	}
	if err := <-woken; !errors.Is(err, iwarp.ErrClosed) {
		c.Errorf("Wait on a closed CQ: %v", err)
	}
	if err := a.CQ.ReqNotify(false); !errors.Is(err, iwarp.ErrClosed) {
		c.Errorf("ReqNotify on a closed CQ: %v", err)
	}
	if _, err := a.PD.CreateQP(iwarp.QPInitAttr{SendCQ: a.CQ, RecvCQ: a.CQ}); !errors.Is(err, iwarp.ErrClosed) {
		c.Errorf("a QP on a closed CQ: %v", err)
	}
}
