package iwarptest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var srqCases = []suiteCase{
	{"SRQIsShared", (*conn).srqShared},
	{"SRQRefuses", (*conn).srqRefuses},
	{"SRQIsEmpty", (*conn).srqEmpty},
	{"SRQLimitOncePerArming", (*conn).srqLimit},
	{"SRQSharesAreBounded", (*conn).srqShares},
	{"SRQKeepsWhatNobodyTook", (*conn).srqKeeps},
	{"SRQDestroy", (*conn).srqDestroy},
}

// ours reports whether the device is one of this project's. Where verbs leave a choice to the device,
// those do as the interfaces say.
func ours(a iwarp.DeviceAttr) bool { return a.Provider != "ibverbs" }

// shared is a responder with one SRQ and the QPs that use it.
type shared struct {
	*End // its QP is the latest one
	srq  iwarp.SRQ
}

// share makes an SRQ of n receives and a CQ for up to qps QPs.
func (c *conn) share(n, qps int) *shared {
	c.Helper()
	c.need("SRQs", func(a iwarp.DeviceAttr) bool { return a.MaxSRQ > 0 })
	s := &shared{End: &End{Dev: c.db}}
	var err error
	if s.PD, err = c.db.AllocPD(); err != nil {
		c.Fatal(err)
	}
	if s.CQ, err = c.db.CreateCQ(qps * (8 + n)); err != nil {
		c.Fatal(err)
	}
	if s.srq, err = s.PD.CreateSRQ(iwarp.SRQInitAttr{MaxRecv: n}); err != nil {
		c.Fatal(err)
	}
	return s
}

// join connects one more QP, which may hold up to max receives.
func (c *conn) join(s *shared, max int) (peer, b *End) {
	c.Helper()
	qp, err := s.PD.CreateQP(iwarp.QPInitAttr{SendCQ: s.CQ, RecvCQ: s.CQ, MaxSend: 8, MaxRecv: max, SRQ: s.srq})
	if err != nil {
		c.Fatal(err)
	}
	b = &End{Dev: c.db, PD: s.PD, CQ: s.CQ, QP: qp}
	s.QP = qp
	peer = NewEnd(c, c.da, iwarp.QPInitAttr{})
	Connect(c, peer, b, c.addr, nil, nil)
	return peer, b
}

// post posts a receive of n bytes and returns its memory.
func (s *shared) post(c *conn, id uint64, n int) []byte {
	c.Helper()
	buf := make([]byte, n)
	mr := s.Reg(c, buf, iwarp.LocalWrite, nil)
	if err := s.srq.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{Seg(mr, 0, n)}}); err != nil {
		c.Fatal(err)
	}
	return buf
}

// event waits for an event of kind.
func (c *conn) event(d iwarp.Device, kind iwarp.EventKind) iwarp.AsyncEvent {
	c.Helper()
	for {
		select {
		case e := <-d.Events():
			if e.Kind == kind {
				return e
			}
		case <-time.After(Timeout):
			c.Fatalf("no event: %s", kind)
		}
	}
}

// drain returns the events that have arrived.
func drain(d iwarp.Device) (all []iwarp.AsyncEvent) {
	for {
		select {
		case e := <-d.Events():
			all = append(all, e)
		default:
			return all
		}
	}
}

// count returns how many events of kind have arrived.
func count(d iwarp.Device, kind iwarp.EventKind) (n int) {
	for _, e := range drain(d) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// send sends text, and waits for its completion.
func (e *End) send(c *conn, text string) {
	c.Helper()
	e.Post(c, &iwarp.SendWR{ID: 77, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte(text)})
	e.WaitOK(c, 77)
}

// srqShared covers VRB-17: each message takes the oldest receive, whichever QP it arrives on.
func (c *conn) srqShared() {
	s := c.share(16, 3)
	var peers, ends [3]*End
	for i := range peers {
		peers[i], ends[i] = c.join(s, 4)
	}
	for round := range 20 {
		var bufs [3][]byte
		for i := range bufs {
			bufs[i] = s.post(c, uint64(i), 32)
		}
		for i := range bufs {
			k := (round + i) % 3
			text := fmt.Sprintf("round %d from %d", round, k)
			peers[k].send(c, text)
			wc := s.WaitOK(c, uint64(i))
			if wc.QP != ends[k].QP || wc.Op != iwarp.OpRecv || int(wc.ByteLen) != len(text) || !bytes.HasPrefix(bufs[i], []byte(text)) {
				c.Fatalf("receive %d: %+v, %q; want %q by QP %d", i, wc, bufs[i], text, ends[k].QP.Num())
			}
		}
	}
}

func (c *conn) srqRefuses() {
	s := c.share(4, 1)
	_, b := c.join(s, 4)
	if err := b.QP.PostRecv(&iwarp.RecvWR{}); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("PostRecv to a QP with an SRQ: %v", err)
	}
	if err := s.srq.PostRecv(&iwarp.RecvWR{SGL: make([]iwarp.SGE, 5)}); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("too many SGEs: %v", err)
	}
	for i := range uint64(4) {
		s.post(c, i, 32)
	}
	if err := s.srq.PostRecv(&iwarp.RecvWR{}); !errors.Is(err, iwarp.ErrQueueFull) {
		c.Errorf("fifth receive: %v", err)
	}
	if _, err := s.PD.CreateSRQ(iwarp.SRQInitAttr{MaxRecv: c.db.Attr().MaxSRQWR + 1}); !errors.Is(err, iwarp.ErrLimit) {
		c.Errorf("an SRQ past MaxSRQWR: %v", err)
	}
}

