package connmgr

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// dialer changes the connections that a device dials to one address.
func dialer(t *testing.T, change map[string]func(net.Conn) net.Conn) iwarp.Device {
	t.Helper()
	dev, err := iwarp.Open(iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if f := change[addr]; err == nil && f != nil {
			c = f(c)
		}
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// TestCorruptedFPDU: one flipped bit, on the way out or back, costs the connection
// and one more attempt, never a wrong object.
func TestCorruptedFPDU(t *testing.T) {
	text := strings.Repeat("static int x; ", 10000)
	t.Run("out", func(t *testing.T) {
		faults := make(map[string]func(net.Conn) net.Conn)
		r := newRig(t, func(o *Options) {
			o.Device.Close()
			o.Device = dialer(t, faults)
		})
		r.dev = r.m.o.Device
		bad, good := daemontest.Start(t, r.far, "127.0.0.1:0", nil), daemontest.Start(t, r.far, "127.0.0.1:0", nil)
		faults[bad.Addr] = func(c net.Conn) net.Conn { return iwarptest.Wrap(c, iwarptest.Faults{FlipAt: 70000}) }
		r.warm(bad.Addr + " " + good.Addr)
		if res := r.remote(bad.Addr+" "+good.Addr, text); res.Host != good.Addr || res.Attempts != 2 {
			t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
		}
		if s := r.far.Stats(); s.CRCErrors != 1 || bad.JobsSeen() != 0 {
			t.Errorf("%d CRC errors and %d jobs at the host, want 1 and 0", s.CRCErrors, bad.JobsSeen())
		}
		r.idle()
	})
	t.Run("back", func(t *testing.T) {
		r := newRig(t, nil)
		dev, err := iwarp.Open(iwarptest.ListenFaults(iwarp.Config{}, iwarptest.Faults{FlipAt: 70000}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		bad, good := daemontest.Start(t, dev, "127.0.0.1:0", nil), daemontest.Start(t, r.far, "127.0.0.1:0", nil)
		r.warm(bad.Addr + " " + good.Addr)
		if res := r.remote(bad.Addr+" "+good.Addr, text); res.Host != good.Addr || res.Attempts != 2 {
			t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
		}
		if s := r.dev.Stats(); s.CRCErrors != 1 {
			t.Errorf("%d CRC errors, want 1", s.CRCErrors)
		}
		r.idle()
	})
}

// TestCutInsideFrame: a connection that breaks within a frame leaves no partial result.
func TestCutInsideFrame(t *testing.T) {
	r := newRig(t, nil)
	dev, err := iwarp.Open(iwarptest.ListenFaults(iwarp.Config{}, iwarptest.Faults{CutAt: 70000}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	bad, good := daemontest.Start(t, dev, "127.0.0.1:0", nil), daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.warm(bad.Addr + " " + good.Addr)
	text := strings.Repeat("static int x; ", 10000)
	if res := r.remote(bad.Addr+" "+good.Addr, text); res.Host != good.Addr || res.Attempts != 2 {
		t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
	}
	r.idle()
}

func TestPeerOfAnotherKind(t *testing.T) {
	r := newRig(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
			c.Close()
		}
	}()
	if no := r.goLocal(l.Addr().String(), "int x;"); no.Reason != "host-lost" || !no.Trouble {
		t.Errorf("answer %+v, want host-lost", no)
	}
}

// simulated is a manager with an in-memory network, in simulated time.
type simulated struct {
	t   *testing.T
	net *daemontest.Network
	m   *Manager
	far iwarp.Device
}

func newSimulated(t *testing.T, change func(o *Options)) *simulated {
	t.Helper()
	s := &simulated{t: t, net: daemontest.NewNetwork(t)}
	s.far = s.net.Open()
	o := Options{Device: s.net.Open(), Registry: prometheus.NewRegistry(), Identify: identifyTest, Object: fakeObject, Slots: 4, SlotSize: 4 << 20, SinkSize: 4 << 20, Prefault: 4096,
		LoadAverage: func() float64 { return 0 }, Memory: func() machine.Memory { return machine.Memory{} }}
	if change != nil {
		change(&o)
	}
	var err error
	if s.m, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if st := o.Device.Stats(); st.QPs != 0 || st.MRs != 0 {
			t.Errorf("%d QPs and %d memory regions left", st.QPs, st.MRs)
		}
		o.Device.Close()
		s.far.Close()
	})
	return s
}

// neverGone is the connection of a wrapper that stays.
type neverGone struct{ io.Closer }

func (neverGone) Gone() bool { return false }

// run does what the manager does for a wrapper's Lease and Submit.
func (s *simulated) run(ctx context.Context, f *ipc.Lease, text string) (*ipc.Result, *ipc.GoLocal) {
	s.t.Helper()
	c := &client{m: s.m, lease: f, id: s.m.ids.Add(1), asked: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.Session = ipcserver.Detached(ctx)
	s.m.underway.Add(&c.place, neverGone{io.NopCloser(nil)})
	defer s.m.underway.Remove(&c.place)
	c.record.Source, c.record.Build = f.Source, c.build()
	if _, no := c.prepare(); no != nil {
		return nil, no
	}
	if no := c.takeSlot(); no != nil {
		return nil, no
	}
	c.free = true
	c.prepared()
	defer c.endLease()
	b := job.Body{Argv0: "gcc", Language: "cpp-output", Name: "x.c", Cwd: "/src", Outputs: []unit.Output{{Name: "x.o"}}}
	if f.NeedTree {
		b.Files = []unit.File{{Name: "x.c", Len: uint64(len(text))}}
	}
	n := len(b.Append(c.source.Bytes()[:0]))
	off := job.TextOffset(n)
	copy(c.source.Bytes()[off:], text)
	t, no := c.task(&ipc.Submit{BodyLen: uint32(n), TextOff: uint32(off), TextLen: uint64(len(text)), Tree: f.NeedTree})
	if no != nil {
		return nil, no
	}
	return c.compile(t, f.NeedTree)
}

// TestSilentHostIsLost: a host that neither answers nor closes is given up after HeartbeatDead, even if
// another host has answered its job by then.
func TestSilentHostIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		silent := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.Mute = true
			d.OnJob = func(*daemontest.Conn, *daemontest.Job) {}
			d.OnCancel = func(*daemontest.Conn, *job.Cancel) {}
		})
		good := daemontest.Start(t, s.far, "10.0.0.2:7632", nil)
		hosts := silent.Addr + " " + good.Addr
		s.m.farm.Want(s.m.lists.Of(hosts).Sched, nil)
		synctest.Wait()
		began := time.Now()
		res, no := s.run(context.Background(), leaseOf(hosts), "int x;")
		if no != nil || res.Host != good.Addr || res.Attempts != 2 {
			t.Fatalf("answer %+v %+v, want a result of %s after 2 attempts", res, no, good.Addr)
		}
		if silent.JobsSeen() != 1 {
			t.Fatal("the silent host did not get the job")
		}
		for s.m.Status().Hosts[0].State == "up" { // it is dialled again after some 100 ms
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < 4*time.Second || took > 6100*time.Millisecond {
			t.Errorf("it was lost after %v, want some 5 s", took)
		}
	})
}

