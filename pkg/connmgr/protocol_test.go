package connmgr

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestDaemonBreaksTheProtocol: a message that a daemon must not send ends its connection and has no other
// effect.
func TestDaemonBreaksTheProtocol(t *testing.T) {
	raw := func(b ...byte) func(c *daemontest.Conn) {
		return func(c *daemontest.Conn) {
			_ = c.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: b})
		}
	}
	say := func(m job.Message) func(c *daemontest.Conn) { return func(c *daemontest.Conn) { c.Send(m, 0) } }
	for name, breach := range map[string]func(c *daemontest.Conn){
		"unknown kind":     raw(200),
		"message cut":      raw(byte(job.KindGrant), 1, 0),
		"manager's own":    say(&job.Hello{Name: "me"}),
		"second Welcome":   say(&job.Welcome{}),
		"Ack of nothing":   say(&job.Ack{Of: job.KindGrant}),
		"Result of no job": say(&job.Result{ID: 12345}),
		"Send too long":    raw(make([]byte, job.MaxMessage+1)...),
		"empty message":    raw(),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			r.warm(d.Addr)
			l := r.link(d.Addr)
			breach(d.Conns[0])
			<-l.Dead()
			if err := l.Err(); err == nil {
				t.Error("the connection ended without a reason")
			}
			// The host is used again over the next connection.
			r.warm(d.Addr)
			r.remote(d.Addr, "int x;")
			r.idle()
		})
	}
}

func TestDaemonOfAnotherVersion(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Version = job.Version + 1 })
	no := r.goLocal(d.Addr, "int x;")
	if no.Reason != "host-lost" || !strings.Contains(no.Detail, "version") {
		t.Errorf("answer %+v, want host-lost that names the version", no)
	}
	for _, version := range []uint16{job.Oldest - 1, job.Version + 1} {
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Speaks = version })
		if no := r.goLocal(d.Addr, "int x;"); no.Reason != "denied" || !strings.Contains(no.Detail, "rejected (version): another version") {
			t.Errorf("version %d: %+v", version, no)
		}
	}
}

// TestDaemonsOfThisAndThePreviousVersion: a daemon that speaks one of the two gets jobs in that.
func TestDaemonsOfThisAndThePreviousVersion(t *testing.T) {
	for version, program := range map[uint16]string{job.Version: "1.4", job.Oldest: ""} {
		r := newRig(t, func(o *Options) { o.Version = "1.4" })
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Speaks = version })
		r.warm(d.Addr)
		r.remote(d.Addr, "int x;")
		r.idle()
		d.Mu.Lock()
		if n := len(d.Conns); n != 1 || d.Conns[0].Program != program {
			t.Errorf("version %d: %d connections, program %q", version, n, d.Conns[0].Program)
		}
		d.Mu.Unlock()
	}
}

// TestDaemonWithoutWelcome: a daemon that accepts the connection and sends nothing counts as starting, not as
// lost, although an attempt ends after DialTimeout. It does not count as starting forever.
func TestDaemonWithoutWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.OnHello = func(*daemontest.Conn) {} })
		s.m.farm.Want(s.m.lists.Of(d.Addr).Sched, nil)
		for range 3 {
			time.Sleep(s.m.o.DialTimeout + time.Millisecond)
			synctest.Wait()
			if h := s.m.Status().Hosts[0]; h.State != "starting" || h.PauseMS != 0 || h.Error != "" {
				t.Errorf("host %+v, want it starting", h)
			}
		}
		time.Sleep(s.m.live().Patience - 2*s.m.o.DialTimeout)
		synctest.Wait()
		for range 2 {
			if h := s.m.Status().Hosts[0]; h.State == "starting" || !strings.Contains(h.Error, "does not answer") {
				t.Errorf("host %+v, want it lost as it does not answer", h)
			}
			time.Sleep(2 * s.m.o.DialTimeout)
			synctest.Wait()
		}
	})
}

