package connmgr

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// forbidding are the ways to say that a command may not be compiled here.
var forbidding = map[string]func(o *Options, f *ipc.Lease){
	"RDISTCC_FALLBACK=0":  func(_ *Options, f *ipc.Lease) { f.Fallback = ipc.FallbackForbidden },
	"RDISTCC_MODE=remote": func(_ *Options, f *ipc.Lease) { f.Mode, f.Fallback = ipc.ModeRemote, ipc.FallbackForbidden },
	"fallback.allow":      func(o *Options, _ *ipc.Lease) { o.NoFallback = true },
}

// TestPatienceIsOneRule: a command that may not be compiled here waits a minute for a host and no longer,
// whatever forbids it.
func TestPatienceIsOneRule(t *testing.T) {
	const addr = "10.0.0.1:7632"
	for name, forbid := range forbidding {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := leaseOf(addr)
				s := newSimulated(t, func(o *Options) { forbid(o, f) })
				began := time.Now()
				_, no := s.run(context.Background(), f, "int x;")
				if no == nil || no.Reason != "host-lost" || no.Code != reason.ExitConnect {
					t.Errorf("answer %+v, want host-lost", no)
				}
				if d := time.Since(began); d != time.Minute {
					t.Errorf("it failed after %v, want a minute", d)
				}
				time.AfterFunc(30*time.Second, func() { daemontest.Start(t, s.far, addr, nil) })
				began = time.Now()
				res, no := s.run(context.Background(), f, "int x;")
				if d := time.Since(began); no != nil || res.Host != addr || d < 30*time.Second || d > 31*time.Second {
					t.Errorf("answer %+v %+v after %v, want a result of the host once it is there", res, no, d)
				}
			})
		})
	}
}

// TestFallbackMayBeAllowed: what a command says about fallback overrides the settings.
func TestFallbackMayBeAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.NoFallback = true })
		f := leaseOf("10.0.0.1:7632")
		f.Fallback = ipc.FallbackAllowed
		began := time.Now()
		if _, no := s.run(context.Background(), f, "int x;"); no == nil || no.Reason != "host-lost" {
			t.Errorf("answer %+v, want host-lost", no)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("a job that may run here waited %v", d)
		}
	})
}

// TestRestartedDaemonHasTheNextJob: a job without another host tries a lost one again at once, even if the
// job may run here. So a restarted daemon gets it.
func TestRestartedDaemonHasTheNextJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Backoff, o.BackoffMax = time.Second, time.Hour })
		up := daemontest.Start(t, s.far, "10.0.0.2:7632", func(d *daemontest.Daemon) { d.IDs = nil }) // so that pauses may be long
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		f := leaseOf(d.Addr + " " + up.Addr)
		strict := leaseOf(f.Hosts)
		strict.Fallback = ipc.FallbackForbidden
		for i := range 8 {
			s.m.farm.Want(s.m.lists.Of(f.Hosts).Sched, nil)
			synctest.Wait()
			d.Stop()
			time.Sleep(time.Duration(i) * time.Second) // in which attempts fail
			d = daemontest.Start(t, s.far, d.Addr, nil)
			time.Sleep(time.Second) // jobs trigger attempts no more often
			lease := f
			if i%2 == 1 {
				lease = strict
			}
			began := time.Now()
			if res, no := s.run(context.Background(), lease, "int x;"); no != nil || res.Host != d.Addr {
				t.Errorf("answer %+v %+v, want a result of the host that is back", res, no)
			}
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the job waited %v", took)
			}
		}
	})
}

// TestNoBackoff: with a back-off of 0, a lost host is tried again at once, however recent the last attempt.
func TestNoBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Backoff, o.BackoffMax = time.Hour, time.Hour })
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		f := leaseOf(d.Addr)
		f.BackoffMS = ipc.NoBackoff
		d.Stop()
		if _, no := s.run(context.Background(), f, "int x;"); no == nil || no.Reason != "host-lost" {
			t.Errorf("answer %+v, want host-lost", no)
		}
		d = daemontest.Start(t, s.far, d.Addr, nil)
		time.Sleep(time.Microsecond)
		if res, no := s.run(context.Background(), f, "int x;"); no != nil || res.Host != d.Addr {
			t.Errorf("answer %+v %+v, want a result of the host that is back", res, no)
		}
	})
}

// TestJobsOfABuildAreNoStorm: jobs that come at the same time share one attempt to reach a lost host.
func TestJobsOfABuildAreNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dials := 0
		s := newSimulated(t, nil)
		s.net.Dialled = func(string) {
			mu.Lock()
			defer mu.Unlock()
			dials++
		}
		f := leaseOf("10.0.0.1:7632")
		_, _ = s.run(context.Background(), f, "int x;") // the first connection is worth more
		time.Sleep(10 * time.Second)
		mu.Lock()
		before := dials
		mu.Unlock()
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				if _, no := s.run(context.Background(), f, "int x;"); no == nil || no.Reason != "host-lost" {
					t.Errorf("answer %+v, want host-lost", no)
				}
			})
		}
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		if n := dials - before; n > 2 {
			t.Errorf("%d attempts for jobs that came together", n)
		}
	})
}