// TestQuietHostIsKept: heartbeats keep a connection that has nothing to do.
func TestQuietHostIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		if _, no := s.run(context.Background(), leaseOf(d.Addr), "int x;"); no != nil {
			t.Fatalf("answer %+v", no)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(d.Conns) != 1 || s.m.Status().Hosts[0].State != "up" {
			t.Errorf("%d connections, state %s, want the one", len(d.Conns), s.m.Status().Hosts[0].State)
		}
	})
}

// TestRestingHost: a host that no job has asked for is asked for a sign of life every four seconds, can be used at once, and is found to be gone
// within eight seconds more.
func TestRestingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		var beats atomic.Int64
		var gone atomic.Bool
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnBeat = func() { beats.Add(1) }
			d.Deaf = gone.Load
		})
		if _, no := s.run(context.Background(), leaseOf(d.Addr), "int x;"); no != nil {
			t.Fatalf("answer %+v", no)
		}
		time.Sleep(5 * time.Minute) // the manager expects more jobs for two minutes
		for i := range 40 {
			before := beats.Load()
			time.Sleep(time.Minute)
			if n := beats.Load() - before; i == 0 && (n < 12 || n > 18) {
				t.Errorf("%d heartbeats in a minute of rest, want some 15", n)
			}
			time.Sleep(2*time.Minute + time.Duration(i)*100*time.Millisecond) // the job comes at any time between heartbeats
			if res, no := s.run(context.Background(), leaseOf(d.Addr), "int x;"); no != nil || res.Attempts != 1 {
				t.Fatalf("answer %+v %+v, want a result at the first attempt", res, no)
			}
			time.Sleep(3 * time.Minute)
		}
		if len(d.Conns) != 1 {
			t.Errorf("%d connections, want the one", len(d.Conns))
		}
		gone.Store(true)
		began := time.Now()
		for s.m.Status().Hosts[0].State == "up" {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < 4*time.Second || took > 13*time.Second {
			t.Errorf("it was lost after %v, want at most 12 s", took)
		}
	})
}

// TestSlowNetworkIsNotSilence: a long source on a slow line takes longer than a
// host may be silent.
func TestSlowNetworkIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
		s.net.Slow[d.Addr] = 100 << 10
		text := strings.Repeat("x", 3<<20)
		began := time.Now()
		if res, no := s.run(context.Background(), leaseOf(d.Addr), text); no != nil || res.Attempts != 1 {
			t.Errorf("answer %+v %+v, want a result at the first attempt", res, no)
		}
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("it took %v, too short to prove anything", took)
		}
	})
}

