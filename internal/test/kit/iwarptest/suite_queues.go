package iwarptest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var queueCases = []suiteCase{
	{"PostErrors", (*conn).postErrors},
	{"QueueLimits", (*conn).queueLimits},
	{"FlushInOrder", (*conn).flushInOrder},
	{"DisconnectDrains", (*conn).disconnectDrains},
	{"AbortFlushes", (*conn).abortFlushes},
	{"DestroyForgetsCompletions", (*conn).destroyForgets},
	{"EveryEnd", (*conn).everyEnd},
}

func (c *conn) postErrors() {
	idle := NewEnd(c, c.da, iwarp.QPInitAttr{})
	if err := idle.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}); !errors.Is(err, iwarp.ErrState) {
		c.Errorf("PostSend in IDLE: %v", err)
	}
	a, b := c.pair()
	attr := c.da.Attr()
	for name, wr := range map[string]*iwarp.SendWR{
		"opcode":          {Op: iwarp.OpRecv},
		"too many SGEs":   {Op: iwarp.OpSend, SGL: make([]iwarp.SGE, 5)},
		"inline too long": {Op: iwarp.OpSend, Flags: iwarp.Inline, Data: make([]byte, attr.MaxInline+1)},
		"Data not inline": {Op: iwarp.OpSend, Data: []byte("x")},
		"too long":        {Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 1 << 31}, {Length: 1 << 31}}},
	} {
		if err := a.QP.PostSend(wr); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%s: PostSend: %v", name, err)
		}
	}
	if err := a.QP.PostRecv(&iwarp.RecvWR{SGL: make([]iwarp.SGE, 5)}); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("PostRecv with too many SGEs: %v", err)
	}
	if _, err := c.da.Dial(Context(c), c.addr, a.QP, nil); !errors.Is(err, iwarp.ErrState) {
		c.Errorf("Dial with a connected QP: %v", err)
	}
	b.Recv(c, 1, 1)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend}) // none of that did harm
	b.WaitOK(c, 1)
}

func (c *conn) queueLimits() {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{MaxSend: 4, MaxRecv: 2}), NewEnd(c, c.db, iwarp.QPInitAttr{MaxRecv: 8})
	Connect(c, a, b, c.addr, nil, nil)
	for i := range uint64(8) {
		b.Recv(c, i, 1)
	}
	send := func(id uint64) error {
		return a.QP.PostSend(&iwarp.SendWR{ID: id, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}})
	}
	for i := range uint64(4) {
		if err := send(i); err != nil {
			c.Fatal(err)
		}
	}
	// A place is held until its completion has been polled.
	if err := send(4); !errors.Is(err, iwarp.ErrQueueFull) {
		c.Errorf("fifth send: %v", err)
	}
	a.WaitOK(c, 0)
	if err := send(4); err != nil {
		c.Errorf("after polling one: %v", err)
	}
	for i := range uint64(2) {
		a.Recv(c, i, 1)
	}
	if err := a.QP.PostRecv(&iwarp.RecvWR{}); !errors.Is(err, iwarp.ErrQueueFull) {
		c.Errorf("third receive: %v", err)
	}
	for i := range uint64(4) {
		a.WaitOK(c, i+1)
		b.WaitOK(c, i)
	}
}

func (c *conn) flushInOrder() {
	a, b := c.pair()
	for i := range uint64(5) {
		a.Recv(c, 100+i, 8)
	}
	b.QP.Abort()
	a.WaitDone(c)
	for i := range uint64(5) {
		if wc := a.Wait(c); wc.ID != 100+i || wc.Status != iwarp.StatusWRFlushErr || wc.Op != iwarp.OpRecv {
			c.Errorf("flushed receive %d: %+v", i, wc)
		}
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
	a.Post(c, &iwarp.SendWR{ID: 7, Op: iwarp.OpSend})
	if wc := a.Wait(c); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("send in ERROR: %+v", wc)
	}
	a.Recv(c, 8, 8)
	if wc := a.Wait(c); wc.ID != 8 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("receive in ERROR: %+v", wc)
	}
}

func (c *conn) disconnectDrains() {
	a, b := c.pair()
	dst := make([]byte, 4<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	src := pattern(len(dst), 4)
	sm := a.Reg(c, src, 0, nil)
	b.Recv(c, 1, 8)
	b.Recv(c, 2, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, SGL: []iwarp.SGE{Seg(sm, 0, len(src))}, STag: dm.STag(), TO: dm.Base()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("bye")})
	if err := a.QP.Disconnect(Context(c)); err != nil {
		c.Errorf("Disconnect: %v", err)
	}
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
	if !bytes.Equal(dst, src) {
		c.Error("Disconnect lost data")
	}
	if err := b.WaitDone(c); err != nil && c.db.Attr().EndReason {
		c.Errorf("the other side: %v", err)
	}
	if wc := b.Wait(c); wc.ID != 2 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("unused receive: %+v", wc)
	}
}