// TestToolchainsInParts: a host gets no job before all parts of its list of toolchains have arrived.
func TestToolchainsInParts(t *testing.T) {
	r := newRig(t, nil)
	rest := make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnHello = func(c *daemontest.Conn) {
			c.Send(&job.Welcome{Jobs: 1, MaxBody: 1 << 20, MaxResult: 1 << 20, Toolchains: 2}, 0)
			c.Grant(1)
			c.Send(&job.Toolchains{Seq: 1, First: 0, Total: 2, IDs: []unit.ToolchainID{{9}}}, 0)
			d.WG.Go(func() {
				<-rest
				c.Send(&job.Toolchains{Seq: 2, First: 1, Total: 2, IDs: []unit.ToolchainID{daemontest.Toolchain}}, 0)
			})
		}
	})
	r.m.farm.Want(r.m.lists.Of(d.Addr).Sched, nil)
	eventually(t, "the first part", func() bool {
		d.Mu.Lock()
		defer d.Mu.Unlock()
		if len(d.Conns) == 0 {
			return false
		}
		c := d.Conns[0]
		c.Mu.Lock()
		defer c.Mu.Unlock()
		return len(c.Acks) == 2 // Grant, Toolchains
	})
	if h := r.m.Status().Hosts[0]; h.State != "starting" {
		t.Errorf("host is %s with half of its list, want starting", h.State)
	}
	close(rest)
	r.remote(d.Addr, "int x;")
}

// TestIdentifyingHost: a host that is still finding out which compilers it has is up. Jobs wait for it for a
// while, and no build is told that it lacks a compiler before that is known.
func TestIdentifyingHost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ConnectGrace = time.Minute })
	more := make(chan []unit.ToolchainID)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnHello = func(c *daemontest.Conn) {
			c.Send(&job.Welcome{Jobs: 1, MaxBody: 1 << 20, MaxResult: 1 << 20, Identifying: true}, 0)
			c.Send(&job.Toolchains{Seq: 1, More: true}, 0)
			c.Grant(1)
			d.WG.Go(func() {
				for ids := range more {
					c.Send(&job.Toolchains{Seq: uint32(len(ids) + 1), Total: uint16(len(ids)), IDs: ids, More: ids[len(ids)-1] != daemontest.Toolchain}, 0)
				}
			})
		}
	})
	r.m.farm.Want(r.m.lists.Of(d.Addr).Sched, nil)
	status := func() report.HostStatus { return r.m.Status().Hosts[0] }
	eventually(t, "the host", func() bool { return status().State == "up" })
	if h := status(); !h.Identifying || !h.Usable() || !strings.Contains(h.Note(), "finding out") {
		t.Errorf("host %+v, note %q, usable: %v; want an identifying one", h, h.Note(), h.Usable())
	}
	done := make(chan *ipc.Result)
	go func() { done <- r.remote(d.Addr, "int x;") }()
	eventually(t, "the job to wait", func() bool { return r.m.Status().Waiting.Credit == 1 })
	more <- []unit.ToolchainID{{9}}
	eventually(t, "the first compiler", func() bool { return status().Tools == 1 })
	if h := status(); !h.Identifying {
		t.Errorf("host %+v, want it identifying", h)
	}
	more <- []unit.ToolchainID{{9}, daemontest.Toolchain}
	if res := <-done; res.Host != d.Addr {
		t.Errorf("result %+v", res)
	}
	if h := status(); h.Identifying || h.Tools != 2 {
		t.Errorf("host %+v, want two compilers", h)
	}
	close(more)
	r.idle()
}

