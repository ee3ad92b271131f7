package iwarp_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestGuardedRead: the owner of a region with a Guard changes it while it is read,
// and each Read brings one state of it, whole, with a right CRC.
func TestGuardedRead(t *testing.T) {
	a, b := readPair(t, 8)
	var mu sync.Mutex
	board := make([]byte, iwarp.GuardedMax)
	mr := b.Reg(t, board, iwarp.RemoteRead, &iwarp.MROptions{Guard: &mu})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			for k := range board {
				board[k] = i
			}
			mu.Unlock()
		}
	})
	defer wg.Wait()
	defer close(stop)
	const places, rounds = 16, 60
	dst := make([]byte, places*iwarp.GuardedMax)
	dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
	for range rounds {
		// Many at once: their responses meet in one batch.
		for i := range uint64(places) {
			a.Post(t, &iwarp.SendWR{ID: i, Op: iwarp.OpRead, STag: mr.STag(), Flags: iwarp.More * iwarp.SendFlags(1-i/(places-1)),
				SGL: []iwarp.SGE{{Addr: i * iwarp.GuardedMax, Length: iwarp.GuardedMax, LKey: dm.STag()}}})
		}
		for i := range uint64(places) {
			a.WaitOK(t, i)
			got := dst[i*iwarp.GuardedMax : (i+1)*iwarp.GuardedMax]
			if !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
				t.Fatal("a Read brought parts of two states")
			}
		}
	}
}

// TestLongGuardedRegion: a region with a Guard may be long, one Read of it may not: that ends the stream as any
// other Read outside its bounds.
func TestLongGuardedRegion(t *testing.T) {
	a, b := readPair(t, 8)
	var mu sync.Mutex
	src := make([]byte, 4*iwarp.GuardedMax)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	mr := b.Reg(t, src, iwarp.RemoteRead, &iwarp.MROptions{Guard: &mu})
	dst := make([]byte, iwarp.GuardedMax+1)
	dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
	for i, n := range []int{iwarp.GuardedMax, 1, 5000, iwarp.GuardedMax - 1, 300} {
		to := i*iwarp.GuardedMax/2 + 3
		a.Post(t, &iwarp.SendWR{ID: uint64(i), Op: iwarp.OpRead, STag: mr.STag(), TO: uint64(to),
			SGL: []iwarp.SGE{{Length: uint32(n), LKey: dm.STag()}}})
		a.WaitOK(t, uint64(i))
		if !bytes.Equal(dst[:n], src[to:to+n]) {
			t.Fatalf("a Read of %d bytes brought something else", n)
		}
	}
	a.Post(t, &iwarp.SendWR{ID: 9, Op: iwarp.OpRead, STag: mr.STag(), SGL: []iwarp.SGE{{Length: iwarp.GuardedMax + 1, LKey: dm.STag()}}})
	if wc := a.Wait(t); wc.Status == iwarp.StatusSuccess {
		t.Error("a Read of more than GuardedMax bytes succeeded")
	}
}

// TestGuardedReadSpansBatches: many small Reads of guarded memory and empty ones,
// with segments as small as they may be.
func TestGuardedReadSpansBatches(t *testing.T) {
	n := iwarptest.NewNetwork()
	a := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{MaxSend: 512})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: 100, IRD: 100, MaxULPDU: 128}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
	var mu sync.Mutex
	src := make([]byte, 3000)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	mr := b.Reg(t, src, iwarp.RemoteRead, &iwarp.MROptions{Guard: &mu})
	dst := make([]byte, 300*len(src))
	dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
	for i := range uint64(300) {
		wr := &iwarp.SendWR{ID: i, Op: iwarp.OpRead, STag: mr.STag(), Flags: iwarp.More}
		if i%3 > 0 {
			wr.SGL = []iwarp.SGE{{Addr: i * 3000, Length: 3000, LKey: dm.STag()}}
		}
		if i == 299 {
			wr.Flags = 0
		}
		a.Post(t, wr)
	}
	for i := range uint64(300) {
		a.WaitOK(t, i)
		if got := dst[i*3000 : (i+1)*3000]; i%3 > 0 && !bytes.Equal(got, src) {
			t.Fatalf("Read %d brought something else", i)
		}
	}
}
