package iwarptest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Timeout ends a test that hangs, in real time or in a bubble's. If the other end is an emulated
// machine, raise it before the tests run.
var Timeout = 30 * time.Second

// Context returns a context that ends with the test, or after Timeout.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// Open returns a device that is closed, with everything on it, when the test ends. The test fails
// if a region or QP is left.
func Open(t testing.TB, cfg iwarp.Config) iwarp.Device {
	t.Helper()
	dev, err := iwarp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, dev) })
	return dev
}

// Close closes dev and fails the test if something is left on it.
func Close(t testing.TB, dev iwarp.Device) {
	t.Helper()
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if s := dev.Stats(); s.QPs != 0 || s.MRs != 0 || s.RegisteredBytes != 0 {
		t.Errorf("left on the device after Close: %d QPs, %d regions of %d bytes", s.QPs, s.MRs, s.RegisteredBytes)
	}
}

// End is one side of a connection with everything it needs.
type End struct {
	Dev iwarp.Device
	PD  iwarp.PD
	CQ  iwarp.CQ // of sends and receives
	QP  iwarp.QP
}

// NewEnd returns an End with a QP in state IDLE on dev. Zero fields of a have the defaults, and its
// CQs are set here.
func NewEnd(t testing.TB, dev iwarp.Device, a iwarp.QPInitAttr) *End {
	t.Helper()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if a.MaxSend == 0 {
		a.MaxSend = 64
	}
	if a.MaxRecv == 0 {
		a.MaxRecv = 64
	}
	cq, err := dev.CreateCQ(a.MaxSend + a.MaxRecv)
	if err != nil {
		t.Fatal(err)
	}
	a.SendCQ, a.RecvCQ = cq, cq
	qp, err := pd.CreateQP(a)
	if err != nil {
		t.Fatal(err)
	}
	return &End{Dev: dev, PD: pd, CQ: cq, QP: qp}
}

// Connect dials from a to b through a listener on addr, an address of b's device.
func Connect(t testing.TB, a, b *End, addr string, pa, pb *iwarp.ConnParam) (info *iwarp.ConnInfo) {
	t.Helper()
	ctx := Context(t)
	l, err := b.Dev.Listen(ctx, addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.QP, pb)
		}
		accepted <- err
	}()
	info, err = a.Dev.Dial(ctx, l.Addr().String(), a.QP, pa)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return info
}

// Pair returns two ends of a connection between devices on an in-memory network. a is the initiator.
func Pair(t testing.TB) (a, b *End) {
	t.Helper()
	n := NewNetwork()
	a = NewEnd(t, Open(t, n.Config()), iwarp.QPInitAttr{})
	b = NewEnd(t, Open(t, n.Config()), iwarp.QPInitAttr{})
	Connect(t, a, b, "127.0.0.1:0", nil, nil)
	return a, b
}

// Reg registers buf until the device is closed.
func (e *End) Reg(t testing.TB, buf []byte, a iwarp.Access, o *iwarp.MROptions) iwarp.MR {
	t.Helper()
	mr, err := e.PD.RegMR(buf, a, o)
	if err != nil {
		t.Fatal(err)
	}
	return mr
}

// Seg returns an SGE for n bytes of mr from byte at on.
func Seg(mr iwarp.MR, at, n int) iwarp.SGE {
	return iwarp.SGE{Addr: mr.Base() + uint64(at), Length: uint32(n), LKey: mr.STag()}
}

// Recv posts a receive of n bytes and returns its memory.
func (e *End) Recv(t testing.TB, id uint64, n int) []byte {
	t.Helper()
	buf := make([]byte, max(n, 1))
	mr := e.Reg(t, buf, iwarp.LocalWrite, nil)
	if err := e.QP.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{Seg(mr, 0, n)}}); err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// Post posts wr.
func (e *End) Post(t testing.TB, wr *iwarp.SendWR) {
	t.Helper()
	if err := e.QP.PostSend(wr); err != nil {
		t.Fatal(err)
	}
}

// Wait returns the next completion.
func (e *End) Wait(t testing.TB) iwarp.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if err := e.CQ.Wait(ctx); err != nil {
		t.Fatalf("waiting for a completion: %v; QP %s, %v", err, e.QP.State(), e.QP.Err())
	}
	var wc [1]iwarp.WC
	if e.CQ.Poll(wc[:]) != 1 {
		t.Fatal("Wait returned, and there was nothing to poll")
	}
	return wc[0]
}

// WaitOK returns the next completion, which must be the successful one of id.
func (e *End) WaitOK(t testing.TB, id uint64) iwarp.WC {
	t.Helper()
	wc := e.Wait(t)
	if wc.ID != id || wc.Status != iwarp.StatusSuccess {
		t.Fatalf("completion: got id %d, %s; want id %d, success; QP: %v", wc.ID, wc.Status, id, e.QP.Err())
	}
	return wc
}

// WaitDone waits until the QP has ended and returns the reason.
func (e *End) WaitDone(t testing.TB) error {
	t.Helper()
	select {
	case <-e.QP.Done():
	case <-time.After(Timeout):
		t.Fatalf("QP did not end: state %s", e.QP.State())
	}
	return e.QP.Err()
}

// CheckGoroutines fails the test if goroutines of this module's iwarp packages, other than the
// test's own, are left when it ends. Call it first.
func CheckGoroutines(t testing.TB) {
	t.Helper()
	before := stacks()
	t.Cleanup(func() {
		var left []string
		for range 200 { // a goroutine past its last statement needs a moment
			left = left[:0]
			for id, s := range stacks() {
				if _, old := before[id]; !old {
					left = append(left, s)
				}
			}
			if len(left) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines left:\n%s", len(left), strings.Join(left, "\n\n"))
	})
}

// stacks returns the goroutines of the stack's packages by their number.
func stacks() map[string]string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	m := make(map[string]string)
	for _, s := range strings.Split(string(buf), "\n\n") {
		if !strings.Contains(s, "/pkg/iwarp.(*") && !strings.Contains(s, "/pkg/iwarp/inproc.(*") {
			continue
		}
		if id, _, ok := strings.Cut(s, " ["); ok {
			m[id] = s
		}
	}
	return m
}
