package iwarp_test

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func TestParseWaiting(t *testing.T) {
	for s, want := range map[string]iwarp.Waiting{
		"loan": {}, "event": {Mode: iwarp.WaitEvent}, "poll": {Mode: iwarp.WaitPoll}, "hybrid": {Mode: iwarp.WaitHybrid},
		"hybrid:20us": {Mode: iwarp.WaitHybrid, Spin: 20 * time.Microsecond}, "hybrid:1s": {Mode: iwarp.WaitHybrid, Spin: time.Second},
	} {
		w, err := iwarp.ParseWaiting(s)
		if err != nil || w != want || w.Valid() != nil {
			t.Errorf("%s: %+v, %v, %v", s, w, err, w.Valid())
		}
		if back, err := iwarp.ParseWaiting(w.String()); err != nil || back != w {
			t.Errorf("%s: back from %s: %+v, %v", s, w, back, err)
		}
	}
	for _, s := range []string{"", "Loan", "spin", "poll:1s", "event:", "hybrid:", "hybrid:0s", "hybrid:-1us", "hybrid:2s", "hybrid:20", "hybrid:20us:1"} {
		var w iwarp.Waiting
		if err := w.Set(s); err == nil || w != (iwarp.Waiting{}) {
			t.Errorf("%q was taken as %v", s, w)
		}
	}
	f := flag.NewFlagSet("", flag.ContinueOnError)
	var w iwarp.Waiting
	f.Var(&w, "wait", "")
	if err := f.Parse([]string{"-wait", "hybrid:5us"}); err != nil || w.SpinFor() != 5*time.Microsecond {
		t.Errorf("%v, %v", w, err)
	}
}

// twoQueues returns a connection whose first side has a queue for sends and one for receives. A receiving
// side that is lent in vain stays so for an hour.
func twoQueues(t *testing.T, w iwarp.Waiting) (a, b *iwarptest.End, sends iwarp.CQ) {
	t.Helper()
	da, db := iwarptest.Open(t, iwarp.Config{}), iwarptest.Open(t, iwarp.Config{})
	iwarp.SetLendTime(da, time.Hour)
	a, b = iwarptest.NewEnd(t, da, iwarp.QPInitAttr{}), iwarptest.NewEnd(t, db, iwarp.QPInitAttr{})
	if err := a.QP.Destroy(); err != nil {
		t.Fatal(err)
	}
	sends, err := da.CreateCQ(64)
	if err != nil {
		t.Fatal(err)
	}
	for _, cq := range []iwarp.CQ{sends, a.CQ, b.CQ} {
		if err := cq.SetWaiting(w); err != nil {
			t.Fatal(err)
		}
	}
	if a.QP, err = a.PD.CreateQP(iwarp.QPInitAttr{SendCQ: sends, RecvCQ: a.CQ, MaxSend: 64, MaxRecv: 64}); err != nil {
		t.Fatal(err)
	}
	depths := &iwarp.ConnParam{ORD: 4, IRD: 4}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", depths, depths)
	return a, b, sends
}

var lendingWays = []iwarp.Waiting{{}, {Mode: iwarp.WaitHybrid}, {Mode: iwarp.WaitPoll}}

