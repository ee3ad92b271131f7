package farm

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// rig is a farm, and jobs that go to daemons of the test's.
type rig struct {
	t   testing.TB
	f   *Farm
	far iwarp.Device // the daemons'
	pd  iwarp.PD
	ids atomic.Uint64
}

// newRig starts a farm on devices that it closes; change may be nil.
func newRig(t testing.TB, near, far iwarp.Device, change func(o *Options)) *rig {
	t.Helper()
	r := &rig{t: t, far: far}
	var err error
	if r.pd, err = near.AllocPD(); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Device: near, PD: r.pd, Log: slog.New(slog.DiscardHandler), Name: "test",
		SaveDrained: func([]string) error { return nil },
		Here:        func() scheduler.Load { return scheduler.Load{} },
		Moved:       func(string, uint64, uint64) {}, Board: func(string) {},
		DialTimeout: 4 * time.Second, Heartbeat: time.Second, HeartbeatDead: 5 * time.Second, CancelTimeout: 5 * time.Second,
		Dials: 512, LinksMin: 1, LinksMax: 1, LinksIdle: time.Minute,
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.f = New(ctx, o, Pace{LocalJobs: 1, Patience: time.Minute})
	t.Cleanup(func() {
		cancel()
		r.f.Close()
		if err := r.pd.Dealloc(); err != nil {
			t.Errorf("the farm has left something: %v", err)
		}
		near.Close()
		far.Close()
	})
	return r
}

// newSimulated starts a farm without sockets and in simulated time.
func newSimulated(t testing.TB, change func(o *Options)) (*rig, *daemontest.Network) {
	t.Helper()
	n := daemontest.NewNetwork(t)
	return newRig(t, n.Open(), n.Open(), change), n
}

// list is a host list: one array, by which the farm knows it.
func list(addrs ...string) []scheduler.Host {
	l := make([]scheduler.Host, len(addrs))
	for i, a := range addrs {
		l[i].Addr = a
	}
	return l
}

// run does what a command leads to, on another host where one is lost.
func (r *rig) run(hosts []scheduler.Host, build uint64, text string) {
	body := (&job.Body{Argv0: "gcc", Language: "cpp-output", Name: "x.c", Cwd: "/src", Outputs: []unit.Output{{Name: "x.o"}}}).Append(nil)
	mem := make([]byte, job.TextOffset(len(body)), job.TextOffset(len(body))+len(text))
	copy(mem, body)
	mem = append(mem, text...)
	q := scheduler.Job{Hosts: hosts, Tried: make(map[string]bool), Toolchain: daemontest.Toolchain, Since: time.Now(), Build: build}
	r.f.Want(hosts, nil)
	ctx := context.Background()
	if g, err := r.f.Early(ctx, NewRequest(r.ids.Add(1), q), func() {}); err != nil || g.Decision.Verdict == scheduler.Local {
		r.t.Errorf("%v, %+v: want a host", err, g.Decision)
		return
	}
	r.f.Prepare(hosts, 1)
	r.f.Prepare(hosts, -1)
	q.Size, q.Bytes, q.Tried, q.Since = uint64(len(mem)), uint64(len(mem)), make(map[string]bool), time.Now()
	req := NewRequest(r.ids.Add(1), q)
	req.Races = true
	defer r.f.Leave(req)
	for {
		g, err := r.f.Pick(ctx, req)
		if err != nil || g.Host == nil {
			r.t.Errorf("%v, %+v: want a host", err, g.Decision)
			return
		}
		fl := r.fly(g, len(body), mem)
		if fl == nil || fl.Err != nil {
			r.f.Ended(g, End{Outcome: scheduler.Gone, Report: scheduler.Report{ID: req.ID}})
			r.f.Again(req, g.Host)
			continue
		}
		r.f.Ended(g, End{Outcome: scheduler.OK, Report: scheduler.Report{ID: req.ID, Bytes: fl.Total}})
		return
	}
}

// fly brings a job to the host of g and back; nil: the connection has ended before.
func (r *rig) fly(g Grant, body int, mem []byte) *link.Flight {
	sinkMem := make([]byte, 4<<20)
	source, err := r.pd.RegMR(mem, 0, nil)
	if err != nil {
		r.t.Error(err)
		return nil
	}
	defer func() { _ = source.Dereg() }()
	sink, err := r.pd.RegMR(sinkMem, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: g.Link().QP()})
	if err != nil {
		r.f.Unspent(g)
		return nil
	}
	defer func() { _ = sink.Dereg() }()
	off := job.TextOffset(body)
	fl := &link.Flight{ID: r.ids.Add(1), Credit: g.Credit, Source: source, Sink: sink, Build: g.Req.Job.Build,
		Total: uint64(len(mem)), Length: uint64(len(mem))}
	fl.Msg = job.Append(nil, &job.Job{ID: fl.ID, Credit: g.Credit.ID, Toolchain: daemontest.Toolchain,
		BodyLen: uint32(body), TextOff: uint32(off), TextLen: uint64(len(mem) - off),
		Sink: job.Window{STag: uint32(sink.STag()), TO: sink.Base(), Len: uint64(len(sinkMem))}, Timeout: 300_000, Digest: digest.Sum(mem)})
	g.Link().Start(fl)
	r.f.OnTheWay(g)
	<-fl.Done()
	return fl
}
