package connmgr

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// small sets slots and sinks to 64 KiB, so that sources and results need windows that other tests write
// directly.
func small(o *Options) {
	o.SlotSize, o.SinkSize, o.Prefault = 64<<10, 64<<10, 64<<10
	o.Source, o.Result, o.Large = 8<<20, 8<<20, 16<<20
}

// fetching makes d a daemon with small slots that fetches sources.
func fetching(d *daemontest.Daemon) { d.SlotSize, d.Fetches = 64<<10, 8<<20 }

// bigText returns n bytes without repetitions.
func bigText(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "int x%d;\n", i)
	}
	return b.String()[:n]
}

// given waits until the manager has all of its memory back.
func (r *rig) given() {
	r.t.Helper()
	r.idle()
	eventually(r.t, "large memory to come back", func() bool { return r.m.memory.LargeUsed() == 0 })
	if h, err := r.m.memory.TrySink(r.m.uid); h == nil {
		r.t.Errorf("no sink: %v", err)
	} else {
		if !h.TryCount(r.m.o.Large) {
			r.t.Error("large memory is short")
		}
		h.Drop()
	}
	for _, h := range r.m.farm.Snapshot(nil).Hosts {
		l := r.m.farm.Link(h.Addr)
		if l == nil {
			continue
		}
		// Reads have ended, otherwise their memory would not be back.
		if l.Idle(time.Now().Add(time.Second)) == 0 {
			r.t.Errorf("%s: a link would never be idle: its host keeps a result", h.Addr)
		}
	}
}

// TestBigSourceAndResultAreFetched: big sources and results are fetched by RDMA Read, over TCP and in
// process, and their memory is freed. Jobs that fit travel as usual.
func TestBigSourceAndResultAreFetched(t *testing.T) {
	for _, provider := range []string{"soft", "inproc"} {
		t.Run(provider, func(t *testing.T) {
			near, far := openDevice(t), openDevice(t)
			if provider == "inproc" {
				_, _ = near.Close(), far.Close()
				n := inproc.NewNetwork()
				near, far = n.Open(inproc.Defaults()), n.Open(inproc.Defaults())
			}
			r := newRigOn(t, near, far, small)
			d := daemontest.Start(t, r.far, "127.0.0.1:0", fetching)
			for _, n := range []int{100, 60 << 10, 64 << 10, 3<<20 + 7, 100} {
				writes := r.writes(d)
				res := r.remote(d.Addr, bigText(n))
				if small := n < 64<<10-200; (r.writes(d)-writes == 1) != small {
					t.Errorf("%d bytes took %d Writes", n, r.writes(d)-writes)
				}
				if res.BytesOut < uint64(n) || res.BytesIn < uint64(n) {
					t.Errorf("%d bytes out, %d in, want %d and more", res.BytesOut, res.BytesIn, n)
				}
				r.given()
			}
			eventually(t, "releases", func() bool { return d.Held() == 0 })
			if got := r.count("rdistcc_cm_windows_total", "source"); got != 2 {
				t.Errorf("%v sources offered, want 2", got)
			}
			if got := r.count("rdistcc_cm_windows_total", "result"); got != 2 {
				t.Errorf("%v results fetched, want 2", got)
			}
		})
	}
}

// writes returns how many RDMA Writes went to d.
func (r *rig) writes(d *daemontest.Daemon) uint64 {
	if l := r.m.farm.Link(d.Addr); l != nil {
		return l.QP().Stats().WritesSent
	}
	return 0
}

// count returns the value of the series whose labels, by their names, have these values.
func (r *rig) count(name string, labels ...string) float64 {
	r.t.Helper()
	fams, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range fams {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			same := len(m.Label) == len(labels)
			for i := range m.Label {
				same = same && m.Label[i].GetValue() == labels[i]
			}
			if same {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.t.Errorf("no series %s of %q", name, labels)
	return 0
}

// TestPeersWithoutReads: a daemon without RDMA Reads gets no sources to fetch, and is not asked for results
// that it would have to offer.
func TestPeersWithoutReads(t *testing.T) {
	r := newRig(t, small)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.SlotSize = 64 << 10
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			if j.Fetch != 0 || j.Source.STag != 0 {
				t.Errorf("a window for a peer without Reads: %+v", j.Job)
			}
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	if no := r.goLocal(d.Addr, bigText(1<<20)); no.Reason != "too-big" || no.Trouble || d.JobsSeen() != 0 {
		t.Errorf("answer %+v after %d jobs, want too-big without trouble", no, d.JobsSeen())
	}
	// The compile there does not have to do without the text's memory.
	w := r.dial()
	defer w.close()
	if got, _ := w.run(leaseOf(d.Addr), bigText(1<<20)); got.(*ipc.GoLocal).Reason != "too-big" {
		t.Errorf("%+v", got)
	}
	if s := r.m.Status(); s.Slots.Leased != 0 || r.m.memory.LargeUsed() != 0 {
		t.Errorf("%+v and %d bytes are held for a command that runs there", s.Slots, r.m.memory.LargeUsed())
	}
	w.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "too-big", Closed: true})
	r.remote(d.Addr, "int small;")
	r.given()
}

