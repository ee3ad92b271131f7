package iwarptest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var waitCases = []suiteCase{
	{"WaitModes", (*conn).waitModes},
	{"WaitEndsWithContext", (*conn).waitEndsWithContext},
	{"WaitEndsWithQP", (*conn).waitEndsWithQP},
	{"WaitEndsWithCQ", (*conn).waitEndsWithCQ},
	{"WaitManyQPs", (*conn).waitManyQPs},
	{"WaitTwoCQs", (*conn).waitTwoCQs},
	{"SetWaiting", (*conn).setWaiting},
}

// waitings are the ways to wait that the cases go through. The short spin ends before most answers come,
// the long one does not.
var waitings = []iwarp.Waiting{
	{Mode: iwarp.WaitLoan}, {Mode: iwarp.WaitEvent}, {Mode: iwarp.WaitPoll}, {Mode: iwarp.WaitHybrid},
	{Mode: iwarp.WaitHybrid, Spin: time.Microsecond}, {Mode: iwarp.WaitHybrid, Spin: 100 * time.Millisecond},
}

func (c *conn) wait(w iwarp.Waiting, cqs ...iwarp.CQ) {
	c.Helper()
	for _, cq := range cqs {
		if err := cq.SetWaiting(w); err != nil {
			c.Fatal(err)
		}
	}
}

// setWaiting: ways that do not exist are refused, and change nothing.
func (c *conn) setWaiting() {
	cq, err := c.db.CreateCQ(4)
	if err != nil {
		c.Fatal(err)
	}
	for _, w := range []iwarp.Waiting{
		{Mode: iwarp.WaitPoll + 1}, {Mode: iwarp.WaitHybrid, Spin: -1}, {Mode: iwarp.WaitHybrid, Spin: iwarp.MaxSpin + 1},
		{Mode: iwarp.WaitEvent, Spin: 1},
	} {
		if err := cq.SetWaiting(w); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%v for %v: %v", w, w.Spin, err)
		}
	}
	c.wait(iwarp.Waiting{Mode: iwarp.WaitPoll}, cq)
	if err := cq.Close(); err != nil {
		c.Error(err)
	}
	if err := cq.SetWaiting(iwarp.Waiting{}); !errors.Is(err, iwarp.ErrClosed) {
		c.Errorf("on a closed queue: %v", err)
	}
}

// waitModes: a ping-pong with every way of waiting on either side, changed on a live queue.
func (c *conn) waitModes() {
	a, b := c.pair()
	const n = 60 // more than a streak that changes hands
	recvA, recvB := a.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil), b.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil)
	for i, w := range waitings {
		c.wait(w, a.CQ)
		c.wait(waitings[(i+3)%len(waitings)], b.CQ)
		a.post(c, recvA)
		b.post(c, recvB)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		wg.Go(func() { errs[0] = a.play(recvA, n, true) })
		wg.Go(func() { errs[1] = b.play(recvB, n, false) })
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			c.Fatalf("%v: %v", w, err)
		}
	}
}

func (e *End) post(c *conn, mr iwarp.MR) {
	c.Helper()
	if err := e.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{Seg(mr, 0, 8)}}); err != nil {
		c.Fatal(err)
	}
}

// play exchanges n messages with a peer that does the same. The first receive is posted.
func (e *End) play(recv iwarp.MR, n int, serve bool) error {
	post := func() error {
		return e.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{Seg(recv, 0, 8)}})
	}
	hit := func() error {
		return e.QP.PostSend(&iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("ball")})
	}
	sent := 0
	for got := 0; got < n; {
		if serve && sent == got {
			if err := hit(); err != nil {
				return err
			}
			sent++
		}
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		err := e.CQ.Wait(ctx)
		cancel()
		if err != nil {
			return err
		}
		var wc [4]iwarp.WC
		for _, w := range wc[:e.CQ.Poll(wc[:])] {
			if w.Status != iwarp.StatusSuccess {
				return errors.New(w.Status.String())
			}
			if w.ID != 1 {
				continue
			}
			if got++; got < n {
				if err := post(); err != nil {
					return err
				}
			}
			if !serve {
				if err := hit(); err != nil {
					return err
				}
				sent++
			}
		}
	}
	return e.drain()
}

// drain waits until all requests have completed.
func (e *End) drain() error {
	if err := e.QP.PostSend(&iwarp.SendWR{ID: 3, Op: iwarp.OpWrite}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	for {
		if err := e.CQ.Wait(ctx); err != nil {
			return err
		}
		var wc [1]iwarp.WC
		if e.CQ.Poll(wc[:]) == 1 && wc[0].ID == 3 {
			return nil
		}
	}
}

// waitEndsWithContext: nothing arrives, and ctx ends.
func (c *conn) waitEndsWithContext() {
	_, b := c.pair()
	for _, w := range waitings {
		c.wait(w, b.CQ)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		if err := b.CQ.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("%v past its deadline: %v", w, err)
		}
		cancel()
		ctx, cancel = context.WithCancel(context.Background())
		waited := make(chan error, 1)
		go func() { waited <- b.CQ.Wait(ctx) }()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			c.Errorf("%v cancelled: %v", w, err)
		}
		if err := b.CQ.Wait(ctx); !errors.Is(err, context.Canceled) {
			c.Errorf("%v with a context that has ended: %v", w, err)
		}
	}
}

