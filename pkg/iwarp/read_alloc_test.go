package iwarp_test

import (
	"context"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// readPair is a connected pair over loopback with depth Reads each way.
func readPair(t testing.TB, depth uint16) (a, b *iwarptest.End) {
	t.Helper()
	a = iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	b = iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: depth, IRD: depth}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
	return a, b
}

// fetch returns a function that reads size bytes of b's and waits until they are
// there.
func fetch(t testing.TB, a, b *iwarptest.End, size int) func() {
	src := b.Reg(t, make([]byte, size), iwarp.RemoteRead, nil)
	dst := a.Reg(t, make([]byte, size), iwarp.LocalWrite, nil)
	wr := &iwarp.SendWR{Op: iwarp.OpRead, SGL: []iwarp.SGE{{Length: uint32(size), LKey: dst.STag()}}, STag: src.STag()}
	wcs := make([]iwarp.WC, 1)
	ctx := context.Background()
	return func() {
		if err := a.QP.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if err := a.CQ.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if a.CQ.Poll(wcs); wcs[0].Status != iwarp.StatusSuccess {
			t.Fatalf("%+v: %v", wcs[0], a.QP.Err())
		}
	}
}

// TestNoAllocationByReads: an RDMA Read allocates nothing, at either side.
func TestNoAllocationByReads(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and writev copies for it")
	}
	for name, size := range map[string]int{"small": 64, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			a, b := readPair(t, 4)
			f := fetch(t, a, b, size)
			for range 100 {
				f()
			}
			if n := testing.AllocsPerRun(200, f); n >= 1 {
				t.Errorf("%.1f allocations a Read of %d bytes, want 0", n, size)
			}
		})
	}
}

// TestNoAllocationByExtensions: nor do an atomic and a Write with Immediate Data.
func TestNoAllocationByExtensions(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and writev copies for it")
	}
	a := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: 4, IRD: 4, Extensions: true}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
	all := iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteAtomic
	src, dst := a.Reg(t, make([]byte, 64), all, nil), b.Reg(t, make([]byte, 64), all, nil)
	sgl := []iwarp.SGE{{Length: 8, LKey: src.STag()}}
	atomic := &iwarp.SendWR{Op: iwarp.OpFetchAdd, STag: dst.STag(), SGL: sgl, Atomic: iwarp.AtomicArgs{Add: 1}}
	imm := &iwarp.SendWR{Op: iwarp.OpWriteImm, STag: dst.STag(), SGL: sgl}
	recv := new(iwarp.RecvWR)
	wcs := make([]iwarp.WC, 1)
	one := func(e *iwarptest.End) {
		if err := e.CQ.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if e.CQ.Poll(wcs); wcs[0].Status != iwarp.StatusSuccess {
			t.Fatalf("%+v: %v", wcs[0], e.QP.Err())
		}
	}
	f := func() {
		if err := b.QP.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		for _, wr := range []*iwarp.SendWR{atomic, imm} {
			if err := a.QP.PostSend(wr); err != nil {
				t.Fatal(err)
			}
		}
		one(a)
		one(a)
		one(b)
	}
	for range 100 {
		f()
	}
	if n := testing.AllocsPerRun(200, f); n >= 1 {
		t.Errorf("%.1f allocations an atomic and a Write with Immediate, want 0", n)
	}
}

func benchRead(b *testing.B, size int) {
	x, y := readPair(b, 1)
	f := fetch(b, x, y, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

func BenchmarkRead64(b *testing.B) { benchRead(b, 64) }
func BenchmarkRead1M(b *testing.B) { benchRead(b, 1<<20) }