// TestLargeMemoryIsBounded: sources that together would take more memory than allowed wait for others to end.
// A source that is too large by itself is compiled here.
func TestLargeMemoryIsBounded(t *testing.T) {
	r := newRig(t, func(o *Options) { small(o); o.Large = 3 << 20 })
	var most atomic.Int64
	gate := make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		fetching(d)
		d.Jobs = 4
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			if used := r.m.memory.LargeUsed(); used > most.Load() {
				most.Store(used)
			}
			<-gate
			c.Finish(j, &daemontest.Answer{Objects: [][]byte{[]byte("object of x.c: " + string(j.Text[:10]))}})
		}
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			w := r.dial()
			defer w.close()
			if got, _ := w.run(leaseOf(d.Addr), bigText(2<<20)); got == nil {
				t.Error("no answer")
			} else if _, ok := got.(*ipc.Result); !ok {
				t.Errorf("%T %+v, want a result", got, got)
			}
		})
	}
	eventually(t, "a first job", func() bool { return d.JobsSeen() == 1 })
	close(gate)
	all.Wait()
	if got := most.Load(); got < 2<<20 || got > 3<<20 || d.JobsSeen() != 4 {
		t.Errorf("%d bytes at a time in %d jobs, want at most %d in 4", got, d.JobsSeen(), 3<<20)
	}
	if no := r.goLocal(d.Addr, bigText(4<<20)); no.Reason != "too-big" || no.Trouble {
		t.Errorf("answer %+v, want too-big without trouble", no)
	}
	r.given()
}

// TestWindowsOutsideTheRules: a daemon loses its connection if it offers a larger result than was asked for,
// or a window that does not fit its Result.
func TestWindowsOutsideTheRules(t *testing.T) {
	for name, change := range map[string]func(c *daemontest.Conn, j *daemontest.Job, r *job.Result){
		"larger than wanted": func(c *daemontest.Conn, j *daemontest.Job, r *job.Result) { r.Window.Len = j.Fetch + 1 },
		"of nothing":         func(_ *daemontest.Conn, _ *daemontest.Job, r *job.Result) { r.Window.Len = 0 },
		"of a refusal":       func(_ *daemontest.Conn, _ *daemontest.Job, r *job.Result) { r.Status = job.StatusRefused },
		"a file outside":     func(_ *daemontest.Conn, _ *daemontest.Job, r *job.Result) { r.Files[0].Len++ },
		"a wrong STag":       func(_ *daemontest.Conn, _ *daemontest.Job, r *job.Result) { r.Window.STag ^= 1 << 12 },
		"longer than it is":  func(_ *daemontest.Conn, _ *daemontest.Job, r *job.Result) { r.Window.Len++ },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { small(o); o.Attempts = 1 })
			d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				fetching(d)
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					a := daemontest.Compiled(j)
					a.Offered = true
					a.Change = func(res *job.Result) { change(c, j, res) }
					c.Finish(j, a)
				}
			})
			if no := r.goLocal(d.Addr, "int x;"); no.Reason != "host-lost" || !no.Trouble {
				t.Errorf("answer %+v, want host-lost", no)
			}
			r.given()
		})
	}
}

// TestWindowOfAJobThatNobodyWants: an offered result that is no longer wanted is released unread.
func TestWindowOfAJobThatNobodyWants(t *testing.T) {
	r := newRig(t, small)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		fetching(d)
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			<-j.Ctx.Done() // its wrapper has gone
			a := daemontest.Compiled(j)
			a.Offered = true
			c.Finish(j, a)
		}
	})
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.send(w.preprocess("int x;"))
	eventually(t, "the job", func() bool { return d.JobsSeen() == 1 })
	w.close()
	r.given()
	eventually(t, "a Release", func() bool { return d.Held() == 0 })
	if got := r.link(d.Addr).QP().Stats().ReadsSent; got != 0 {
		t.Errorf("%d Reads of a result that nobody wants", got)
	}
}

// stall is a connection whose incoming side stops when an RDMA Read is sent after it was armed.
type stall struct {
	net.Conn
	armed   *atomic.Bool
	asked   *atomic.Bool // a Read was sent
	mu      sync.Mutex
	stopped chan struct{} // closed to end the stall; nil without one
}