// TestLoneReadIsReadByItsWaiter: a program that waits for one RDMA Read after the other reads the connection
// itself. When it turns to its other queue, that is at once served as before.
func TestLoneReadIsReadByItsWaiter(t *testing.T) {
	for _, w := range lendingWays {
		t.Run(w.String(), func(t *testing.T) {
			a, b, sends := twoQueues(t, w)
			src, sink := b.Reg(t, []byte("12345678"), iwarp.RemoteRead, nil), a.Reg(t, make([]byte, 8), iwarp.LocalWrite, nil)
			recv := a.Reg(t, make([]byte, 8), iwarp.LocalWrite, nil)
			on := *a
			on.CQ = sends
			read := func(n int) {
				for range n {
					a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, SGL: []iwarp.SGE{iwarptest.Seg(sink, 0, 8)}, STag: src.STag(), TO: src.Base()})
					on.WaitOK(t, 1)
				}
			}
			message := func(n int) {
				for range n {
					if err := a.QP.PostRecv(&iwarp.RecvWR{ID: 2, SGL: []iwarp.SGE{iwarptest.Seg(recv, 0, 8)}}); err != nil {
						t.Fatal(err)
					}
					b.Post(t, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
					a.WaitOK(t, 2)
					b.WaitOK(t, 3)
				}
			}
			read(2000)
			if n := iwarp.LoansTaken(sends); n == 0 {
				t.Error("no Wait has read the connection")
			}
			message(200)
			read(1)
			message(1)
			read(200)
			message(1)
			if err := a.QP.PostRecv(&iwarp.RecvWR{ID: 2, SGL: []iwarp.SGE{iwarptest.Seg(recv, 0, 8)}}); err != nil {
				t.Fatal(err)
			}
			if err := a.CQ.ReqNotify(false); err != nil { // another way to wait there
				t.Fatal(err)
			}
			read(200)
			b.Post(t, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
			select {
			case <-a.CQ.Events():
			case <-time.After(iwarptest.Timeout):
				t.Error("no token for a message behind the Reads")
			}
			a.WaitOK(t, 2)
			if err := a.QP.Destroy(); err != nil {
				t.Error(err)
			}
			if err := sends.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBothQueuesAreWaitedFor: two goroutines of one program wait, one on each queue.
func TestBothQueuesAreWaitedFor(t *testing.T) {
	for _, w := range lendingWays {
		t.Run(w.String(), func(t *testing.T) {
			a, b, sends := twoQueues(t, w)
			src, sink := b.Reg(t, []byte("12345678"), iwarp.RemoteRead, nil), a.Reg(t, make([]byte, 8), iwarp.LocalWrite, nil)
			recv := a.Reg(t, make([]byte, 8), iwarp.LocalWrite, nil)
			const n = 3000
			ctx, cancel := context.WithTimeout(t.Context(), iwarptest.Timeout)
			defer cancel()
			take := func(cq iwarp.CQ) error {
				if err := cq.Wait(ctx); err != nil {
					return err
				}
				var wc [1]iwarp.WC
				if cq.Poll(wc[:]); wc[0].Status != iwarp.StatusSuccess {
					return errors.New(wc[0].Status.String())
				}
				return nil
			}
			errs := make([]error, 2)
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := 0; i < n && errs[0] == nil; i++ {
					if errs[0] = a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpRead, SGL: []iwarp.SGE{iwarptest.Seg(sink, 0, 8)}, STag: src.STag(), TO: src.Base()}); errs[0] == nil {
						errs[0] = take(sends)
					}
				}
			})
			wg.Go(func() {
				for i := 0; i < n && errs[1] == nil; i++ {
					errs[1] = a.QP.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{iwarptest.Seg(recv, 0, 8)}})
					if errs[1] == nil {
						errs[1] = b.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte("x")})
					}
					if errs[1] == nil {
						errs[1] = take(a.CQ)
					}
				}
			})
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKickOfFormerQP: a Wait that was woken on behalf of a QP that has ended since does not keep the next
// QP of the queue from being woken.
func TestKickOfFormerQP(t *testing.T) {
	a, b := tcpPair(t)
	iwarp.LeaveKick(b.CQ, b.QP)
	if err := b.QP.Destroy(); err != nil {
		t.Fatal(err)
	}
	a.WaitDone(t)
	a = iwarptest.NewEnd(t, a.Dev, iwarp.QPInitAttr{})
	var err error
	if b.QP, err = b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: b.CQ, RecvCQ: b.CQ}); err != nil {
		t.Fatal(err)
	}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", nil, nil)
	pingPong(t, a, b, 200)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- b.CQ.Wait(ctx) }()
	time.Sleep(time.Millisecond) // usually it reads by then; if not, it must end too
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
