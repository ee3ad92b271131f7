package iwarp

import (
	"bytes"
	"context"
	"testing"
	"time"
)

// TestWriteThenSend is the product's use in small: a Write, then the Send with
// Invalidate that announces it, and the answer the same way.
func TestWriteThenSend(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b := newEnd(t), newEnd(t)
	l, err := b.dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	sink := make([]byte, 1<<20)
	sinkMR, err := b.pd.RegMR(sink, LocalWrite|RemoteWrite, &MROptions{QP: b.qp})
	if err != nil {
		t.Fatal(err)
	}
	b.recv(t, 1, 256)
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.qp, &ConnParam{PrivateData: []byte("welcome")})
		}
		accepted <- err
	}()
	info, err := a.dev.Dial(ctx, l.Addr().String(), a.qp, &ConnParam{PrivateData: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if string(info.PrivateData) != "welcome" || !info.CRC || !info.PeerToPeer || info.Rev != 2 {
		t.Errorf("ConnInfo = %+v", info)
	}
	src := make([]byte, len(sink))
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	srcMR, err := a.pd.RegMR(src, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.qp.PostSend(&SendWR{ID: 1, Op: OpWrite, SGL: []SGE{{0, uint32(len(src)), srcMR.STag()}}, STag: sinkMR.STag()}); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.PostSend(&SendWR{ID: 2, Op: OpSendInv, Flags: Inline, Data: []byte("done"), InvSTag: sinkMR.STag()}); err != nil {
		t.Fatal(err)
	}
	wc := b.wait(t, ctx)
	if wc.ID != 1 || wc.Op != OpRecv || wc.Status != StatusSuccess || wc.ByteLen != 4 || !wc.Inv || wc.InvSTag != sinkMR.STag() {
		t.Errorf("receive: %+v", wc)
	}
	if !bytes.Equal(src, sink) {
		t.Error("the Write was not placed before the Send was delivered")
	}
	for id := uint64(1); id <= 2; id++ {
		if wc := a.wait(t, ctx); wc.ID != id || wc.Status != StatusSuccess {
			t.Errorf("send %d: %+v", id, wc)
		}
	}
	go a.qp.Disconnect(ctx)
	<-b.qp.Done()
	<-a.qp.Done()
	if a.qp.Err() != nil || b.qp.Err() != nil {
		t.Errorf("after a graceful close: %v, %v", a.qp.Err(), b.qp.Err())
	}
}

// end is one side with everything it needs.
type end struct {
	dev Device
	pd  PD
	cq  CQ
	qp  QP
}

func newEnd(t testing.TB) *end {
	t.Helper()
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(128)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	return &end{dev, pd, cq, qp}
}

func (e *end) recv(t testing.TB, id uint64, n int) []byte {
	t.Helper()
	buf := make([]byte, n)
	mr, err := e.pd.RegMR(buf, LocalWrite, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.qp.PostRecv(&RecvWR{ID: id, SGL: []SGE{{0, uint32(n), mr.STag()}}}); err != nil {
		t.Fatal(err)
	}
	return buf
}

func (e *end) wait(t testing.TB, ctx context.Context) WC {
	t.Helper()
	if err := e.cq.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var wc [1]WC
	e.cq.Poll(wc[:])
	return wc[0]
}
