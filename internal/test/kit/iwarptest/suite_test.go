package iwarptest

import (
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func open(t testing.TB, cfg iwarp.Config) iwarp.Device {
	dev, err := iwarp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func TestSuiteTCP(t *testing.T) {
	Suite(t, func(t testing.TB) (iwarp.Device, iwarp.Device, string) {
		return open(t, iwarp.Config{}), open(t, iwarp.Config{}), "127.0.0.1:0"
	})
}

func TestSuiteMemory(t *testing.T) {
	Suite(t, func(t testing.TB) (iwarp.Device, iwarp.Device, string) {
		n := NewNetwork()
		return open(t, n.Config()), open(t, n.Config()), "127.0.0.1:0"
	})
}

// TestSuiteChunks runs the suite with a receiver that sees small odd pieces, so
// that every field of every header is split somewhere.
func TestSuiteChunks(t *testing.T) {
	Suite(t, func(t testing.TB) (iwarp.Device, iwarp.Device, string) {
		n := NewNetwork()
		return open(t, n.Config()), open(t, ListenFaults(n.Config(), Faults{ReadMax: 101})), "127.0.0.1:0"
	})
}

// TestSendInBubble shows that a QP pair goes idle in a synctest bubble: nothing of
// it polls or spins.
func TestSendInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(t)
		b.Recv(t, 1, 8)
		synctest.Wait()
		a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
		synctest.Wait()
		var wc [2]iwarp.WC
		if n := b.CQ.Poll(wc[:]); n != 1 || wc[0].ByteLen != 1 {
			t.Errorf("polled %d completions, %+v", n, wc[0])
		}
	})
}