func (c *stall) Write(p []byte) (int, error) {
	if c.armed.Load() && hasReadRequest(p) {
		c.mu.Lock()
		if c.stopped == nil {
			c.stopped = make(chan struct{})
			c.asked.Store(true)
		}
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// hasReadRequest reports whether an FPDU in p has an RDMA Read Request (RFC 5044 §4.1, RFC 5040 §4.1).
func hasReadRequest(p []byte) bool {
	for len(p) > 4 {
		if p[3]&0xf == 1 {
			return true
		}
		n := 2 + int(binary.BigEndian.Uint16(p))
		p = p[min((n+3)&^3+4, len(p)):]
	}
	return false
}

func (c *stall) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	stopped := c.stopped
	c.mu.Unlock()
	if stopped != nil {
		<-stopped // hold back what was read
	}
	return n, err
}

func (c *stall) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		c.armed.Store(false)
		close(c.stopped)
		c.stopped = nil
	}
}

func (c *stall) Close() error { c.wake(); return c.Conn.Close() }

func (c *stall) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		c.wake()
	}
	return c.Conn.SetReadDeadline(t)
}

// TestDaemonThatStopsInAFetch: unanswered Reads end the connection when the host is silent, or soon after the
// wrapper has gone. The job goes elsewhere.
func TestDaemonThatStopsInAFetch(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprintf("interrupted=%t", interrupted), func(t *testing.T) {
			armed, asked := new(atomic.Bool), new(atomic.Bool)
			near, err := iwarp.Open(iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				if err != nil {
					return nil, err
				}
				return &stall{Conn: conn, armed: armed, asked: asked}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			r := newRigOn(t, near, openDevice(t), func(o *Options) {
				small(o)
				o.Heartbeat, o.HeartbeatDead, o.CancelTimeout = 50*time.Millisecond, time.Hour, 200*time.Millisecond
				if !interrupted {
					o.Heartbeat, o.HeartbeatDead = 100*time.Millisecond, time.Second
				}
			})
			d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				fetching(d)
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					a := daemontest.Compiled(j)
					a.Offered = true
					if len(j.Text) > 1<<20 {
						armed.Store(true)
					}
					c.Finish(j, a)
				}
			})
			r.remote(d.Addr, "int warm;")
			w := r.dial()
			if !w.lease(leaseOf(d.Addr)) {
				t.FailNow()
			}
			w.send(w.preprocess(bigText(3 << 20)))
			if interrupted {
				eventually(t, "Reads", asked.Load)
				w.close()
			} else {
				// The second attempt finds no other host, or this one again.
				switch got := w.recv().(type) {
				case *ipc.GoLocal:
					if got.Reason != "host-lost" || !got.Trouble {
						t.Errorf("answer %+v, want host-lost", got)
					}
				case *ipc.Result:
					if got.Attempts < 2 {
						t.Errorf("answer %+v, want host-lost or another attempt", got)
					}
				}
				w.close()
			}
			eventually(t, "the end of the connection", func() bool { d.Mu.Lock(); defer d.Mu.Unlock(); return len(d.Conns) > 1 })
			r.given()
		})
	}
}

// TestWhatIsCountedOfSources: sources beyond what slots keep allocated, and copies of other users' texts,
// count against the bound on large memory. A source waits while the bound is reached.
func TestWhatIsCountedOfSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Prefault, o.Large, o.Source = 64<<10, 1<<20, 8<<20 })
		lease := func(foreign bool) *client {
			c := &client{m: s.m, uid: s.m.uid, Session: ipcserver.Detached(t.Context()), list: s.m.lists.Of("10.0.0.1:7632")}
			if foreign {
				c.uid++
			}
			if no := c.takeSlot(); no != nil {
				t.Fatalf("no slot: %+v", no)
			}
			c.free = true
			return c
		}
		for _, x := range []struct {
			n       uint64
			foreign bool
			used    int64
			no      bool
		}{
			{64 << 10, false, 0, false}, {64 << 10, true, 64 << 10, false}, {100 << 10, false, 100 << 10, false}, {100 << 10, true, 200 << 10, false},
			{3 << 20, false, 0, false}, // fits into a slot, so the number of slots bounds it
			{6 << 20, false, 0, true},
		} {
			c := lease(x.foreign)
			if no := c.takeLarge(x.n); (no != nil) != x.no || s.m.memory.LargeUsed() != x.used {
				t.Errorf("%d bytes, another user's %t: %d counted, want %d; %+v", x.n, x.foreign, s.m.memory.LargeUsed(), x.used, no)
			}
			c.endLease()
		}
		a, b := lease(true), lease(true)
		if no := a.takeLarge(400 << 10); no != nil {
			t.Fatalf("answer %+v", no)
		}
		took := make(chan bool)
		go func() { took <- b.takeLarge(400<<10) == nil }()
		synctest.Wait()
		if n := s.m.memory.LargeUsed(); n != 800<<10 {
			t.Errorf("%d bytes counted, want the first one's", n)
		}
		a.endLease()
		if !<-took {
			t.Error("the second one did not get its memory")
		}
		b.endLease()
		if n := s.m.memory.LargeUsed(); n != 0 {
			t.Errorf("%d bytes are counted for nobody", n)
		}
	})
}
