package worker

import (
	"bytes"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// copyOf returns a result for a key, as hosts keep it.
func copyOf(t *testing.T, key resultcache.Key, length int) []byte {
	t.Helper()
	r := resultcache.Raw{Key: key, Files: []resultcache.RawFile{{Len: uint32(length)}}, Outputs: bytes.Repeat([]byte("r"), length)}
	front, err := r.AppendFront(nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(front, r.Outputs...)
}

// offers opens a window on b and asks for it to be kept.
func (c *testClient) offers(seq uint32, key resultcache.Key, b []byte) iwarp.MR {
	c.t.Helper()
	mr, err := c.pd.RegMR(b, iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(&job.Keep{Seq: seq, Key: key, Window: job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(len(b))}})
	return mr
}

// keeps offers b and waits for the Ack.
func (c *testClient) keeps(seq uint32, key resultcache.Key, b []byte) {
	c.t.Helper()
	mr := c.offers(seq, key, b)
	c.wait("the Ack", func() bool { return c.acks[job.KindKeep] == int(seq) })
	if err := mr.Dereg(); err != nil {
		c.t.Error(err)
	}
}

// TestCopiesOfResults: what a client asks a host to keep is on its tenant's shelf, if it is a result of that name. Anything
// else is refused and counted, and the client can go on.
func TestCopiesOfResults(t *testing.T) {
	m := NewMetrics()
	ts, c := startTrees(t, func(o *Options) { o.Results, o.Metrics = 16<<20, m })
	other := dial(t, ts.addr, &job.Hello{Name: "other"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.copies)
	count := func(r copyResult) int {
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all[0].GetMetric() {
			if x.GetLabel()[0].GetValue() == string(r) {
				return int(x.GetCounter().GetValue())
			}
		}
		return 0
	}
	key := func(n byte) resultcache.Key { return resultcache.Key{n, 3} }
	c.keeps(1, key(1), copyOf(t, key(1), 100))
	c.keeps(2, key(2), copyOf(t, key(2), 1<<20))
	if other.look(key(1)) == nil || other.look(key(2)) == nil || count(copyKept) != 2 {
		t.Errorf("%d kept", count(copyKept))
	}
	bent := copyOf(t, key(3), 5000)
	bent[4000] ^= 1
	for i, b := range [][]byte{bent, copyOf(t, key(4), 10), make([]byte, 1000), {1}} {
		c.keeps(uint32(3+i), key(3), b)
	}
	if count(copyGarbage) != 4 || other.look(key(3)) != nil || other.look(key(4)) != nil {
		t.Errorf("%d refused as garbage", count(copyGarbage))
	}
	c.keeps(7, key(5), copyOf(t, key(5), 3<<20)) // more than an eighth
	ts.mu.Lock()
	ts.copying = copyMemory - 10
	ts.mu.Unlock()
	c.keeps(8, key(6), copyOf(t, key(6), 100))
	ts.mu.Lock()
	ts.copying = 0
	ts.mu.Unlock()
	if count(copyRefused) != 2 || ts.Status().Results.Entries != 2 {
		t.Errorf("%d refused, %+v", count(copyRefused), ts.Status().Results)
	}
	// The next one does not wait for the Ack.
	big := copyOf(t, key(7), 3<<20)
	c.offers(9, key(7), big)
	c.offers(10, key(7), big)
	c.wait("the end of the connection", func() bool { return c.ended })
	// A window that the host cannot read.
	other.send(&job.Keep{Seq: 1, Key: key(8), Window: job.Window{STag: 4711, Len: 100}})
	other.wait("the end of the connection", func() bool { return other.ended })
	until(t, "the memory to be free", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.copying == 0 && len(ts.conns) == 0
	})
	if n := count(copyLost) + count(copyKept); n != 2+2 {
		t.Errorf("%d lost, %d kept", count(copyLost), count(copyKept))
	}

	// Without a shelf.
	_, c = startTrees(t, func(o *Options) { o.Metrics = m })
	c.keeps(1, key(9), copyOf(t, key(9), 100))
	if count(copyRefused) != 3 {
		t.Errorf("%d refused", count(copyRefused))
	}
}