// TestIdentifyingForLong: a job that may run here does not wait forever for such a host, and its message says
// why. What the host lacks is told once it is known.
func TestIdentifyingForLong(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ConnectGrace = time.Millisecond })
	known := make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnHello = func(c *daemontest.Conn) {
			c.Send(&job.Welcome{Jobs: 1, MaxBody: 1 << 20, MaxResult: 1 << 20, Identifying: true}, 0)
			c.Grant(1)
			d.WG.Go(func() {
				<-known
				c.Send(&job.Toolchains{Seq: 1}, 0)
			})
		}
	})
	r.m.farm.Want(r.m.lists.Of(d.Addr).Sched, nil)
	status := func() report.HostStatus { return r.m.Status().Hosts[0] }
	eventually(t, "the host", func() bool { return status().State == "up" })
	time.Sleep(2 * time.Millisecond) // the grace is over
	for _, told := range []bool{true, false} {
		if no := r.goLocal(d.Addr, "int x;"); no.Reason != "refused:toolchain" || !strings.Contains(no.Detail, d.Addr+" is starting: it has not found this compiler yet") || no.Trouble != told {
			t.Errorf("answer %+v, want one that says that the host is starting, told: %v", no, told)
		}
	}
	close(known)
	eventually(t, "the end of that", func() bool { return !status().Identifying })
	if no := r.goLocal(d.Addr, "int x;"); no.Reason != "refused:toolchain" || !strings.Contains(no.Detail, "no host has") || !no.Trouble {
		t.Errorf("answer %+v, want one that says what hosts lack", no)
	}
}

// TestTooManyCreditsGoBack: what one connection could never use is returned.
func TestTooManyCreditsGoBack(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.SlotSize = 4 << 10
		d.OnHello = func(c *daemontest.Conn) {
			c.Welcome()
			for range link.MaxInFlight / job.MaxCredits {
				c.Grant(job.MaxCredits)
			}
		}
	})
	r.warm(d.Addr)
	eventually(t, "the surplus to come back", func() bool {
		c := d.Conns[0]
		c.Mu.Lock()
		defer c.Mu.Unlock()
		return len(c.Returns) == d.Jobs
	})
	if got := r.m.Status().Hosts[0].Credits; got != link.MaxInFlight {
		t.Errorf("%d credits kept, want %d", got, link.MaxInFlight)
	}
	r.remote(d.Addr, "int x;")
}

