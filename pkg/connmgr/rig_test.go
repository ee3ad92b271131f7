package connmgr

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// rig is a manager that serves a socket, with one device for itself and one for the fake daemons, on loopback.
type rig struct {
	t       testing.TB
	m       *Manager
	dev     iwarp.Device // the manager's
	far     iwarp.Device // the daemons'
	reg     *prometheus.Registry
	socket  string
	serving chan error
	cancel  context.CancelFunc
	closed  bool
	before  int // goroutines
}

// fakeObject returns what the compiler here makes: an object of no known format, like those of the fake hosts.
func fakeObject(*compilers.Compiler, string, []string) []byte { return []byte("object") }

func identifyTest(_ context.Context, path string, _ toolchain.Env) (toolchain.Toolchain, error) {
	if strings.HasPrefix(path, "/unknown") {
		return toolchain.Toolchain{}, toolchain.ErrUnknown
	}
	return toolchain.Toolchain{ID: daemontest.Toolchain, Path: path, Family: "gcc", Major: 12}, nil
}

func openDevice(t testing.TB) iwarp.Device {
	t.Helper()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// newRig starts a manager; change may be nil.
func newRig(t testing.TB, change func(o *Options)) *rig {
	t.Helper()
	return newRigOn(t, openDevice(t), openDevice(t), change)
}

// newRigOn is like newRig, on the given devices, which the rig closes.
func newRigOn(t testing.TB, near, far iwarp.Device, change func(o *Options)) *rig {
	t.Helper()
	r := &rig{t: t, before: runtime.NumGoroutine(), dev: near, far: far, reg: prometheus.NewRegistry(), serving: make(chan error, 1)}
	o := Options{
		Device: r.dev, Registry: r.reg, Identify: identifyTest, Object: fakeObject, Name: "test",
		Slots: 8, SlotSize: 4 << 20, SinkSize: 4 << 20, Prefault: 64 << 10,
		ConnectGrace:  time.Minute, // not a second: beside other work a host takes longer
		Preprocessors: 8, LocalJobs: 8, Memory: func() machine.Memory { return machine.Memory{} },
		Log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.m, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.socket = filepath.Join(t.TempDir(), "s", "cm.sock")
	l, err := socket.Listen(r.socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.serving <- r.m.Serve(ctx, l) }()
	t.Cleanup(r.close)
	return r
}

// close ends the manager and checks that it left nothing behind.
func (r *rig) close() {
	if r.closed {
		return
	}
	r.closed = true
	r.cancel()
	if err := <-r.serving; err != nil {
		r.t.Errorf("Serve: %v", err)
	}
	if err := r.m.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	if s := r.dev.Stats(); s.QPs != 0 || s.MRs != 0 {
		r.t.Errorf("manager left %d QPs and %d memory regions", s.QPs, s.MRs)
	}
	if err := r.dev.Close(); err != nil {
		r.t.Errorf("close device: %v", err)
	}
	if err := r.far.Close(); err != nil {
		r.t.Errorf("close device: %v", err)
	}
	if s := sources(r.m); s.Total != 0 {
		r.t.Errorf("%d sources left", s.Total)
	}
	// Daemons that the test started after the rig have ended before it.
	eventually(r.t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= r.before })
	if _, err := os.Stat(r.socket); !errors.Is(err, os.ErrNotExist) {
		r.t.Errorf("socket left: %v", err)
	}
}

// sources and sinks return the statistics of a manager's slots and sinks.
func sources(m *Manager) shm.Stats { s, _ := m.memory.Stats(); return s }
func sinks(m *Manager) shm.Stats   { _, s := m.memory.Stats(); return s }

// idle waits until no command is under way and checks that all turns, slots and memory regions were given
// back.
func (r *rig) idle() {
	r.t.Helper()
	eventually(r.t, "an idle manager", func() bool {
		s := r.m.Status()
		return s.Running == 0 && s.Slots.Leased == 0 && s.Waiting == report.WaitingStatus{}
	})
	held, _ := r.m.turns.cpp.Load()
	local, _ := r.m.turns.local.Load()
	if held != 0 || local != 0 {
		r.t.Errorf("%d preprocessors' and %d local turns are held", held, local)
	}
	for _, h := range r.m.Status().Hosts {
		if h.Running != 0 {
			r.t.Errorf("%s still runs %d jobs", h.Addr, h.Running)
		}
	}
	// Messages that carry sources have one. Each connection has a region for its receives and, if the daemon has a load board, another one. Regions
	// of a lost connection may not have gone yet, and one that is being dialled already has its own.
	eventually(r.t, "the memory regions to go", func() bool {
		connected, dialled := 0, 0
		for _, h := range r.m.Status().Hosts {
			switch h.State {
			case "up", "draining":
				connected++
			case "connecting", "starting":
				dialled++
			}
		}
		n := r.dev.Stats().MRs - 1
		return connected <= n && n <= 2*(connected+dialled)
	})
}

// eventually polls until ok returns true. It is for conditions that no event reports.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 24000 { // two minutes, and more beside other work
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Helper()
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// wrapper plays the wrapper of one command.
type wrapper struct {
	t      testing.TB
	conn   *ipc.Conn
	leased ipc.Leased
	source *os.File
	sink   *os.File
}

// dial connects a wrapper.
func (r *rig) dial() *wrapper {
	r.t.Helper()
	conn, err := ipc.Dial(r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	return &wrapper{t: r.t, conn: conn}
}

func (w *wrapper) close() {
	w.conn.Close()
	if w.source != nil {
		w.source.Close()
		w.sink.Close()
	}
}

func (w *wrapper) send(m interface{ Append([]byte) []byte }) {
	w.t.Helper()
	if err := w.conn.Send(m.Append(nil)); err != nil {
		w.t.Errorf("send %T: %v", m, err)
	}
}

// recv waits for a Leased, Result or GoLocal.
func (w *wrapper) recv() any {
	w.t.Helper()
	kind, fields, err := w.conn.Recv()
	if err != nil {
		w.t.Errorf("recv: %v", err)
		return err
	}
	switch kind {
	case ipc.KindLeased:
		if err := w.leased.Parse(fields); err != nil {
			w.t.Error(err)
		}
		fds, err := w.conn.TakeFDs(2)
		if err != nil {
			w.t.Error(err)
			return err
		}
		w.source, w.sink = os.NewFile(uintptr(fds[0]), "source"), os.NewFile(uintptr(fds[1]), "sink")
		return &w.leased
	case ipc.KindResult:
		m := new(ipc.Result)
		if err := m.Parse(fields); err != nil {
			w.t.Error(err)
		}
		if m.Moved {
			fds, err := w.conn.TakeFDs(1)
			if err != nil {
				w.t.Error(err)
				return err
			}
			w.sink.Close()
			w.sink = os.NewFile(uintptr(fds[0]), "second sink")
		}
		return m
	case ipc.KindGoLocal:
		m := new(ipc.GoLocal)
		if err := m.Parse(fields); err != nil {
			w.t.Error(err)
		}
		return m
	case ipc.KindReply:
		m := new(ipc.Reply)
		if err := m.Parse(fields); err != nil {
			w.t.Error(err)
		}
		return m
	}
	return kind
}

func leaseOf(hosts string) *ipc.Lease {
	return &ipc.Lease{Version: ipc.Version, Hosts: hosts, Compiler: "/usr/bin/gcc", Source: "x.c", Output: "x.o", Cwd: "/src"}
}

// lease asks for a slot and reports whether it got one; otherwise the test fails.
func (w *wrapper) lease(f *ipc.Lease) bool {
	w.t.Helper()
	w.send(f)
	got := w.recv()
	if _, ok := got.(*ipc.Leased); !ok {
		w.t.Errorf("Lease answered by %T %+v, want Leased", got, got)
		return false
	}
	return true
}

// preprocess writes arguments and text into the slot as a wrapper and its
// preprocessor do.
func (w *wrapper) preprocess(text string) *ipc.Submit {
	w.t.Helper()
	b := job.Body{Argv0: "gcc", Args: []string{"-O2"}, Language: "cpp-output", Name: "x.c", Cwd: "/src",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}}
	enc := b.Append(nil)
	off := job.TextOffset(len(enc))
	if _, err := w.source.Write(enc); err != nil {
		w.t.Error(err)
	}
	if _, err := w.source.Seek(int64(off), 0); err != nil {
		w.t.Error(err)
	}
	if _, err := w.source.Write([]byte(text)); err != nil {
		w.t.Error(err)
	}
	return &ipc.Submit{BodyLen: uint32(len(enc)), TextOff: uint32(off), TextLen: uint64(len(text)), PreprocessUS: 1000}
}

// run runs a whole command and returns the answer to Submit and, for a result, the object.
func (w *wrapper) run(f *ipc.Lease, text string) (any, string) {
	w.t.Helper()
	w.send(f)
	got := w.recv()
	if _, ok := got.(*ipc.Leased); !ok {
		return got, ""
	}
	w.send(w.preprocess(text))
	got = w.recv()
	r, ok := got.(*ipc.Result)
	if !ok {
		return got, ""
	}
	if len(r.Files) == 0 {
		return got, ""
	}
	b := make([]byte, r.Files[0].Len)
	if _, err := w.sink.ReadAt(b, int64(r.Files[0].Off)); err != nil {
		w.t.Error(err)
	}
	return got, string(b)
}

// remote runs a whole command that must be compiled on a host.
func (r *rig) remote(hosts, text string) *ipc.Result {
	r.t.Helper()
	w := r.dial()
	defer w.close()
	got, object := w.run(leaseOf(hosts), text)
	res, ok := got.(*ipc.Result)
	if !ok {
		r.t.Errorf("compile on %s: %T %+v, want a result", hosts, got, got)
		return new(ipc.Result)
	}
	if want := "object of x.c: " + text; object != want {
		r.t.Errorf("object %.80q, want %.80q", object, want)
	}
	w.send(&ipc.Finish{Where: ipc.WhereRemote, TotalUS: 5000, PreprocessUS: 1000, Closed: true})
	return res
}

// local runs a whole command that the manager must send back, and returns why.
func (r *rig) goLocal(hosts, text string) *ipc.GoLocal {
	r.t.Helper()
	w := r.dial()
	defer w.close()
	got, _ := w.run(leaseOf(hosts), text)
	no, ok := got.(*ipc.GoLocal)
	if !ok {
		r.t.Fatalf("compile on %s: %T %+v, want GoLocal", hosts, got, got)
	}
	w.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: no.Reason, TotalUS: 5000, Closed: true})
	return no
}

// descriptors returns the number of this process's open files.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		t.Fatal(err)
	}
	return len(d)
}
