// Package daemontest provides a fake daemon for tests of programs that connect to one. It speaks the daemon's
// side of the job protocol over any device, runs no compiler, and lets a test decide the outcome of each job.
package daemontest

import (
	"context"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Toolchain is the toolchain of the tests.
var Toolchain = unit.ToolchainID{1, 2, 3}

// Daemon is a fake daemon. Its fields, set in Start, decide how it behaves.
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
	Zstd       bool // accepts packed sources, and packs results if it may
	SlotSize   int
	Fetches    int           // the longest source that it fetches, in bytes; 0 = it fetches none
	Eager      int           // the longest source that a message may carry, in bytes; 0 = none
	Store      int           // the contents that it keeps, in bytes; 0 = none
	Bare       bool          // its credits have no slots
	Board      func() []byte // returns the content of its load board; nil = it has none
	IDs        []unit.ToolchainID
	Reject     *job.Rejection
	Deaf       func() bool                            // it answers no heartbeats now; may be nil
	OnBeat     func()                                 // called for each Heartbeat; may be nil
	BoardGuard sync.Locker                            // guards what Board returns
	Shelf      []byte                                 // memory of the results that it keeps (pkg/resultcache/shelf); nil = none
	ShelfGuard sync.Locker                            // guards Shelf
	Group      string                                 // whose shelf it is; empty: its tenant's alone
	Mute       bool                                   // does not acknowledge heartbeats and demands
	Speaks     uint16                                 // the only protocol version that it accepts; 0 = any that job.Speaks
	Version    uint16                                 // protocol version in the greeting; 0 = job.Version
	Key        *psk.Key                               // requires a proof of this key, and gives one
	Bend       func(private []byte) []byte            // changes the private data of the MPA Reply
	OnHello    func(c *Conn)                          // default: Conn.Welcome
	OnSource   func(m *job.Job)                       // called before a source is fetched; may be nil
	OnJob      func(c *Conn, j *Job)                  // called in its own goroutine; default: finishes with Compiled
	OnKeep     func(m *job.Keep, b []byte) (ack bool) // called with what the window has; default: a test fails
	OnCancel   func(c *Conn, m *job.Cancel)           // default: acknowledges, and ends the contexts of the jobs

	Mu      sync.Mutex // guards the rest
	Conns   []*Conn
	stopped bool
	seen    int // jobs received
	WG      sync.WaitGroup
}

// Job is one received job.
type Job struct {
	job.Job
	body   *job.Body
	Text   []byte
	moved  uint64          // bytes received, compressed or not
	Ctx    context.Context // ends when the job is cancelled or answered, or the connection ends
	cancel context.CancelFunc
}

// Start starts a daemon on dev at addr, such as "127.0.0.1:0". change, if not nil, sets fields before it
// listens. The daemon is stopped at the end of the test.
func Start(t testing.TB, dev iwarp.Device, addr string, change func(d *Daemon)) *Daemon {
	t.Helper()
	d := &Daemon{t: t, dev: dev, Jobs: 2, SlotSize: 1 << 20, IDs: []unit.ToolchainID{Toolchain}}
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

// Kill resets all connections. The daemon still accepts new ones.
func (d *Daemon) Kill() {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, c := range d.Conns {
		c.QP.Abort()
	}
}

// JobsSeen returns how many jobs the daemon has received.
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
		g, err := job.ParseGreeting(r.Info().PrivateData)
		if err != nil || !job.Speaks(g.Version) {
			d.t.Errorf("greeting %x: %v", r.Info().PrivateData, err)
		}
		if d.Speaks != 0 && g.Version != d.Speaks {
			_ = r.Reject((&job.Rejection{Version: d.Speaks, Cause: job.CauseVersion, Detail: "another version"}).Append(nil))
			continue
		}
		c := &Conn{d: d, Boot: g.Boot, version: g.Version, Slots: make(map[uint64]slot), running: make(map[uint64]*Job),
			offers: make(map[uint64]iwarp.MR), read: make(chan iwarp.Status, 1),
			recv: make([]byte, recvs*d.recvLen())}
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

// recvLen returns how many bytes each receive has.
func (d *Daemon) recvLen() int { return job.MaxMessage + d.Eager }

// SinkSTag returns the STag that the job's Result must invalidate.
func (j *Job) SinkSTag() iwarp.STag { return iwarp.STag(j.Sink.STag) }
