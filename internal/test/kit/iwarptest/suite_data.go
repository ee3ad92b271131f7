package iwarptest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var dataCases = []suiteCase{
	{"SendSizes", (*conn).sendSizes},
	{"SendsInOrder", (*conn).sendsInOrder},
	{"GatherAndScatter", (*conn).gatherScatter},
	{"InlineMayBeReused", (*conn).inline},
	{"UnsignaledIsSilent", (*conn).unsignaled},
	{"SolicitedIsMarked", (*conn).solicited},
	{"MoreGoesWithTheNext", (*conn).more},
	{"WritePlacedBeforeSend", (*conn).writeThenSend},
	{"WriteOfNothing", (*conn).writeNothing},
	{"WriteBounds", (*conn).writeBounds},
	{"ConcurrentUse", (*conn).concurrentUse},
}

func (c *conn) sendSizes() {
	a, b := c.pair()
	for i, n := range []int{0, 1, 2, 3, 4, 25, 1424, 4096, 4097, 32 << 10, 64<<10 + 1, 1 << 20} {
		id := uint64(i)
		got := b.Recv(c, id, n)
		src := pattern(max(n, 1), byte(i))
		mr := a.Reg(c, src, 0, nil)
		a.Post(c, &iwarp.SendWR{ID: id, Op: iwarp.OpSend, SGL: []iwarp.SGE{Seg(mr, 0, n)}})
		a.WaitOK(c, id)
		if wc := b.WaitOK(c, id); wc.ByteLen != uint32(n) || wc.Op != iwarp.OpRecv || wc.QP != b.QP {
			c.Errorf("send of %d bytes: %+v", n, wc)
		}
		if !bytes.Equal(got, src[:n]) {
			c.Errorf("send of %d bytes arrived changed", n)
		}
	}
}

func (c *conn) sendsInOrder() {
	a, b := c.pair()
	const n = 50
	var bufs [n][]byte
	for i := range bufs {
		bufs[i] = b.Recv(c, uint64(i), 4)
	}
	for i := range n {
		a.Post(c, &iwarp.SendWR{ID: uint64(i), Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte(fmt.Sprintf("%04d", i))})
	}
	for i := range n {
		a.WaitOK(c, uint64(i))
		b.WaitOK(c, uint64(i))
		if got := string(bufs[i]); got != fmt.Sprintf("%04d", i) {
			c.Errorf("message %d is %q", i, got)
		}
	}
}

func (c *conn) gatherScatter() {
	a, b := c.pair()
	src, dst := pattern(100_000, 3), make([]byte, 100_000)
	sm, dm := a.Reg(c, src, 0, nil), b.Reg(c, dst, iwarp.LocalWrite, nil)
	err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{
		Seg(dm, 90_001, 7), {Addr: 1 << 40, LKey: 0}, Seg(dm, 0, 50_000), Seg(dm, 50_000, 40_001)}})
	if err != nil {
		c.Fatal(err)
	}
	// An SGE of length zero is not checked, whatever its key.
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: []iwarp.SGE{
		Seg(sm, 1, 3), {Addr: 5, LKey: 0xdead}, Seg(sm, 10, 33_333), Seg(sm, 40_000, 45_011)}})
	a.WaitOK(c, 2)
	const total = 3 + 33_333 + 45_011
	if wc := b.WaitOK(c, 1); wc.ByteLen != total {
		c.Errorf("ByteLen %d, want %d", wc.ByteLen, total)
	}
	want := append(append(append([]byte(nil), src[1:4]...), src[10:33_343]...), src[40_000:85_011]...)
	got := append(append([]byte(nil), dst[90_001:90_008]...), dst[:total-7]...)
	if !bytes.Equal(got, want) {
		c.Error("gathered and scattered bytes differ")
	}
}

func (c *conn) inline() {
	a, b := c.pair()
	max := c.da.Attr().MaxInline
	data := pattern(max, 9)
	want := append([]byte(nil), data...)
	mr := a.Reg(c, data, 0, nil)
	got1, got2 := b.Recv(c, 1, max), b.Recv(c, 2, max)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: data})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, SGL: []iwarp.SGE{Seg(mr, 0, max)}})
	clear(data)
	b.WaitOK(c, 1)
	b.WaitOK(c, 2)
	if !bytes.Equal(got1, want) || !bytes.Equal(got2, want) {
		c.Error("inline data was not copied at posting")
	}
}

func (c *conn) unsignaled() {
	a, b := c.pair()
	for i := range uint64(40) {
		b.Recv(c, i, 1)
	}
	for i := range uint64(40) {
		f := iwarp.Inline | iwarp.Unsignaled
		if i%8 == 7 {
			f = iwarp.Inline
		}
		a.Post(c, &iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: f, Data: []byte{1}})
	}
	for i := range uint64(40) {
		b.WaitOK(c, i)
		if i%8 == 7 {
			a.WaitOK(c, i)
		}
	}
	var wc [1]iwarp.WC
	if a.CQ.Poll(wc[:]) != 0 {
		c.Errorf("completion of an unsignaled request: %+v", wc[0])
	}
}

