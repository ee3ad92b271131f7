package connmgr

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// another is the manager for which jobs are under way in these tests.
var another = shelf.MakerOf([16]byte{0xaa, 0xbb, 0xcc, 0xdd, 0xee})

// others returns a wait for a key on hosts, which lasts until something happens.
func (r *rig) others(key resultcache.Key, hosts ...*host) *shelved.Others {
	o := &shelved.Others{Farm: r.m.farm, Keys: []resultcache.Key{key}, Most: 1 << 20, Near: time.Hour, Patience: func(time.Time, *shelved.UnderWay) time.Duration { return time.Hour }}
	for _, h := range hosts {
		o.List = append(o.List, scheduler.Host{Addr: h.Addr})
	}
	return o
}

// begin marks a job on the host, and waits until the manager knows it.
func (r *rig) begin(h *host, key resultcache.Key, maker uint32) (at int) {
	r.t.Helper()
	at = h.Begin(key, shelf.Mark{Maker: maker, Expect: time.Second})
	l := r.link(h.Addr)
	eventually(r.t, "the mark to be known", func() bool {
		<-l.Look(time.Now())
		_, ok := l.UnderWay(key)
		return ok
	})
	return at
}

// quiet waits until nothing is under way on a host's link, and returns its figures.
func (r *rig) quiet(h *host) (st iwarp.QPStats) {
	r.t.Helper()
	qp := r.link(h.Addr).QP()
	eventually(r.t, "quiet", func() bool {
		last := qp.Stats()
		time.Sleep(20 * time.Millisecond)
		st = qp.Stats()
		return st == last
	})
	return st
}

// mostLooks is how many looks at the head there can be in a time, besides those that somebody waits for.
func mostLooks(d time.Duration) uint64 { return 1 + uint64(d/(200*time.Millisecond)) }

// TestOthersAlone: as long as there are no jobs of other managers, nothing is asked and nobody waits, whatever jobs of
// this one there are.
func TestOthersAlone(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	r.connect(h)
	h.Mu.Lock()
	own := shelf.MakerOf(h.Conns[0].Boot)
	h.Mu.Unlock()
	h.Begin(resultcache.Key{1}, shelf.Mark{Maker: own})
	l := r.link(h.Addr)
	<-l.Look(time.Now())
	before, began := r.quiet(h), time.Now()
	for n := range byte(10) {
		if end := r.others(resultcache.Key{n}, h).Wait(t.Context()); end != shelved.Nobody {
			t.Errorf("%q", end)
		}
	}
	if after := l.QP().Stats(); after.ReadsSent > before.ReadsSent+mostLooks(time.Since(began)) || after.SendsSent != before.SendsSent {
		t.Errorf("%+v after %+v", after, before)
	}
	if l.Shared(time.Now()) {
		t.Error("the host counts as one where others have jobs")
	}
}

// TestOthersResult: all that wait for a job of another manager get its result, and no message is sent. However many
// wait, the host's memory is read as for one.
func TestOthersResult(t *testing.T) {
	r, hosts := shelves(t, 2, nil)
	h := hosts[1]
	r.connect(hosts...)
	key := resultcache.Key{1, 1}
	at := r.begin(h, key, another)
	l, before := r.link(h.Addr), r.quiet(h)
	var waits sync.WaitGroup
	ends := make(chan shelved.End, 50)
	h.mu.Lock() // the host does not answer Reads
	for range cap(ends) {
		waits.Go(func() { ends <- r.others(key, hosts...).Wait(t.Context()) })
	}
	eventually(t, "a Read", func() bool { return l.QP().Stats().ReadsSent > before.ReadsSent })
	time.Sleep(20 * time.Millisecond)
	if n := l.QP().Stats().ReadsSent - before.ReadsSent; n > 1 {
		t.Errorf("%d Reads at a time for %d waits", n, cap(ends))
	}
	h.mu.Unlock()
	h.put(t, 1, "object")
	h.End(at)
	waits.Wait()
	for range cap(ends) {
		if end := <-ends; end != shelved.Made {
			t.Errorf("%q", end)
		}
	}
	if after := l.QP().Stats(); after.SendsSent != before.SendsSent || after.SendsReceived != before.SendsReceived {
		t.Errorf("messages: %+v after %+v", after, before)
	}
	if e := r.look(key, hosts...); e == nil || e.Host != h.Addr || string(e.Files[0].Data) != "object" {
		t.Errorf("%+v", e)
	}
	list := []scheduler.Host{{Addr: h.Addr}}
	s, _ := shelved.New(r.m.farm, list, 1<<20)
	e, _ := r.m.results.Find(t.Context(), &results.Look{Key: key, Farm: s, Joined: true, Room: func(n int) ([]byte, error) { return make([]byte, n), nil }})
	if n := r.count("rdistcc_cm_cache_total", results.Joined, resultcache.TierFarm); e == nil || n != 1 {
		t.Errorf("%+v, %v joined", e, n)
	}
}

