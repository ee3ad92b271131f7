package worker

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// trapDevice is a device whose memory registration panics when armed, as a bug of ours would.
type trapDevice struct {
	iwarp.Device
	armed atomic.Int64 // the Access of the registration that panics; 0: none
}

// arm makes the next registration for access panic. Others succeed, because unrelated ones, such as those for
// a credit, must not meet the trap.
func (d *trapDevice) arm(access iwarp.Access) { d.armed.Store(int64(access)) }

type trapPD struct {
	iwarp.PD
	d *trapDevice
}

func (d *trapDevice) AllocPD() (iwarp.PD, error) {
	pd, err := d.Device.AllocPD()
	return &trapPD{pd, d}, err
}

func (p *trapPD) RegMR(mem []byte, a iwarp.Access, o *iwarp.MROptions) (iwarp.MR, error) {
	if p.d.armed.CompareAndSwap(int64(a), 0) {
		panic("a trap")
	}
	return p.PD.RegMR(mem, a, o)
}

// panics returns the value of the metric.
func (ts *testServer) panics() float64 {
	ts.t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(ts.o.Metrics.panics); err != nil {
		ts.t.Fatal(err)
	}
	list, err := r.Gather()
	if err != nil || len(list) != 1 {
		ts.t.Fatal(list, err)
	}
	return list[0].Metric[0].Counter.GetValue()
}

// TestPanics: a bug costs only the job or the connection that meets it. Everything else goes on, nothing
// leaks, and the panic is counted.
func TestPanics(t *testing.T) {
	trap := &trapDevice{}
	ts := startServer(t, func(o *Options) {
		small(o)
		trap.Device = o.Device
		o.Device = trap
	})
	gcc := ts.tool("gcc")
	q := request{body: compileBody("cpp-output", "a.c"), text: hello}
	other := dial(t, ts.addr, &job.Hello{Name: "other"})
	wantOther := func() {
		t.Helper()
		if r := other.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("the other client: %+v", r.Result)
		}
	}
	var want float64
	wantCounted := func() {
		t.Helper()
		want++
		until(t, "the panic to be counted", func() bool { return ts.panics() == want })
		wantOther()
	}

	// In a connection's goroutine: while it is made, and with a message.
	trap.arm(iwarp.LocalWrite)
	c := dialRefused(t, ts.addr)
	if !strings.Contains(c, "no resources") {
		t.Errorf("a connection that met a panic was told %q", c)
	}
	wantCounted()
	c2 := dial(t, ts.addr, nil)
	until(t, "the connection", func() bool { return len(ts.Status().Clients) == 2 })
	trap.arm(iwarp.LocalWrite | iwarp.RemoteWrite)
	c2.send(&job.Hello{}) // grants credits
	<-c2.done
	wantCounted()

	// In a fetch.
	c3 := dial(t, ts.addr, &job.Hello{})
	c3.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	other.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	c3.wait("credits", func() bool { return len(c3.credits) > 1 })
	other.wait("credits", func() bool { return len(other.credits) > 1 })
	offer := q
	offer.offer = true
	trap.arm(iwarp.LocalWrite)
	c3.start(gcc, offer)
	<-c3.done
	wantCounted()

	// In a job: that one is answered, and the next one of the same runner is done.
	c4 := dial(t, ts.addr, &job.Hello{})
	nice := ts.places.Nice
	ts.mu.Lock()
	ts.places.Nice = nil
	ts.mu.Unlock()
	for range 4 {
		if r := c4.do(gcc, q); r.Status != job.StatusFailed || r.Cause != job.CauseInternal || r.Next == nil {
			t.Errorf("a job that met a panic: %+v", r.Result)
		}
		want++
	}
	ts.mu.Lock()
	ts.places.Nice = nice
	ts.mu.Unlock()
	want--
	wantCounted()
	if r := c4.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("its next job: %+v", r.Result)
	}
	if st := ts.Status(); st.Load.Running != 0 || st.Load.Queued != 0 {
		t.Errorf("load is %+v", st.Load)
	}
	ts.given()
}

// dialRefused connects and returns the text of the rejection.
func dialRefused(t *testing.T, addr string) string {
	t.Helper()
	g := job.Greeting{Version: job.Version}
	return rejection(t, addr, g.Append(nil)).Detail
}