func (c *conn) solicited() {
	a, b := c.pair()
	mr := b.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: b.QP})
	for i := range uint64(4) {
		b.Recv(c, i, 8)
		wr := &iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}}
		if i&1 != 0 {
			wr.Flags |= iwarp.Solicited
		}
		if i&2 != 0 {
			wr.Op, wr.InvSTag = iwarp.OpSendInv, mr.STag() // twice: already invalid is accepted
		}
		a.Post(c, wr)
		wc := b.WaitOK(c, i)
		if c.db.Attr().WCMarks && (wc.Solicited != (i&1 != 0) || wc.Inv != (i&2 != 0)) {
			c.Errorf("message %d: %+v", i, wc)
		}
	}
}

func (c *conn) more() {
	a, b := c.pair()
	dst := make([]byte, 100)
	mr := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	b.Recv(c, 1, 4)
	src := pattern(100, 5)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.More, Data: src, STag: mr.STag(), TO: mr.Base()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("now")})
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
	if !bytes.Equal(dst, src) {
		c.Error("the Write did not go before the Send")
	}
}

func (c *conn) writeThenSend() {
	a, b := c.pair()
	dst := make([]byte, 1<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, c.base(1<<33))
	src := make([]byte, 1<<20)
	sm := a.Reg(c, src, 0, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(60) {
		n := rng.IntN(1 << (4 + rng.IntN(17)))
		from, to := rng.IntN(len(src)-n), rng.IntN(len(dst)-n)
		copy(src[from:], pattern(n, byte(i)))
		b.Recv(c, i, 1)
		a.Post(c, &iwarp.SendWR{ID: 2 * i, Op: iwarp.OpWrite, STag: dm.STag(), TO: dm.Base() + uint64(to),
			SGL: []iwarp.SGE{Seg(sm, from, n)}})
		a.Post(c, &iwarp.SendWR{ID: 2*i + 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}})
		b.WaitOK(c, i)
		// "A Send Message's Completion guarantees that the Writes before it have
		// been Placed" (RFC 5040 §5.5, rule 10).
		if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
			c.Fatalf("round %d: %d bytes written to %d are not there when the Send is delivered", i, n, to)
		}
		a.WaitOK(c, 2*i)
		a.WaitOK(c, 2*i+1)
	}
}

func (c *conn) writeNothing() {
	a, b := c.pair()
	b.Recv(c, 1, 1)
	// "If the DDP Segment is of zero length, the STag and TO MUST NOT be checked."
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, STag: 0xdeadbeef, TO: 99})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend})
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
}

func (c *conn) writeBounds() {
	a, b := c.pair()
	memory := make([]byte, 64)
	mr := b.Reg(c, memory[16:48], iwarp.LocalWrite|iwarp.RemoteWrite, c.base(0x1000))
	b.Recv(c, 1, 1)
	for _, w := range []struct{ to, n int }{{0, 32}, {0, 1}, {31, 1}, {5, 20}} {
		a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: bytes.Repeat([]byte{0xee}, w.n), STag: mr.STag(), TO: mr.Base() + uint64(w.to)})
		a.WaitOK(c, 0)
	}
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
	want := make([]byte, 64)
	copy(want[16:48], bytes.Repeat([]byte{0xee}, 32))
	if !bytes.Equal(memory, want) {
		c.Errorf("memory is\n%x, want\n%x", memory, want)
	}
}

func (c *conn) concurrentUse() {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	const posters, each = 4, 50
	dst := make([]byte, posters*4096)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	rm := b.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil)
	recv := &iwarp.RecvWR{SGL: []iwarp.SGE{Seg(rm, 0, 8)}}
	for range 64 {
		if err := b.QP.PostRecv(recv); err != nil {
			c.Fatal(err)
		}
	}
	Connect(c, a, b, c.addr, nil, nil)
	ctx := Context(c)
	var wg sync.WaitGroup
	// Without flow control of its own, a sender is limited by what the receiver has announced: here
	// one token for each posted receive.
	tokens := make(chan struct{}, 64)
	for range 64 {
		tokens <- struct{}{}
	}
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				<-tokens
				data := bytes.Repeat([]byte{byte(i)}, 4096)
				for _, wr := range []*iwarp.SendWR{
					{Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled, Data: data, STag: dm.STag(), TO: dm.Base() + uint64(p*4096)},
					{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte{byte(p)}},
				} {
					for {
						err := a.QP.PostSend(wr)
						if err == nil {
							break
						}
						if !errors.Is(err, iwarp.ErrQueueFull) || ctx.Err() != nil {
							c.Error(err)
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				}
			}
		})
	}
	wg.Go(func() {
		var wc [8]iwarp.WC
		for got := 0; got < posters*each; {
			if err := b.CQ.Wait(ctx); err != nil {
				c.Error(err)
				return
			}
			for range b.CQ.Poll(wc[:]) {
				got++
				if err := b.QP.PostRecv(recv); err != nil {
					c.Error(err)
					return
				}
				tokens <- struct{}{}
			}
		}
	})
	wg.Wait()
	for p := range posters {
		if want := bytes.Repeat([]byte{each - 1}, 4096); !bytes.Equal(dst[p*4096:(p+1)*4096], want) {
			c.Errorf("region of poster %d does not hold its last Write", p)
		}
	}
}