// TestOthersNews: where other managers have jobs, what they have begun or made just now is known before a job is
// compiled. That takes no more than the round trips to the hosts that are near.
func TestOthersNews(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	r.connect(h)
	r.begin(h, resultcache.Key{7}, another)
	for n := range byte(5) {
		key := h.put(t, 10+n, "object")
		if end := r.others(key, h).Wait(t.Context()); end != shelved.Made {
			t.Errorf("a result: %q", end)
		}
		o := r.others(h.put(t, 20+n, strings.Repeat("too long ", 10000)), h)
		if o.Most = 1000; o.Wait(t.Context()) != shelved.Nobody {
			t.Error("a result that is too long is waited for")
		}
		key = resultcache.Key{100 + n}
		at := h.Begin(key, shelf.Mark{Maker: another})
		o = r.others(key, h)
		seen := false
		o.Patience = func(time.Time, *shelved.UnderWay) time.Duration { seen = true; return 0 }
		if end := o.Wait(t.Context()); end != shelved.Late || !seen {
			t.Errorf("a job: %q, %v", end, seen)
		}
		h.End(at)
	}
	l := r.link(h.Addr)
	before, began := r.quiet(h).ReadsSent, time.Now()
	for n := range byte(10) {
		o := r.others(resultcache.Key{n, 9}, h)
		o.Near = -1
		if end := o.Wait(t.Context()); end != shelved.Nobody {
			t.Errorf("%q", end)
		}
	}
	if n := l.QP().Stats().ReadsSent - before; n > mostLooks(time.Since(began)) {
		t.Errorf("%d Reads of a host that is too far away", n)
	}
}

