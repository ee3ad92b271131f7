package worker

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// kept makes slots stay open.
func kept(o *Options) { o.Slots, o.Jobs = SlotsKept, 1 }

// firstSlot returns the slot of the client's first credit.
func (c *testClient) firstSlot() job.Window {
	c.wait("a credit", func() bool { return len(c.credits) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.credits[0].Slot
}

// lateWrite writes to a slot whose job is over.
func (c *testClient) lateWrite(w job.Window, late []byte) {
	c.t.Helper()
	err := c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.Inline, Data: late, STag: iwarp.STag(w.STag), TO: w.TO})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *testClient) compile(ts *testServer) {
	c.t.Helper()
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Status != job.StatusRan {
		c.t.Fatalf("%+v", r.Result)
	}
}

// TestKeptSlots: a slot that stays open is registered once, however many jobs use it, and every job gets what
// it has written.
func TestKeptSlots(t *testing.T) {
	ts := startServer(t, func(o *Options) {
		kept(o)
		o.Source, o.Result, o.Large = 64<<20, 64<<20, 128<<20
	})
	c := dial(t, ts.addr, &job.Hello{})
	seen := map[uint32]bool{}
	for range 30 {
		seen[c.firstSlot().STag] = true
		c.compile(ts)
	}
	if n := len(seen); n > 6 {
		t.Errorf("30 jobs used %d STags", n)
	}
	if n := ts.slots.Stats().Total; n > 6 {
		t.Errorf("%d slots for 4 credits", n)
	}
	// A result that the daemon offers, and a source that it fetches, go beside the slot.
	big := request{body: compileBody("cpp-output", "a.c"), text: hello, offer: true}
	if r := c.do(ts.tool("gcc"), big); r.Exit != 0 || r.Status != job.StatusRan {
		t.Errorf("%+v", r.Result)
	}
	if n := ts.registrations(); n > 6 {
		t.Errorf("slots were registered %v times for 31 jobs", n)
	}
	ts.mu.Lock()
	ts.dropKeptLocked(time.Time{})
	ts.mu.Unlock()
	for range 5 {
		c.compile(ts)
	}
}

// registrations returns the value of the metric.
func (ts *testServer) registrations() float64 {
	ts.t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(ts.o.Metrics.slots); err != nil {
		ts.t.Fatal(err)
	}
	list, err := r.Gather()
	if err != nil || len(list) != 1 {
		ts.t.Fatal(list, err)
	}
	return list[0].Metric[0].Counter.GetValue()
}

// TestLateWrite shows what an STag a job buys. Where a slot's registration ends with its job, a Write after
// that ends the connection and changes nothing. Where the slot stays open, it lands, and can only disturb what
// the same client writes there itself.
func TestLateWrite(t *testing.T) {
	part.Skip(t)
	late := bytes.Repeat([]byte("late"), 64)
	t.Run("anew", func(t *testing.T) {
		ts := startServer(t, func(o *Options) { o.Slots, o.Jobs = SlotsAnew, 1 })
		c := dial(t, ts.addr, &job.Hello{})
		w := c.firstSlot()
		c.compile(ts)
		c.lateWrite(w, late)
		<-c.qp.Done()
		if ts.holds(late) {
			t.Error("the late Write landed")
		}
	})
	t.Run("kept", func(t *testing.T) {
		ts := startServer(t, kept)
		c := dial(t, ts.addr, &job.Hello{})
		other := dial(t, ts.addr, &job.Hello{})
		w := c.firstSlot()
		c.compile(ts)
		c.lateWrite(w, late)
		c.compile(ts) // a message after it, so it has arrived
		if !ts.holds(late) {
			t.Error("the late Write did not land: then the slot does not stay open")
		}
		other.lateWrite(w, late)
		<-other.qp.Done() // an STag is of one connection
		for range 10 {
			c.compile(ts) // the slot that was written to serves again
		}
	})
}

// holds reports whether a slot of the server has p at its start.
func (ts *testServer) holds(p []byte) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for c := range ts.conns {
		for _, k := range c.credits {
			if bytes.HasPrefix(k.buf.Bytes(), p) {
				return true
			}
		}
		for _, k := range c.kept.slots {
			if bytes.HasPrefix(k.buf.Bytes(), p) {
				return true
			}
		}
	}
	return false
}

// TestWriteDuringTheJob: what a client writes into an open slot while its job is queued or runs changes
// nothing of it.
func TestWriteDuringTheJob(t *testing.T) {
	ts := startServer(t, kept)
	c := dial(t, ts.addr, &job.Hello{})
	want := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello})
	for range 20 {
		w := c.firstSlot()
		ts.mu.Lock()
		var k *credit
		for x := range ts.conns {
			for _, cr := range x.credits {
				if cr.window() == w {
					k = cr
				}
			}
		}
		ts.mu.Unlock()
		id := c.start(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello})
		for {
			ts.mu.Lock()
			taken := k.own != nil
			ts.mu.Unlock()
			c.mu.Lock()
			over := c.results[id].ID != 0
			c.mu.Unlock()
			if taken || over {
				break
			}
			time.Sleep(time.Millisecond)
		}
		c.lateWrite(w, bytes.Repeat([]byte{0}, 4096))
		if r := c.result(id); r.Exit != 0 || r.Status != job.StatusRan || r.Digest != want.Digest {
			t.Fatalf("%+v", r.Result)
		}
	}
}

// TestInvalidatingAnOpenSlot: a client that ends the registration of a slot that stays open breaks the
// protocol.
func TestInvalidatingAnOpenSlot(t *testing.T) {
	ts := startServer(t, kept)
	c := dial(t, ts.addr, &job.Hello{})
	w := c.firstSlot()
	c.mu.Lock()
	k := c.credits[0]
	c.mu.Unlock()
	err := c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSendInv, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, &job.Return{Credit: k.ID}), InvSTag: iwarp.STag(w.STag)})
	if err != nil {
		t.Fatal(err)
	}
	<-c.qp.Done()
}

// TestSlotAccessByDevice: slots stay open where registering memory is expensive, and no window is to be had.
func TestSlotAccessByDevice(t *testing.T) {
	for _, c := range []struct {
		attr iwarp.DeviceAttr
		way  SlotAccess
		kept bool
	}{
		{iwarp.DeviceAttr{}, SlotsAuto, false},
		{iwarp.DeviceAttr{PinsMR: true}, SlotsAuto, true},
		{iwarp.DeviceAttr{PinsMR: true}, SlotsAnew, false},
		{iwarp.DeviceAttr{PinsMR: true, MemoryWindow: true}, SlotsAuto, false},
		{iwarp.DeviceAttr{PinsMR: true, FastReg: true}, SlotsAuto, false},
		{iwarp.DeviceAttr{}, SlotsKept, true},
	} {
		s := &Server{o: Options{Device: attrDevice{a: c.attr}, Slots: c.way}}
		if got := s.keepsSlots(); got != c.kept {
			t.Errorf("%+v, %v: kept %v", c.attr, c.way, got)
		}
	}
}

type attrDevice struct {
	iwarp.Device
	a iwarp.DeviceAttr
}

func (d attrDevice) Attr() iwarp.DeviceAttr { return d.a }