// waitEndsWithQP: the end of the stream flushes the receives, which ends a Wait.
func (c *conn) waitEndsWithQP() {
	for _, w := range waitings {
		for _, own := range []bool{true, false} {
			a, b := c.pair()
			c.wait(w, b.CQ)
			b.Recv(c, 7, 8)
			waited := make(chan error, 1)
			go func() { waited <- b.CQ.Wait(context.Background()) }()
			if own {
				b.QP.Abort()
			} else {
				a.QP.Abort()
			}
			if err := <-waited; err != nil {
				c.Errorf("%v: %v", w, err)
			}
			if wc := b.Wait(c); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
				c.Errorf("%v: %+v", w, wc)
			}
		}
	}
}

// waitEndsWithCQ: Close ends all Waits.
func (c *conn) waitEndsWithCQ() {
	for _, w := range waitings {
		cq, err := c.db.CreateCQ(4)
		if err != nil {
			c.Fatal(err)
		}
		c.wait(w, cq)
		waited := make(chan error, 3)
		for range cap(waited) {
			go func() { waited <- cq.Wait(context.Background()) }()
		}
		if err := cq.Close(); err != nil {
			c.Error(err)
		}
		for range cap(waited) {
			if err := <-waited; !errors.Is(err, iwarp.ErrClosed) {
				c.Errorf("%v: %v", w, err)
			}
		}
	}
}

// waitManyQPs: several goroutines wait on the one queue of several connections, and each completion wakes
// one of them.
func (c *conn) waitManyQPs() {
	const qps, waiters, n = 3, 3, 40
	for _, w := range waitings {
		cq, err := c.db.CreateCQ(qps * (n + 4))
		if err != nil {
			c.Fatal(err)
		}
		c.wait(w, cq)
		var ends []*End
		for range qps {
			a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), &End{Dev: c.db, CQ: cq}
			if b.PD, err = c.db.AllocPD(); err != nil {
				c.Fatal(err)
			}
			if b.QP, err = b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxRecv: n, MaxSend: 4}); err != nil {
				c.Fatal(err)
			}
			mr := b.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil)
			for i := range uint64(n) {
				if err := b.QP.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{Seg(mr, 0, 8)}}); err != nil {
					c.Fatal(err)
				}
			}
			Connect(c, a, b, c.addr, nil, nil)
			ends = append(ends, a, b)
		}
		var got atomic.Int32
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				for cq.Wait(ctx) == nil {
					var wc [1]iwarp.WC
					if cq.Poll(wc[:]) == 1 && wc[0].Status == iwarp.StatusSuccess && got.Add(1) == qps*n {
						cancel()
					}
				}
			})
		}
		for i := 0; i < len(ends); i += 2 {
			a := ends[i]
			wg.Go(func() {
				for range n {
					err := a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte("one")})
					if err != nil {
						c.Error(err)
					}
				}
			})
		}
		wg.Wait()
		cancel()
		if got.Load() != qps*n {
			c.Errorf("%v: %d of %d messages woke a Wait", w, got.Load(), qps*n)
		}
		for _, e := range ends {
			if err := e.QP.Destroy(); err != nil {
				c.Error(err)
			}
		}
		if err := cq.Close(); err != nil {
			c.Error(err)
		}
	}
}

// waitTwoCQs: a program that waits for messages on one queue and for RDMA Reads on another is woken on
// both, in whatever order it turns to them.
func (c *conn) waitTwoCQs() {
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead })
	for _, w := range waitings {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		if err := a.QP.Destroy(); err != nil {
			c.Fatal(err)
		}
		sends, err := c.da.CreateCQ(64)
		if err != nil {
			c.Fatal(err)
		}
		c.wait(w, sends, a.CQ, b.CQ)
		if a.QP, err = a.PD.CreateQP(iwarp.QPInitAttr{SendCQ: sends, RecvCQ: a.CQ, MaxSend: 64, MaxRecv: 64}); err != nil {
			c.Fatal(err)
		}
		depths := &iwarp.ConnParam{ORD: 1, IRD: 1}
		Connect(c, a, b, c.addr, depths, depths)
		src, sink := b.Reg(c, []byte("12345678"), iwarp.LocalWrite|iwarp.RemoteRead, nil), a.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
		recv := a.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil)
		on := *a
		on.CQ = sends
		var ids uint64
		read := func() {
			ids++
			a.Post(c, &iwarp.SendWR{ID: ids, Op: iwarp.OpRead, SGL: []iwarp.SGE{Seg(sink, 0, 8)}, STag: src.STag(), TO: src.Base()})
			on.WaitOK(c, ids)
		}
		message := func() {
			ids++
			if err := a.QP.PostRecv(&iwarp.RecvWR{ID: ids, SGL: []iwarp.SGE{Seg(recv, 0, 8)}}); err != nil {
				c.Fatal(err)
			}
			b.Post(c, &iwarp.SendWR{ID: ids, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
			a.WaitOK(c, ids)
			b.WaitOK(c, ids)
		}
		for _, part := range []int{40, 1, 3, 1} { // long enough to change hands, then in turns
			for range part {
				read()
			}
			for range part {
				message()
			}
		}
		for _, e := range []*End{a, b} {
			if err := e.QP.Destroy(); err != nil {
				c.Error(err)
			}
		}
		if err := sends.Close(); err != nil {
			c.Error(err)
		}
	}
}