func (c *conn) srqEmpty() {
	s := c.share(4, 1)
	a, b := c.join(s, 4)
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpSend})
	c.wantTerminate(a, b, 1, 2, 2)
}

// srqLimit covers VRB-17: one event for each Arm, when fewer receives than the limit are left.
func (c *conn) srqLimit() {
	s := c.share(8, 1)
	a, _ := c.join(s, 8)
	id := uint64(0)
	take := func() {
		c.Helper()
		a.send(c, "x")
		s.WaitOK(c, id)
		id++
	}
	for i := range uint64(6) {
		s.post(c, i, 32)
	}
	if err := s.srq.Arm(4); err != nil {
		c.Fatal(err)
	}
	take()
	take() // 4 are left
	if n := count(c.db, iwarp.EventSRQLimit); n != 0 {
		c.Errorf("%d events with as many receives as the limit", n)
	}
	take() // 3
	if e := c.event(c.db, iwarp.EventSRQLimit); e.SRQ != s.srq {
		c.Errorf("the event is about %v", e.SRQ)
	}
	take()
	if n := count(c.db, iwarp.EventSRQLimit); n != 0 {
		c.Errorf("%d more events without another Arm", n)
	}
	if err := s.srq.Arm(1); err != nil {
		c.Fatal(err)
	}
	take()
	if n := count(c.db, iwarp.EventSRQLimit); n != 0 {
		c.Errorf("%d events with as many receives as the second limit", n)
	}
	take()
	c.event(c.db, iwarp.EventSRQLimit)
}

// srqShares covers SEC-14: a peer that sends more than its share ends its own stream.
func (c *conn) srqShares() {
	c.need("shares of an SRQ", ours)
	s := c.share(8, 2)
	greedy, g := c.join(s, 2)
	modest, m := c.join(s, 2)
	for i := range uint64(6) {
		s.post(c, i, 32)
	}
	for range 3 { // the receiving side does not poll
		greedy.Post(c, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled})
	}
	c.wantTerminate(greedy, g, 1, 2, 2)
	modest.send(c, "still here")
	for i := range uint64(3) {
		wc := s.WaitOK(c, i)
		if want := []*End{g, g, m}[i]; wc.QP != want.QP {
			c.Errorf("receive %d went to QP %d, want %d", i, wc.QP.Num(), want.QP.Num())
		}
	}
	// A place is released when its completion has been polled.
	for i := range uint64(3) {
		modest.send(c, "again")
		s.WaitOK(c, 3+i)
	}
}

// srqKeeps: a QP that ends leaves to the others the receives that no message of its own had taken.
func (c *conn) srqKeeps() {
	s := c.share(8, 2)
	a1, b1 := c.join(s, 8)
	a2, b2 := c.join(s, 8)
	for i := range uint64(3) {
		s.post(c, i, 32)
	}
	a1.send(c, "one")
	s.WaitOK(c, 0)
	a1.QP.Abort()
	b1.WaitDone(c)
	if e := c.event(c.db, iwarp.EventLastWQE); e.QP != b1.QP {
		c.Errorf("the last receive is of %v", e.QP)
	}
	var wc [4]iwarp.WC
	if n := s.CQ.Poll(wc[:]); n != 0 {
		c.Errorf("%d receives that no message took were flushed: %+v", n, wc[:n])
	}
	if err := b1.QP.Destroy(); err != nil {
		c.Error(err)
	}
	a2.send(c, "two")
	if wc := s.WaitOK(c, 1); wc.QP != b2.QP {
		c.Errorf("receive: %+v", wc)
	}
	// Completions that have not been polled release their places together with their QP.
	a2.send(c, "three")
	for b2.QP.Stats().SendsReceived < 2 && ours(c.db.Attr()) {
		time.Sleep(time.Millisecond)
	}
	if err := b2.QP.Destroy(); err != nil {
		c.Error(err)
	}
	for i := range uint64(8) {
		s.post(c, 10+i, 32)
	}
}

// srqDestroy covers VRB-26.
func (c *conn) srqDestroy() {
	s := c.share(4, 1)
	_, b := c.join(s, 4)
	s.post(c, 1, 32)
	if err := s.srq.Destroy(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Destroy of an SRQ in use: %v", err)
	}
	if err := b.QP.Destroy(); err != nil {
		c.Error(err)
	}
	if err := s.PD.Dealloc(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Dealloc of a PD with an SRQ: %v", err)
	}
	if err := s.srq.Destroy(); err != nil {
		c.Error(err)
	}
}