// TestBlackHole: a host that accepts the connection and sends nothing delays a first job by the grace period,
// and later jobs not at all.
func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		l, err := s.net.Listen(context.Background(), "10.0.0.1:7632")
		if err != nil {
			t.Fatal(err)
		}
		var held []net.Conn
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				held = append(held, c)
			}
		}()
		for i, most := range []time.Duration{2 * time.Second, 0, 0} {
			began := time.Now()
			_, no := s.run(context.Background(), leaseOf("10.0.0.1:7632"), "int x;")
			if no == nil || no.Reason != "host-lost" || !no.Trouble {
				t.Errorf("job %d: answer %+v, want host-lost", i, no)
			}
			if took := time.Since(began); took > most {
				t.Errorf("job %d took %v, want at most %v", i, took, most)
			}
		}
		l.Close()
		<-done
		for _, c := range held {
			c.Close()
		}
	})
}

// TestUnwantedHostIsForgotten: a host that is gone and is on no list is not dialled forever.
func TestUnwantedHostIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		if _, no := s.run(context.Background(), leaseOf(d.Addr+" 10.0.0.2:7632"), "int x;"); no != nil {
			t.Fatalf("answer %+v", no)
		}
		time.Sleep(2 * farm.ForgetAfter)
		if st := s.m.Status(); len(st.Hosts) != 1 || st.Hosts[0].Addr != d.Addr {
			t.Errorf("hosts %+v, want the connected one", st.Hosts)
		}
		// It counts as a new host when a list names it again.
		late := daemontest.Start(t, s.far, "10.0.0.2:7632", nil)
		if res, no := s.run(context.Background(), leaseOf(late.Addr), "int x;"); no != nil || res.Host != late.Addr {
			t.Errorf("answer %+v %+v", res, no)
		}
	})
}

// TestFullFarmIsWaitedFor: the time limit is for the host's work, not for the
// queue before it.
func TestFullFarmIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.Jobs = 1
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				time.Sleep(50 * time.Second)
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				f := leaseOf(d.Addr)
				f.IOTimeoutMS = 60_000
				if _, no := s.run(context.Background(), f, "int x;"); no != nil {
					t.Errorf("answer %+v", no)
				}
			})
		}
		wg.Wait()
	})
}

// TestTimeLimit: a compile that does not end is cancelled and run here.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				<-j.Ctx.Done()
				c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
			}
		})
		f := leaseOf(d.Addr)
		f.IOTimeoutMS = 60_000
		began := time.Now()
		_, no := s.run(context.Background(), f, "int x;")
		if no == nil || no.Reason != "timeout" || !no.Trouble || no.Code != reason.ExitTimeout {
			t.Errorf("answer %+v, want timeout with exit code 118", no)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v, want 1m0s", took)
		}
		synctest.Wait()
		if h := s.m.Status().Hosts[0]; h.State != "up" || h.Running != 0 || h.Credits != d.Jobs {
			t.Errorf("host %+v afterwards, want it idle with its credits", h)
		}
	})
}

// TestCancelBeforeTheJobIsSent: while a long source is still being sent, nothing runs yet, so the credit
// comes back.
func TestCancelBeforeTheJobIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
		s.m.farm.Want(s.m.lists.Of(d.Addr).Sched, nil)
		synctest.Wait()
		list := s.m.lists.Of(d.Addr).Sched
		g, err := s.m.farm.Pick(t.Context(), farm.NewRequest(99, scheduler.Job{Hosts: list, Toolchain: daemontest.Toolchain, Tried: make(map[string]bool)}))
		if err != nil {
			t.Fatal(err)
		}
		l := s.m.farm.Link(d.Addr)
		fl := &link.Flight{ID: 99, Credit: g.Credit, Length: 4 << 20}
		src, err := s.m.memory.PD().RegMR(make([]byte, fl.Length), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		fl.Source = src
		l.Start(fl)
		l.Cancel(fl)
		<-fl.Done()
		if !errors.Is(fl.Err, link.ErrCancelled) {
			t.Errorf("flight ended with %v, want cancelled", fl.Err)
		}
		if err := src.Dereg(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		conn := d.Conns[0]
		if len(conn.Returns) != 1 || d.JobsSeen() != 0 {
			t.Errorf("%d credits returned and %d jobs, want 1 and none", len(conn.Returns), d.JobsSeen())
		}
	})
}

func TestCloseWithJobsUnderWay(t *testing.T) {
	r := newRig(t, nil)
	begun, ended := make(chan struct{}), make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			close(begun)
			<-j.Ctx.Done()
			close(ended)
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
		}
	})
	w := r.dial()
	defer w.close()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.send(w.preprocess("int x;"))
	<-begun
	r.close()
	<-ended
	if _, _, err := w.conn.Recv(); err == nil {
		t.Error("the wrapper was answered")
	}
}