func (c *conn) abortFlushes() {
	a, b := c.pair()
	dst := make([]byte, 1<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	sm := a.Reg(c, make([]byte, 1<<20), 0, nil)
	const n = 30
	for i := range uint64(n) {
		a.Post(c, &iwarp.SendWR{ID: i, Op: iwarp.OpWrite, SGL: []iwarp.SGE{Seg(sm, 0, 1<<20)}, STag: dm.STag(), TO: dm.Base()})
	}
	a.QP.Abort()
	if a.WaitDone(c) == nil {
		c.Error("Err is nil after Abort")
	}
	flushed := false
	for i := range uint64(n) { // each exactly once, in order, flushed ones last
		wc := a.Wait(c)
		if wc.ID != i || flushed && wc.Status == iwarp.StatusSuccess {
			c.Errorf("completion %d: %+v", i, wc)
		}
		flushed = flushed || wc.Status == iwarp.StatusWRFlushErr
	}
	if b.WaitDone(c) == nil && c.db.Attr().EndReason {
		c.Error("the other side took an abort for a graceful end")
	}
}

func (c *conn) destroyForgets() {
	a, b := c.pair()
	b.Recv(c, 1, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
	if err := a.QP.Destroy(); err != nil {
		c.Fatal(err)
	}
	var wc [4]iwarp.WC
	if n := a.CQ.Poll(wc[:]); n != 0 {
		c.Errorf("%d completions of a destroyed QP", n)
	}
	if err := a.CQ.Close(); err != nil {
		c.Errorf("closing the CQ of destroyed QPs: %v", err)
	}
	if err := b.CQ.Close(); err == nil {
		c.Error("a CQ in use could be closed")
	}
	b.WaitDone(c)
}

// everyEnd ends connections in every way amid traffic: each request completes
// exactly once, in order, and nothing hangs.
func (c *conn) everyEnd() {
	rng := rand.New(rand.NewPCG(7, 7))
	ways := []struct {
		name string
		end  func(a, b *End)
	}{
		{"abort", func(a, b *End) { a.QP.Abort() }},
		{"peer aborts", func(a, b *End) { b.QP.Abort() }},
		{"both abort", func(a, b *End) { go b.QP.Abort(); a.QP.Abort() }},
		{"disconnect", func(a, b *End) { _ = a.QP.Disconnect(Context(c)) }},
		{"peer disconnects", func(a, b *End) { _ = b.QP.Disconnect(Context(c)) }},
		{"both disconnect", func(a, b *End) {
			done := make(chan error, 1)
			go func() { done <- b.QP.Disconnect(Context(c)) }()
			_ = a.QP.Disconnect(Context(c))
			<-done
		}},
		{"bad Write", func(a, b *End) {
			_ = a.QP.PostSend(&iwarp.SendWR{ID: 1 << 40, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte{1}, STag: 1})
		}},
		{"disconnect out of patience", func(a, b *End) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = a.QP.Disconnect(ctx)
		}},
	}
	for round := range 3 * len(ways) {
		way := ways[round%len(ways)]
		a, b := c.pair()
		ends := []*End{a, b}
		var posted [2]struct{ sends, recvs uint64 }
		for i, e := range ends {
			for range 40 {
				e.Recv(c, posted[i].recvs, 16)
				posted[i].recvs++
			}
		}
		for i, e := range ends {
			peer := ends[1-i]
			mr := e.Reg(c, make([]byte, 1<<18), iwarp.LocalWrite, nil)
			sink := peer.Reg(c, make([]byte, 1<<18), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
			for range rng.IntN(40) {
				wr := &iwarp.SendWR{ID: posted[i].sends, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("small")}
				if rng.IntN(2) == 0 {
					wr = &iwarp.SendWR{ID: posted[i].sends, Op: iwarp.OpWrite, STag: sink.STag(), TO: sink.Base(),
						SGL: []iwarp.SGE{Seg(mr, 0, rng.IntN(1<<18))}}
				}
				if e.QP.PostSend(wr) == nil {
					posted[i].sends++
				}
			}
		}
		way.end(a, b)
		for i, e := range ends {
			e.WaitDone(c)
			var sends, recvs uint64
			flushed := map[bool]bool{}
			for {
				var wc [1]iwarp.WC
				if e.CQ.Poll(wc[:]) == 0 {
					break
				}
				if wc[0].ID == 1<<40 {
					continue
				}
				isRecv := wc[0].Op == iwarp.OpRecv
				want := &sends
				if isRecv {
					want = &recvs
				}
				if wc[0].ID != *want {
					c.Fatalf("%s: side %d: completion %+v, want id %d", way.name, i, wc[0], *want)
				}
				*want++
				if wc[0].Status != iwarp.StatusSuccess {
					flushed[isRecv] = true
				} else if flushed[isRecv] {
					c.Errorf("%s: side %d: success after a flushed request: %+v", way.name, i, wc[0])
				}
			}
			if sends != posted[i].sends || recvs != posted[i].recvs {
				c.Errorf("%s: side %d: %d of %d sends and %d of %d receives completed", way.name, i,
					sends, posted[i].sends, recvs, posted[i].recvs)
			}
			if err := e.QP.Destroy(); err != nil {
				c.Error(err)
			}
		}
	}
}
