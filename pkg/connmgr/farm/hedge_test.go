package farm

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// TestCreditsOfDroppedHedges: two late jobs get one host as their second, but the race of the first is over
// by then. The scheduler must count exactly the credits that exist; with one more it would place a job for
// which there is none.
func TestCreditsOfDroppedHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, good = "10.0.0.1:7632", "10.0.0.2:7632"
		o := Options{Log: slog.New(slog.DiscardHandler), SaveDrained: func([]string) error { return nil }}
		f := New(t.Context(), o, Pace{LocalJobs: 1, Patience: time.Minute})
		defer f.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		now := time.Now()
		list := []scheduler.Host{{Addr: slow}, {Addr: good}}
		f.sched.Ensure(now, list)
		for _, x := range list {
			h := &Host{f: f, Addr: x.Addr, state: Up}
			h.link = &conn{Link: new(link.Link), h: h}
			h.links = []*conn{h.link}
			f.hosts[x.Addr] = h
			f.sched.Up(now, x.Addr, scheduler.Capacity{Jobs: 4, MaxBody: 1 << 20})
			f.sched.Toolchains(x.Addr, unit.ToolchainID{})
			for i := range 4 {
				h.link.addLocked(job.Credit{ID: uint64(i)})
			}
		}
		f.sched.Drain(good, true)
		for id := range uint64(2) {
			r := NewRequest(id, scheduler.Job{Hosts: list, Tried: make(map[string]bool), Since: now,
				Cost: scheduler.Cost{Time: time.Second / 2, Known: true}})
			g, ok := f.tryLocked(now, r)
			if !ok || g.Host == nil || g.Host.Addr != slow {
				t.Fatalf("job %d: %+v, want a Grant of the slow host", id, g.Decision)
			}
			f.racing[id] = r
		}
		f.sched.Drain(good, false)
		f.sched.Drain(slow, true)
		time.Sleep(10 * time.Second) // both are late
		now = time.Now()

		delete(f.racing, 0) // its race has just ended
		before := f.hosts[good].unspentLocked()
		f.hedgesLocked(now)
		unspent, hosted := f.hosts[good].unspentLocked(), f.sched.Snapshot(now)
		i := slices.IndexFunc(hosted, func(h scheduler.Status) bool { return h.Addr == good })
		if unspent != before-1 || hosted[i].Credits != unspent {
			t.Errorf("of %d credits %d are left, and the scheduler knows of %d; want one less, in both", before, unspent, hosted[i].Credits)
		}
	})
}
