package grant_test

import (
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/lab/grant"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func side(e *iwarptest.End) grant.Side { return grant.Side{Dev: e.Dev, PD: e.PD, QP: e.QP, CQ: e.CQ} }

// pair returns a connection on the software device.
func pair(t testing.TB) (owner, peer grant.Side) {
	a := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	iwarptest.Connect(t, b, a, "127.0.0.1:0", nil, nil)
	return side(a), side(b)
}

// TestPriceOfRevocation: a late Write is refused whatever way the access was taken away, and lands where it
// was not.
func TestPriceOfRevocation(t *testing.T) {
	for name, connect := range map[string]func(testing.TB) (owner, peer grant.Side){"soft": pair, "inproc": inprocPair} {
		for _, w := range grant.Ways {
			t.Run(name+" "+w.String(), func(t *testing.T) {
				owner, peer := connect(t)
				o, err := grant.Try(iwarptest.Context(t), owner, peer, w, make([]byte, 1<<20), 20, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := grant.Refused
				if w == grant.Kept {
					want = grant.Landed
				}
				if o.Verdict != want || o.Jobs != 20 || o.Way != w {
					t.Errorf("%+v: %s, want %s", o, o.Verdict, want)
				}
			})
		}
	}
}

func inprocPair(t testing.TB) (owner, peer grant.Side) {
	n := inproc.NewNetwork()
	var e [2]*iwarptest.End
	for i := range e {
		d := n.Open(inproc.Defaults())
		t.Cleanup(func() { iwarptest.Close(t, d) })
		e[i] = iwarptest.NewEnd(t, d, iwarp.QPInitAttr{})
	}
	iwarptest.Connect(t, e[1], e[0], "127.0.0.1:0", nil, nil)
	return side(e[0]), side(e[1])
}

// TestOpenAccess: while it is open, the peer's Write lands, whatever the way.
func TestOpenAccess(t *testing.T) {
	for _, w := range grant.Ways {
		owner, peer := pair(t)
		buf := make([]byte, 64)
		g, err := grant.New(owner, w, buf)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[iwarp.STag]bool{}
		for i := range byte(10) {
			stag, to, err := g.Open(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", w, err)
			}
			seen[stag] = true
			before := owner.QP.Stats().WritesReceived
			if err := peer.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte{i + 1}, STag: stag, TO: to + 5}); err != nil {
				t.Fatal(err)
			}
			for owner.QP.Stats().WritesReceived == before && owner.QP.State() == iwarp.StateRTS {
			}
			if err := g.Shut(t.Context()); err != nil {
				t.Fatalf("%s: %v", w, err)
			}
			if err := g.Shut(t.Context()); err != nil {
				t.Errorf("%s: a second Shut: %v", w, err)
			}
			if buf[5] != i+1 {
				t.Errorf("%s: %d did not land; %v", w, i+1, owner.QP.Err())
			}
		}
		if kept := len(seen) == 1; kept != (w == grant.Kept) {
			t.Errorf("%s: %d STags for 10 jobs", w, len(seen))
		}
		if err := g.Close(); err != nil {
			t.Errorf("%s: %v", w, err)
		}
	}
}

func TestUnsupported(t *testing.T) {
	n := inproc.NewNetwork()
	a := inproc.Defaults()
	a.FastReg, a.MemoryWindow = false, false
	d := n.Open(a)
	defer iwarptest.Close(t, d)
	e := iwarptest.NewEnd(t, d, iwarp.QPInitAttr{})
	for _, w := range grant.Ways {
		g, err := grant.New(side(e), w, make([]byte, 8))
		if w == grant.Fast || w == grant.Window {
			if !errors.Is(err, iwarp.ErrUnsupported) {
				t.Errorf("%s: %v", w, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", w, err)
		} else if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkGrant is the price of an STag for each job, without any transfer.
func BenchmarkGrant(b *testing.B) {
	for _, w := range grant.Ways {
		b.Run(w.String(), func(b *testing.B) {
			owner, _ := pair(b)
			g, err := grant.New(owner, w, make([]byte, 8<<20))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := g.Open(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := g.Shut(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if err := g.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