// TestOthersWithoutResult: a wait ends at once when there will be no result: its job has ended without one, its host is
// gone, drained or in quarantine, the wrapper is gone, or it lasts too long, also if the host answers no more.
func TestOthersWithoutResult(t *testing.T) {
	key := resultcache.Key{1, 1}
	for what, c := range map[string]struct {
		want   shelved.End
		happen func(r *rig, h *host, at int, cancel func())
	}{
		"ended without": {shelved.Lost, func(_ *rig, h *host, at int, _ func()) { h.End(at) }},
		"host gone":     {shelved.Lost, func(_ *rig, h *host, _ int, _ func()) { h.Stop() }},
		"quarantine":    {shelved.Lost, func(r *rig, h *host, _ int, _ func()) { r.m.quarantine(h.Addr, "a test") }},
		"wrapper gone":  {shelved.Lost, func(_ *rig, _ *host, _ int, cancel func()) { cancel() }},
	} {
		t.Run(what, func(t *testing.T) {
			r, hosts := shelves(t, 1, nil)
			h := hosts[0]
			r.connect(h)
			at := r.begin(h, key, another)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := r.others(key, h)
			waits := make(chan struct{}, 1)
			o.Patience = func(time.Time, *shelved.UnderWay) time.Duration {
				select {
				case waits <- struct{}{}:
				default:
				}
				return time.Hour
			}
			end := make(chan shelved.End)
			go func() { end <- o.Wait(ctx) }()
			<-waits
			c.happen(r, h, at, cancel)
			if got := <-end; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("stalled", func(t *testing.T) {
		r, hosts := shelves(t, 1, nil)
		h := hosts[0]
		r.connect(h)
		r.begin(h, key, another)
		o := r.others(key, h)
		o.Near = -1 // otherwise it waits for news first
		first := true
		o.Patience = func(time.Time, *shelved.UnderWay) time.Duration {
			if first {
				first = false
				return time.Millisecond
			}
			return 0
		}
		h.mu.Lock()
		end := o.Wait(t.Context())
		h.mu.Unlock()
		if end != shelved.Late {
			t.Errorf("%q", end)
		}
	})
}

// TestPatience: a wait is never expected to lose against a compile elsewhere, and is bounded in any case.
func TestPatience(t *testing.T) {
	const s = time.Second
	for what, c := range map[string]struct {
		p       farm.Prospect
		since   time.Duration
		running bool
		want    time.Duration // 0: none
	}{
		"just begun: it is done before another one would be": {farm.Prospect{Length: 10 * s, Free: true, Anew: 11 * s}, 0, true, 13 * s},
		"another host is much faster":                        {farm.Prospect{Length: 10 * s, Free: true, Anew: 4 * s}, 0, true, 0},
		"another host is much faster, but it is nearly done": {farm.Prospect{Length: 10 * s, Free: true, Anew: 4 * s}, 7 * s, true, 6 * s},
		"a little late": {farm.Prospect{Length: 10 * s, Free: true, Anew: 11 * s}, 12 * s, true, s},
		"so late that it is better done elsewhere":               {farm.Prospect{Length: s, Free: true, Anew: s}, 5 * s / 2, true, 0},
		"it waits for a place, and another host has one":         {farm.Prospect{Length: 10 * s, There: 20 * s, Free: true, Anew: 11 * s}, s, false, 0},
		"it waits for a place where a new one would too":         {farm.Prospect{Length: 10 * s, There: 11 * s, Free: true, Anew: 11 * s}, s, false, 12 * s},
		"it has waited for its place as long as a new one would": {farm.Prospect{Length: 10 * s, There: 20 * s, Free: true, Anew: 11 * s}, 8 * s, false, 5 * s},
		"it waits for a place, and no host has one":              {farm.Prospect{Length: 10 * s}, 2 * s, false, 11 * s},
		"no host has a place, but it lasts too long":             {farm.Prospect{Length: 10 * s}, 14 * s, true, 0},
		"a short one": {farm.Prospect{Length: s / 10}, 0, true, 31 * s / 10},
	} {
		got := patience(&c.p, c.since, c.running)
		if got != c.want && (c.want > 0 || got > 0) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
		if got > c.p.Length+overMost {
			t.Errorf("%s: %v is without bounds", what, got)
		}
	}
}

// TestOthersInVain: a mark of a job that never ends costs a bounded time, and the host's program nothing. A result that
// comes at last is there within a look.
func TestOthersInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Results = []results.Tier{{Name: resultcache.TierFarm, Read: true}} })
		h := &host{mem: make([]byte, shelf.Size(1<<20))}
		var err error
		if h.Shelf, err = shelf.New(h.mem, 1<<20, &h.mu); err != nil {
			t.Fatal(err)
		}
		key := resultcache.Key{1, 1}
		h.Begin(key, shelf.Mark{Maker: another, Expect: time.Hour, Running: true})
		h.Daemon = daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.Shelf, d.ShelfGuard = h.mem, &h.mu })
		list := s.m.lists.Of(h.Addr).Sched
		s.m.farm.Want(list, nil)
		synctest.Wait()
		l := s.m.farm.Link(h.Addr)
		if l == nil || !l.KnowsShelf(t.Context()) {
			t.Fatal("not connected")
		}
		p := farm.Prospect{Length: 2 * time.Second}
		o := &shelved.Others{Farm: s.m.farm, List: list, Keys: []resultcache.Key{key}, Most: 1 << 20, Near: time.Second,
			Patience: func(now time.Time, u *shelved.UnderWay) time.Duration {
				return patience(&p, now.Sub(u.Since), u.Running)
			}}
		before, began := l.QP().Stats(), time.Now()
		if end := o.Wait(t.Context()); end != shelved.Late {
			t.Errorf("%q", end)
		}
		after, took := l.QP().Stats(), time.Since(began)
		if took < 4900*time.Millisecond || took > 5100*time.Millisecond { // it was first seen a little earlier
			t.Errorf("it has waited %v for a job of %v", took, p.Length)
		}
		if n := after.ReadsSent - before.ReadsSent; n < 100 || n > 510 {
			t.Errorf("%d Reads in %v", n, took)
		}

		key = resultcache.Key{2, 1}
		at := h.Begin(key, shelf.Mark{Maker: another})
		o.Keys[0] = key
		time.AfterFunc(1500*time.Millisecond, func() {
			h.put(t, 2, "object")
			h.End(at)
		})
		began = time.Now()
		if end := o.Wait(t.Context()); end != shelved.Made || !o.Waited {
			t.Errorf("%q", end)
		}
		if took := time.Since(began); took < 1500*time.Millisecond || took > 1520*time.Millisecond {
			t.Errorf("a result of 1.5 s is there after %v", took)
		}
	})
}