func TestFailuresOfAHost(t *testing.T) {
	for cause, want := range map[job.Cause]string{
		job.CauseDisk: "host-lost", job.CauseInternal: "host-lost", job.CauseTimeout: "timeout", job.CauseTooBig: "too-big",
		job.CauseUndeclared: "not-reproducible:outputs", job.CauseLimit: "host-lost",
	} {
		t.Run(cause.String(), func(t *testing.T) {
			r := newRig(t, nil)
			d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: cause}})
				}
			})
			no := r.goLocal(d.Addr, "int x;")
			if no.Reason != want || no.Trouble != (want != "too-big" && cause != job.CauseUndeclared) || d.JobsSeen() != 1 {
				t.Errorf("answer %+v after %d attempts, want %s after one", no, d.JobsSeen(), want)
			}
			r.idle()
		})
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	r.goLocal("", "int x;")
	w := r.dial()
	w.send(&ipc.Local{Version: ipc.Version, Reason: "unknown-option:--secret", Turn: ipc.TurnNone})
	w.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "unknown-option:--secret", Exit: 1})
	w.close()
	w = r.dial()
	w.send(&ipc.Local{Version: ipc.Version, Reason: "made up", Turn: ipc.TurnNone})
	w.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "made up"})
	w.close()
	r.idle()
	eventually(t, "all four to be counted", func() bool { return len(r.m.Status().Recent) == 4 })
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	page := "\n" + rec.Body.String()
	for _, want := range []string{
		`rdistcc_cm_jobs_total{host="",place="local",reason="no-hosts",result="ok"} 1`,
		`rdistcc_cm_jobs_total{host="",place="local",reason="other",result="ok"} 1`,
		`rdistcc_cm_jobs_total{host="",place="local",reason="unknown-option",result="failed"} 1`,
		`rdistcc_cm_jobs_total{host="HOST",place="remote",reason="",result="ok"} 1`,
		`rdistcc_cm_phase_seconds_count{phase="total"} 1`,
		`rdistcc_cm_hosts{state="up"} 1`,
		`rdistcc_cm_hosts{state="down"} 0`,
		`rdistcc_cm_connections{host="HOST"} 1`,
		`rdistcc_cm_credits{host="HOST"} 2`,
		`rdistcc_cm_slots{state="free"} 1`,
		`rdistcc_cm_slots{state="leased"} 0`,
		`rdistcc_cm_fallbacks_total 0`,
		`rdistcc_cm_places{host="HOST"} 2`,
		`rdistcc_cm_running{host="HOST"} 0`,
		`rdistcc_cm_drained 0`,
		`rdistcc_cm_unpredicted_total 1`,
		`rdistcc_cm_retries_total 0`,
		`rdistcc_cm_hedges_total{result="won"} 0`,
	} {
		want = strings.ReplaceAll(want, "HOST", d.Addr)
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, secret := range []string{"made up", "secret", "x.c", "/usr/bin/gcc"} {
		if strings.Contains(page, secret) {
			t.Errorf("%q became a label", secret)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestControl(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Control = map[string]func() (any, error){"colour": func() (any, error) { return "green", nil }}
	})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	ask := func(hosts string, words ...string) (uint8, string) {
		t.Helper()
		w := r.dial()
		defer w.close()
		w.send(&ipc.Control{Version: ipc.Version, Args: words, Hosts: hosts})
		m, ok := w.recv().(*ipc.Reply)
		if !ok {
			t.Fatalf("%v: no Reply", words)
		}
		return m.Code, string(m.Data)
	}
	code, data := ask("", "status")
	var s report.Status
	if err := json.Unmarshal([]byte(data), &s); code != 0 || err != nil || len(s.Hosts) != 1 || s.Hosts[0].State != "up" || s.PID != os.Getpid() {
		t.Errorf("status: %d %s (%v)", code, data, err)
	}
	var hosts []report.HostStatus
	code, data = ask(d.Addr+" nobody:1", "hosts")
	if err := json.Unmarshal([]byte(data), &hosts); code != 0 || err != nil || len(hosts) != 2 || hosts[1].State != "unused" {
		t.Errorf("hosts: %d %s (%v)", code, data, err)
	}
	if code, data = ask("a@b", "hosts"); code != reason.ExitHostList || !strings.Contains(data, "ssh") {
		t.Errorf("hosts of a bad list: %d %s", code, data)
	}
	if code, data = ask("", "colour"); code != 0 || data != `"green"` {
		t.Errorf("colour: %d %s", code, data)
	}
	if code, data = ask("", "taste"); code != reason.ExitArguments || !strings.Contains(data, "taste") {
		t.Errorf("unknown question: %d %s", code, data)
	}
	if err := r.m.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if code, _ = ask("", "stop"); code != 0 {
		t.Errorf("stop: %d", code)
	}
	if err := <-r.serving; err != nil {
		t.Errorf("Serve: %v", err)
	}
	r.serving <- nil // for close
	if r.m.Ready() == nil {
		t.Error("ready after the end")
	}
}

// TestInheritedSocket: a socket that the service manager opened remains when the manager ends.
func TestInheritedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cm.sock")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	f, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	l, err := socket.Listen("not used", f)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.m.Serve(ctx, l) }()
	own := r.socket
	r.socket = path
	w := r.dial()
	w.send(leaseOf(""))
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "no-hosts" {
		t.Errorf("answer %+v, want no-hosts", no)
	}
	w.close()
	r.socket = own
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if f, err = tcp.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen("", f); err == nil || !strings.Contains(err.Error(), "Unix") {
		t.Errorf("Listen on a TCP socket: %v", err)
	}
}