// TestThirdHostIsTried: a job whose first two hosts are lost goes to a third one that works, but not to every
// host of a farm.
func TestThirdHostIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		hosts, sent := "", 0
		var mu sync.Mutex
		for _, addr := range []string{"10.0.0.1:7632", "10.0.0.2:7632", "10.0.0.3:7632", "10.0.0.4:7632", "10.0.0.5:7632"} {
			daemontest.Start(t, s.far, addr, func(d *daemontest.Daemon) {
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					mu.Lock()
					sent++
					last := sent > 2 && string(j.Text) != "poison"
					mu.Unlock()
					if last {
						c.Finish(j, daemontest.Compiled(j))
						return
					}
					c.QP.Abort()
				}
			})
			hosts += addr + " "
		}
		s.m.farm.Want(s.m.lists.Of(hosts).Sched, nil)
		synctest.Wait()
		if res, no := s.run(context.Background(), leaseOf(hosts), "int x;"); no != nil || res.Attempts != 3 {
			t.Errorf("answer %+v %+v, want a result of the third host", res, no)
		}
		time.Sleep(time.Minute)
		sent = 0
		if _, no := s.run(context.Background(), leaseOf(hosts), "poison"); no == nil || no.Reason != "host-lost" || sent != mostLosses {
			t.Errorf("answer %+v after %d hosts, want host-lost after %d", no, sent, mostLosses)
		}
	})
}

// TestLostHostHasTheJobAgain: if all hosts of a job that may run here were lost, the job goes once more to
// one that serves again. A job that brings down each host is not sent on and on.
func TestLostHostHasTheJobAgain(t *testing.T) {
	for name, c := range map[string]struct {
		hosts []string
		lives time.Duration // how long a host with the job lives
		sent  int           // how often a job that brings down every host is sent
	}{
		"alone":       {[]string{"10.0.0.1:7632"}, 0, 2},
		"two":         {[]string{"10.0.0.1:7632", "10.0.0.2:7632"}, time.Second, mostLosses},
		"two at once": {[]string{"10.0.0.1:7632", "10.0.0.2:7632"}, 0, mostLosses},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, nil)
				var mu sync.Mutex
				sent, had := 0, make(map[string]bool)
				for _, addr := range c.hosts {
					daemontest.Start(t, s.far, addr, func(d *daemontest.Daemon) {
						d.OnJob = func(conn *daemontest.Conn, j *daemontest.Job) {
							mu.Lock()
							sent++
							falls := !had[addr] || string(j.Text) == "poison"
							had[addr] = true
							mu.Unlock()
							if falls {
								time.Sleep(c.lives)
								conn.QP.Abort()
								return
							}
							conn.Finish(j, daemontest.Compiled(j))
						}
					})
				}
				f := leaseOf(strings.Join(c.hosts, " "))
				s.m.farm.Want(s.m.lists.Of(f.Hosts).Sched, nil)
				time.Sleep(time.Minute)
				res, no := s.run(context.Background(), f, "int x;")
				if no != nil || int(res.Attempts) != len(c.hosts)+1 {
					t.Errorf("answer %+v %+v, want a result of a host that is back", res, no)
				}
				time.Sleep(time.Minute)
				sent = 0
				if _, no := s.run(context.Background(), f, "poison"); no == nil || no.Reason != "host-lost" || sent != c.sent {
					t.Errorf("answer %+v after the job was sent %d times, want host-lost after %d", no, sent, c.sent)
				}
			})
		})
	}
}

// TestStartingHostIsWaitedFor: a command that may not be compiled here waits for a daemon that has accepted
// the connection and sends its Welcome later.
func TestStartingHostIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		ready := time.Now().Add(10 * time.Second)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnHello = func(c *daemontest.Conn) {
				if time.Now().After(ready) {
					c.Welcome()
				}
			}
		})
		f := leaseOf(d.Addr)
		began := time.Now()
		if _, no := s.run(context.Background(), f, "int x;"); no == nil || no.Detail != d.Addr+" is starting: it has not said yet what it can do" {
			t.Errorf("answer %+v, want that the host is starting", no)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a job that may run here waited %v", took)
		}
		f.Fallback = ipc.FallbackForbidden
		if res, no := s.run(context.Background(), f, "int x;"); no != nil || res.Host != d.Addr {
			t.Errorf("answer %+v %+v, want a result of the host", res, no)
		}
	})
}
