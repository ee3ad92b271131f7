package worker

import (
	"errors"
	"runtime"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// fill writes n bytes into the slot of the client's first credit, and sends no job.
func (c *testClient) fill(n int) {
	c.t.Helper()
	c.wait("a credit", func() bool { return len(c.credits) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = true // else it may be asked for the credit, and what is written then goes with it
	slot := c.credits[0].Slot
	part := make([]byte, 1<<20)
	mr, err := c.pd.RegMR(part, iwarp.LocalWrite, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for at := 0; at < n; at += len(part) {
		wr := &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled, STag: iwarp.STag(slot.STag), TO: slot.TO + uint64(at),
			SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(min(len(part), n-at)), LKey: mr.STag()}}}
		for err = c.qp.PostSend(wr); errors.Is(err, iwarp.ErrQueueFull); err = c.qp.PostSend(wr) {
			runtime.Gosched()
		}
		if err != nil {
			c.t.Fatalf("write: %v", err)
		}
	}
}

// TestFilledSlotsAreReclaimed: a client fills the slots of its connections and sends no jobs. As long as
// there is memory, that is allowed; when there is not, the fullest of its connections ends, and none of
// another client's.
func TestFilledSlotsAreReclaimed(t *testing.T) {
	proc := newFakeProc(t, 1<<30)
	ts, addr := startNamed(t, func(o *Options) { o.Proc, o.Slot, o.Heartbeat = proc.dir, 48<<20, patience/100 })
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	full, other := dialFrom(t, "127.0.0.3", addr, 10, &job.Hello{}), dialFrom(t, "127.0.0.3", addr, 11, &job.Hello{})
	full.fill(40 << 20)
	other.fill(24 << 20)
	honest.fill(30 << 20) // more than the other one
	written := func() (n int64) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for c := range ts.conns {
			for _, k := range c.credits {
				if k.buf != nil {
					n += k.buf.Touched()
				}
			}
		}
		return n
	}
	until(t, "what was written", func() bool { return written() >= (40+24+30)<<20-3*64<<10 })
	if got := gathered(t, ts, "rdistccd_client_limits_total", limitSlots); got != 0 {
		t.Errorf("%v connections were ended while there was memory", got)
	}
	proc.memory(72 << 20)
	<-full.done
	until(t, "its memory", func() bool { return written() < (24+30)<<20 })
	// What is left fits into what there is.
	if r := honest.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("somebody else's job: %+v", r.Result)
	}
	select {
	case <-other.done:
		t.Error("another connection was ended as well")
	default:
	}
	if got := gathered(t, ts, "rdistccd_client_limits_total", limitSlots); got != 1 {
		t.Errorf("%v connections were ended, want 1", got)
	}
	if got := gathered(t, ts, "rdistccd_connections_ended_total", string(endedHoarding)); got != 1 {
		t.Errorf("%v connections ended as %s, want 1", got, endedHoarding)
	}
}
