package connmgr

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// succeed starts a manager that takes over the socket from the rig's manager.
func (r *rig) succeed() *rig {
	r.t.Helper()
	t, err := socket.TakeOver(r.socket, true)
	if err != nil || t == nil {
		r.t.Fatalf("nothing taken over: %v", err)
	}
	next := newRig(r.t, nil)
	own := next.socket
	next.socket = r.socket
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- next.m.Serve(ctx, t.Listener) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			r.t.Errorf("successor's Serve: %v", err)
		}
		next.socket = own
	})
	if err := t.Done(); err != nil {
		r.t.Errorf("Done: %v", err)
	}
	return next
}

// TestReplacedInMidBuild: commands under way are finished by the old manager, new ones are served by the new
// one, and the socket is never without a manager.
func TestReplacedInMidBuild(t *testing.T) {
	var replaced atomic.Bool
	r := newRig(t, func(o *Options) { o.Replaced = func() { replaced.Store(true) } })
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			if strings.Contains(string(j.Text), "slow") {
				started <- struct{}{}
				<-goOn
			}
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		r.remote(d.Addr, "int slow;")
	}()
	<-started
	leased := r.dial() // it has its slot from the old manager
	defer leased.close()
	if !leased.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	stop, calling := make(chan struct{}), sync.WaitGroup{}
	calls := 0
	calling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if res := r.remote(d.Addr, "int x;"); res.Host == "" {
					return
				}
				calls++
			}
		}
	})
	next := r.succeed()
	if !replaced.Load() {
		t.Error("nobody was told to give up what else the manager has")
	}
	eventually(t, "commands with the new manager", func() bool {
		r.remote(d.Addr, "int y;")
		return len(next.m.Status().Recent) > 0
	})
	close(stop)
	calling.Wait()
	t.Logf("%d compiles meanwhile", calls)
	leased.send(leased.preprocess("int z;"))
	if _, ok := leased.recv().(*ipc.Result); !ok {
		t.Error("a command with a slot was cut off")
	}
	leased.send(&ipc.Finish{Where: ipc.WhereRemote, Closed: true})
	close(goOn)
	<-slow
	if err := <-r.serving; err != nil {
		t.Errorf("Serve of the old one: %v", err)
	}
	r.serving <- nil // for close
	if err := r.m.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := socket.Listen(r.socket, nil); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("a third manager: %v, want ErrInUse", err)
	}
}

// TestSuccessorThatDoesNotServe: the old manager serves until the new one does.
func TestSuccessorThatDoesNotServe(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	for range 3 {
		got, err := socket.TakeOver(r.socket, true)
		if err != nil {
			t.Fatal(err)
		}
		got.Conn.Close() // as if it had been killed
		got.HandOn()
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
		r.remote(d.Addr, "int x;")
	}
	if err := r.m.Ready(); err != nil {
		t.Error(err)
	}
}

// TestSuccessorThatComesLate: a successor for which the old manager no longer waits steps back and leaves it
// the socket.
func TestSuccessorThatComesLate(t *testing.T) {
	defer func(d time.Duration) { readyWithin = d }(readyWithin)
	readyWithin = 10 * time.Millisecond
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	late, err := socket.TakeOver(r.socket, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := late.Conn.Recv(); !errors.Is(err, ipc.ErrClosed) {
		t.Fatalf("the old manager waits on: %v", err)
	}
	next := newRig(t, nil)
	served := make(chan error, 1)
	go func() { served <- next.m.Serve(context.Background(), late.Listener) }()
	if err := late.Done(); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("Done: %v, want ErrInUse", err)
	}
	next.m.StepBack(late.Listener)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	r.remote(d.Addr, "int x;")
	if err := r.m.Ready(); err != nil {
		t.Error(err)
	}
	next.close()
	d.Stop()
	r.close() // nothing reads readyWithin after this
}

func TestWhoIsNotReplaced(t *testing.T) {
	r := newRig(t, nil)
	if _, err := socket.TakeOver(r.socket, false); !errors.Is(err, socket.ErrInUse) || !strings.Contains(err.Error(), "speaks version") {
		t.Errorf("by one of the same version: %v", err)
	}
	if got, err := socket.TakeOver(filepath.Join(t.TempDir(), "s", "cm.sock"), true); got != nil || err != nil {
		t.Errorf("nobody: %v, %v", got, err)
	}
	w := r.dial()
	defer w.close()
	w.send(goAheadFrame{})
	if _, _, err := w.conn.Recv(); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("a word to go ahead with nothing: %v", err)
	}

	// The service manager's socket is not passed on.
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
	l, err := socket.Listen("", f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- r.m.Serve(ctx, l) }()
	if _, err := socket.TakeOver(path, true); !errors.Is(err, socket.ErrInUse) || !strings.Contains(err.Error(), "systemctl") {
		t.Errorf("one of the service manager's: %v", err)
	}
	cancel()
	<-served
}

type goAheadFrame struct{}

func (goAheadFrame) Append(b []byte) []byte { return ipc.AppendBare(b, ipc.KindGo) }
