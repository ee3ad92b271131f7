package connmgr

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// boards is the memory of a load board and its guard.
type boards struct {
	mem  []byte
	lock chan struct{} // holds one token: the region's guard
}

func (b *boards) Lock()   { <-b.lock }
func (b *boards) Unlock() { b.lock <- struct{}{} }

func newBoards() *boards {
	b := &boards{mem: make([]byte, job.BoardLen), lock: make(chan struct{}, 1)}
	b.lock <- struct{}{}
	return b
}

func (b *boards) set(x *job.Board) {
	b.Lock()
	defer b.Unlock()
	copy(b.mem, x.Append(nil))
}

// status returns what the manager says of a host.
func (r *rig) status(addr string) report.HostStatus {
	r.t.Helper()
	for _, h := range r.m.Status().Hosts {
		if h.Addr == addr {
			return h
		}
	}
	return report.HostStatus{}
}

// TestViews: while jobs want a host, the manager reads its board and so learns of other managers' jobs,
// without involving the daemon's program. A torn board changes nothing; an invalid one ends the connection.
func TestViews(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Heartbeat, o.HeartbeatDead = 20*time.Millisecond, 30*time.Second })
	b := newBoards()
	b.set(&job.Board{Seq: 1, Load: job.Load{Jobs: 4}})
	var beats atomic.Int64
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Board, d.BoardGuard = func() []byte { return b.mem }, b
		d.OnBeat = func() { beats.Add(1) }
	})
	r.remote(d.Addr, "int x;")
	b.set(&job.Board{Seq: 2, Load: job.Load{Jobs: 4, Running: 3, Queued: 2}, Pressure: job.Pressure{CPU: 700}})
	eventually(t, "the new load", func() bool {
		s := r.status(d.Addr)
		return s.Pressure != nil && s.Pressure.CPU == 700 // the load itself comes with heartbeats too
	})
	if got := r.count("rdistcc_cm_board_reads_total", "ok"); got == 0 {
		t.Error("no board was read")
	}
	// Reads are no sign of life, so heartbeats are sent too.
	eventually(t, "heartbeats beside the Reads", func() bool { return beats.Load() > 1 })

	b.Lock()
	b.mem[16]++
	b.Unlock()
	eventually(t, "torn boards", func() bool { return r.count("rdistcc_cm_board_reads_total", "torn") > 1 })
	if s := r.status(d.Addr); s.State != "up" {
		t.Errorf("a torn board: %+v", s)
	}
	b.Lock()
	copy(b.mem, badBoard())
	b.Unlock()
	eventually(t, "the end of a daemon that lies", func() bool { return r.status(d.Addr).State != "up" })
}

// badBoard returns a board with a correct checksum and an invalid draining flag of 2.
func badBoard() []byte {
	b := (&job.Board{Seq: 3}).Append(nil)
	b[24] = 2
	h := uint64(14695981039346656037)
	for _, c := range b[:job.BoardLen-16] {
		h = (h ^ uint64(c)) * 1099511628211
	}
	binary.LittleEndian.PutUint64(b[job.BoardLen-16:], h)
	return b
}

// TestViewIsRenewedForAChoice: for a lease with two hosts, the manager reads the boards of hosts with stale
// views, but only one read at a time for each. It reads none for a lease with a single host.
func TestViewIsRenewedForAChoice(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Heartbeat, o.HeartbeatDead = time.Hour, 2*time.Hour
		o.DemandPause = time.Hour // no Demand, whose Ack would bring a view too
	})
	var all []*daemontest.Daemon
	var list string
	for range 2 {
		b := newBoards()
		b.set(&job.Board{Seq: 1, Load: job.Load{Jobs: 4, Running: 1}})
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Board, d.BoardGuard = func() []byte { return b.mem }, b })
		all = append(all, d)
		list += d.Addr + " "
	}
	r.warm(list)
	age := func() { time.Sleep(farm.ViewFresh) }
	reads := func() (n float64) { return r.count("rdistcc_cm_board_reads_total", "ok") }
	age()
	r.remote(all[0].Addr, "int x;") // a single host: there is nothing to choose
	if n := reads(); n != 0 {
		t.Errorf("%v boards read for one host", n)
	}
	age()
	r.remote(list, "int x;")
	eventually(t, "two boards", func() bool { return reads() == 2 })
	r.remote(list, "int x;") // the views are fresh
	if n := reads(); n != 2 {
		t.Errorf("%v boards read, want 2: the views were new", n)
	}
	for _, d := range all {
		s := r.status(d.Addr)
		if s.LoadAgeMS > 30000 || s.LoadFrom == link.FromBoard && s.Load.Running != 1 || s.LoadFrom != link.FromBoard && s.LoadFrom != link.FromResult {
			t.Errorf("%+v", s)
		}
	}
	r.given()
}
