package jobs

import (
	"bytes"
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func TestMain(m *testing.M) {
	peer.Called(Handlers())
	os.Exit(m.Run())
}

func TestRunsThrough(t *testing.T) {
	for _, e := range []*exp.Experiment{Carriers, Setup, Distance} {
		t.Run(e.Name, func(t *testing.T) {
			if _, err := exp.Run(t.Context(), e, exp.Options{Size: exp.Tiny, Rounds: 1}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestSameResult: each carrier with each kind of memory brings the same result, twice over one connection, and the text
// arrives as it was sent.
func TestSameResult(t *testing.T) {
	want := make([]byte, 3*chunk+17) // several Sends, the last one short
	for i := range want {
		want[i] = byte(i * 7)
	}
	s, err := start(loopback, t.TempDir(), [][]byte{nil, want}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, carrier := range []string{byTCP, bySend, byWrite, byPull} {
		for _, memory := range []string{each, asked, pool} {
			c, err := s.connect(t.Context(), hello{Carrier: carrier, Memory: memory}, iwarp.Waiting{})
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range [][]byte{want[:chunk+1], want[:5], nil} {
				got, first, err := c.do(t.Context(), &job{what: doCached, index: 1, text: text})
				if err != nil || !bytes.Equal(got, want) || first == 0 {
					t.Fatalf("%s, %s: %d bytes, first at %d, %v", carrier, memory, len(got), first, err)
				}
			}
			c.close()
		}
	}
}

// TestCompiles: what a host compiles of a text is what is compiled here.
func TestCompiles(t *testing.T) {
	u := unit{}
	if u.make(t.Context(), t.TempDir()); u.why != nil {
		t.Skip(u.why)
	}
	s, err := start(loopback, t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, carrier := range []string{byTCP, bySend, byWrite, byPull} {
		c, err := s.connect(t.Context(), hello{Carrier: carrier, Memory: pool}, iwarp.Waiting{})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := c.do(t.Context(), &job{what: doC, text: u.text})
		if err != nil || !bytes.Equal(got, u.object) {
			t.Errorf("%s: %d bytes of %d, %v", carrier, len(got), len(u.object), err)
		}
		// A text that does not compile ends the connection, and nothing hangs.
		if _, _, err := c.do(t.Context(), &job{what: doC, text: []byte("int int\n")}); err == nil {
			t.Errorf("%s: a text that is no C was compiled", carrier)
		}
		c.close()
	}
}

func TestMessages(t *testing.T) {
	m := message{Op: opJob, What: doCXX, Index: 3, Len: 12345, STag: 1 << 31, TO: 1 << 40, SinkSTag: 7, SinkTO: 1<<63 + 1, First: 99}
	b := m.bytes()
	if got, err := parse(b); len(b) != messageLen || err != nil || got != m {
		t.Errorf("%d bytes: %+v, %v", len(b), got, err)
	}
	m.Len = maxText + 1
	if _, err := parse(m.bytes()); err == nil {
		t.Error("a text that is too long is taken")
	}
	if _, err := parse(b[1:]); err == nil {
		t.Error("a short message is taken")
	}
}
