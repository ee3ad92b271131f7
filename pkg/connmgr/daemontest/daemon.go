// Package daemontest is a daemon for tests of what speaks to one: it speaks the daemon's side of the job
// protocol over any device, runs nothing, and lets a test decide what each job comes to.
package daemontest

import (
	"context"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Toolchain is the toolchain of the tests.
var Toolchain = job.ToolchainID{1, 2, 3}

// Daemon speaks the daemon's side of the job protocol and lets a test decide
// what each job comes to.
type Daemon struct {
	t    testing.TB
	dev  iwarp.Device
	pd   iwarp.PD
	lis  iwarp.Listener
	Addr string

	// set in Start
	Jobs       int
	Tree       bool
	Sandbox    uint16
	Zstd       bool // takes packed sources, and packs results where it may
	SlotSize   int
	Fetches    int           // bytes of a source that it fetches; 0 = it offers and takes no windows
	Board      func() []byte // what its load board holds; nil = it has none
	IDs        []job.ToolchainID
	Reject     *job.Rejection
	OnBeat     func()                       // when it is asked for a sign of life
	BoardGuard sync.Locker                  // of what Board returns
	Mute       bool                         // takes no receive in: says nothing after the Welcome
	Version    uint16                       // of the greeting, 0 = ours
	Key        *psk.Key                     // wants a proof, and gives one
	Bend       func(private []byte) []byte  // of the Reply's private data
	OnHello    func(c *Conn)                // default: Welcome, Toolchains, Grant
	OnJob      func(c *Conn, j *Job)        // in a goroutine of its own; default: Compiled
	OnCancel   func(c *Conn, m *job.Cancel) // default: acknowledged, and the jobs' ctx ends

	Mu      sync.Mutex // guards the rest
	Conns   []*Conn
	stopped bool
	seen    int // jobs
	WG      sync.WaitGroup
}

// Job is one job that arrived.
type Job struct {
	job.Job
	body   *job.Body
	Text   []byte
	moved  uint64          // bytes that travelled
	Ctx    context.Context // ends when it is cancelled, or the connection ends
	cancel context.CancelFunc
}

// Start starts a daemon on dev at addr ("127.0.0.1:0"); change may be nil.
func Start(t testing.TB, dev iwarp.Device, addr string, change func(d *Daemon)) *Daemon {
	t.Helper()
	d := &Daemon{t: t, dev: dev, Jobs: 2, SlotSize: 1 << 20, IDs: []job.ToolchainID{Toolchain}}
	d.OnJob = func(c *Conn, j *Job) { c.Finish(j, Compiled(j)) }
	if change != nil {
		change(d)
	}
	var err error
	if d.pd, err = dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if d.lis, err = dev.Listen(context.Background(), addr, nil); err != nil {
		t.Fatal(err)
	}
	d.Addr = d.lis.Addr().String()
	d.WG.Go(d.accept)
	t.Cleanup(d.Stop)
	return d
}

// Stop ends the daemon and all its connections, as a kill would.
func (d *Daemon) Stop() {
	d.lis.Close()
	d.Mu.Lock()
	d.stopped = true
	d.Mu.Unlock()
	d.Kill()
	d.WG.Wait()
}

// Kill resets all connections; new ones are taken.
func (d *Daemon) Kill() {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, c := range d.Conns {
		c.QP.Abort()
	}
}

// JobsSeen counts the jobs that arrived.
func (d *Daemon) JobsSeen() int {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return d.seen
}

// Held returns how many results the daemon still holds for managers.
func (d *Daemon) Held() (n int) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, c := range d.Conns {
		c.Mu.Lock()
		n += len(c.offers)
		c.Mu.Unlock()
	}
	return n
}

func (d *Daemon) accept() {
	for {
		r, err := d.lis.Accept(context.Background())
		if err != nil {
			return
		}
		if d.Reject != nil {
			_ = r.Reject(d.Reject.Append(nil))
			continue
		}
		if g, err := job.ParseGreeting(r.Info().PrivateData); err != nil || g.Version != job.Version {
			d.t.Errorf("greeting %x: %v", r.Info().PrivateData, err)
		}
		c := &Conn{d: d, Slots: make(map[uint64]slot), running: make(map[uint64]*Job),
			offers: make(map[uint64]iwarp.MR), read: make(chan iwarp.Status, 1),
			recv: make([]byte, recvs*job.MaxMessage)}
		if err := c.open(r); err != nil {
			d.t.Logf("fake daemon: %v", err)
			continue
		}
		d.Mu.Lock()
		d.Conns = append(d.Conns, c)
		if d.stopped {
			c.QP.Abort()
		}
		d.Mu.Unlock()
		d.WG.Go(c.serve)
	}
}

// SinkSTag returns the STag that the Result has to invalidate.
func (j *Job) SinkSTag() iwarp.STag { return iwarp.STag(j.Sink.STag) }
