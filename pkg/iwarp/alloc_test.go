package iwarp_test

import (
	"context"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// tcpPair is a connected pair over loopback.
func tcpPair(t testing.TB) (a, b *iwarptest.End) {
	t.Helper()
	a = iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	b = iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	iwarptest.Connect(t, a, b, "127.0.0.1:0", nil, nil)
	return a, b
}

// message returns a function that writes size bytes from a to b, follows them with a Send, and waits until
// that has arrived and everything has completed.
func message(t testing.TB, a, b *iwarptest.End, size int) func() {
	src := a.Reg(t, make([]byte, size), 0, nil)
	dst := b.Reg(t, make([]byte, size), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	in := b.Reg(t, make([]byte, 64), iwarp.LocalWrite, nil)
	recv := &iwarp.RecvWR{SGL: []iwarp.SGE{{Length: 64, LKey: in.STag()}}}
	write := &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More,
		SGL: []iwarp.SGE{{Length: uint32(size), LKey: src.STag()}}, STag: dst.STag()}
	send := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("sixteen bytes...")}
	wcs := make([]iwarp.WC, 1)
	ctx := context.Background()
	one := func(e *iwarptest.End) {
		if err := e.CQ.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if e.CQ.Poll(wcs); wcs[0].Status != iwarp.StatusSuccess {
			t.Fatalf("%+v: %v", wcs[0], e.QP.Err())
		}
	}
	return func() {
		if err := b.QP.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(write); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(send); err != nil {
			t.Fatal(err)
		}
		one(b)
		one(a)
	}
}

// TestNoAllocationOnTheDataPath: posting, sending, receiving and polling allocate
// nothing, for a message that its poster sends and for one that tx does.
func TestNoAllocationOnTheDataPath(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and writev copies for it")
	}
	for name, size := range map[string]int{"direct": 64, "tx": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			f := message(t, a, b, size)
			for range 100 { // pools and slots fill
				f()
			}
			if n := testing.AllocsPerRun(200, f); n >= 1 {
				t.Errorf("%.1f allocations a message of %d bytes, want 0", n, size)
			}
		})
	}
}

func benchWrite(b *testing.B, size int) {
	x, y := tcpPair(b)
	f := message(b, x, y, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

func BenchmarkWrite64(b *testing.B)  { benchWrite(b, 64) }
func BenchmarkWrite32K(b *testing.B) { benchWrite(b, 32<<10) }
func BenchmarkWrite1M(b *testing.B)  { benchWrite(b, 1<<20) }
func BenchmarkWrite16M(b *testing.B) { benchWrite(b, 16<<20) }
func BenchmarkPingPong(b *testing.B) { benchPingPong(b) }

func benchPingPong(b *testing.B) {
	x, y := tcpPair(b)
	there, back := message(b, x, y, 64), message(b, y, x, 64)
	b.ReportAllocs()
	for b.Loop() {
		there()
		back()
	}
}
