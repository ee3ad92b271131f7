package connmgr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// host is a fake daemon with results in its memory.
type host struct {
	*daemontest.Daemon
	*shelf.Shelf
	mem []byte
	mu  sync.Mutex
}

// shelves starts a manager that looks for results on hosts, and the hosts.
func shelves(t *testing.T, n int, change func(o *Options), fake ...func(d *daemontest.Daemon)) (*rig, []*host) {
	r := newRig(t, func(o *Options) {
		o.Heartbeat, o.HeartbeatDead, o.DemandPause = time.Hour, 2*time.Hour, time.Hour
		o.Results = []results.Tier{{Name: resultcache.TierFarm, Read: true}}
		if change != nil {
			change(o)
		}
	})
	var all []*host
	for range n {
		h := &host{}
		const data = 1 << 20
		h.mem = make([]byte, shelf.Size(data))
		var err error
		if h.Shelf, err = shelf.New(h.mem, data, &h.mu); err != nil {
			t.Fatal(err)
		}
		h.Daemon = daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
			d.Shelf, d.ShelfGuard = h.mem, &h.mu
			for _, f := range fake {
				f(d)
			}
		})
		all = append(all, h)
	}
	return r, all
}

// put puts an entry on the shelf and returns its Key.
func (h *host) put(t *testing.T, n byte, object string) resultcache.Key {
	t.Helper()
	key := resultcache.Key{n, 1}
	e := resultcache.Raw{Key: key, Origin: resultcache.Origin{Made: time.Now()}, Files: []resultcache.RawFile{{Len: uint32(len(object))}}, Outputs: []byte(object)}
	front, err := e.AppendFront(nil)
	if err != nil || !h.Put(key, front, e.Outputs) {
		t.Fatal("not put", err)
	}
	return key
}

// patient is a look that is made again if a host was slow, as any is on a busy machine. A build would not wait.
type patient struct{ *shelved.Look }

func (p patient) Get(ctx context.Context, key resultcache.Key, buf []byte) (b []byte, host string, err error) {
	for range 300 {
		if b, host, err = p.Look.Get(ctx, key, buf); !errors.Is(err, shelved.ErrSlow) {
			break
		}
	}
	return b, host, err
}

// look looks for a key on hosts, which all answer.
func (r *rig) look(key resultcache.Key, hosts ...*host) *resultcache.Entry {
	r.t.Helper()
	return r.lookBy(key, func(l *shelved.Look) results.Farm { return patient{l} }, hosts...)
}

// glance looks for a key on hosts once, as a build does.
func (r *rig) glance(key resultcache.Key, hosts ...*host) *resultcache.Entry {
	r.t.Helper()
	return r.lookBy(key, func(l *shelved.Look) results.Farm { return l }, hosts...)
}

func (r *rig) lookBy(key resultcache.Key, by func(*shelved.Look) results.Farm, hosts ...*host) *resultcache.Entry {
	r.t.Helper()
	var list []scheduler.Host
	for _, h := range hosts {
		list = append(list, scheduler.Host{Addr: h.Addr})
	}
	s, _ := shelved.New(r.m.farm, list, 1<<20)
	s.Verify = r.m.o.Verify
	e, tier := r.m.results.Find(r.t.Context(), &results.Look{Key: key, Farm: by(s), Room: func(n int) ([]byte, error) { return make([]byte, n), nil }})
	if (e != nil) != (tier == resultcache.TierFarm) {
		r.t.Errorf("%+v of %q", e, tier)
	}
	return e
}

// connect connects the manager to hosts, and waits until it knows what they have.
func (r *rig) connect(hosts ...*host) {
	r.t.Helper()
	for _, h := range hosts {
		r.remote(h.Addr, "int x;")
		if !r.link(h.Addr).KnowsShelf(r.t.Context()) {
			r.t.Fatal("no shelf")
		}
	}
	r.idle()
}

// counts returns how often a look into the tier ended in each way.
func (r *rig) counts() (hit, miss, wrong float64) {
	c := func(result string) float64 { return r.count("rdistcc_cm_cache_total", result, resultcache.TierFarm) }
	return c(results.Hit), c(results.Miss), c(results.Error)
}

// TestShelfOfAHost: a hit takes two RDMA Reads at the same time and no message, so the daemon's program has nothing
// to do. What is not there takes nothing, and is waited for by nobody.
func TestShelfOfAHost(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	small, big := h.put(t, 1, "object"), h.put(t, 2, strings.Repeat("big object ", 10000))
	r.connect(h)
	qp := r.link(h.Addr).QP()
	before := qp.Stats()
	eventually(t, "quiet", func() bool {
		last := before
		time.Sleep(20 * time.Millisecond)
		before = qp.Stats()
		return before == last
	})
	r.look(resultcache.Key{7}, h) // the head may have to be looked at
	eventually(t, "the head", func() bool {
		last := before
		before = qp.Stats()
		return before == last
	})
	for _, c := range []struct {
		key   resultcache.Key
		want  string
		reads uint64
	}{{small, "object", 2}, {small, "object", 2}, {resultcache.Key{9}, "", 0}, {big, strings.Repeat("big object ", 10000), 3}} {
		e := r.look(c.key, h)
		after := qp.Stats()
		if reads := after.ReadsSent - before.ReadsSent; reads != c.reads && reads != c.reads+1 { // the head, if shelfPause is over
			t.Errorf("%d Reads, want %d", reads, c.reads)
		}
		if after.SendsSent != before.SendsSent || after.WritesSent != before.WritesSent || after.SendsReceived != before.SendsReceived {
			t.Errorf("messages: %+v after %+v", after, before)
		}
		if (e == nil) != (c.want == "") || e != nil && (e.Host != h.Addr || string(e.Files[0].Data) != c.want) {
			t.Errorf("%v: %+v", c.key, e)
		}
		before = after
	}
	if hit, miss, wrong := r.counts(); hit != 3 || miss != 2 || wrong != 0 {
		t.Errorf("%v hits, %v misses, %v errors", hit, miss, wrong)
	}
	// What is put later is found without any message.
	later := h.put(t, 3, "later")
	eventually(t, "the new result", func() bool { e := r.look(later, h); return e != nil && string(e.Files[0].Data) == "later" })
	if after := qp.Stats(); after.SendsSent != before.SendsSent || after.SendsReceived != before.SendsReceived {
		t.Errorf("messages: %+v after %+v", after, before)
	}
}

// TestShelfThatForgets: a result that the host has dropped since is a miss, whatever is in its place.
func TestShelfThatForgets(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	key := h.put(t, 1, "object")
	r.connect(h)
	for i := range 30 {
		h.put(t, byte(10+i), strings.Repeat("x", 100<<10))
	}
	if e := r.look(key, h); e != nil {
		t.Errorf("%+v", e)
	}
	if _, _, wrong := r.counts(); wrong != 0 {
		t.Errorf("%v errors", wrong)
	}
}

// TestDamagedShelf: a result that is damaged although it counts is an error, and not read again. Of a host that has
// served several, nothing is read.
func TestDamagedShelf(t *testing.T) {
	r, hosts := shelves(t, 2, nil)
	h, good := hosts[0], hosts[1]
	var keys []resultcache.Key
	for i := range byte(4) {
		keys = append(keys, h.put(t, i, "object "+strings.Repeat("damaged ", 10)))
	}
	good.put(t, 0, "object")
	r.connect(h, good)
	h.mu.Lock()
	for i := bytes.Index(h.mem, []byte("damaged")); i >= 0; {
		h.mem[i] ^= 1
		next := bytes.Index(h.mem[i+1:], []byte("object "))
		if next < 0 {
			break
		}
		i += 1 + next
	}
	h.mu.Unlock()
	for i := range 3 {
		if e := r.look(keys[i], h); e != nil {
			t.Fatalf("%+v", e)
		}
		if _, _, wrong := r.counts(); wrong != float64(i+1) {
			t.Errorf("%v errors", wrong)
		}
		if e := r.look(keys[i], h); e != nil {
			t.Errorf("%+v", e)
		}
	}
	if e := r.look(keys[0], h, good); e == nil || e.Host != good.Addr {
		t.Errorf("the other host's: %+v", e)
	}
	reads := r.link(h.Addr).QP().Stats().ReadsSent
	r.look(keys[3], h)
	if n := r.link(h.Addr).QP().Stats().ReadsSent; n != reads {
		t.Errorf("%d Reads of a host that has served 3 damaged results", n-reads)
	}
	if s := r.status(h.Addr); s.State != "up" {
		t.Errorf("it is %s: jobs go there as before", s.State)
	}
}

// TestHostsWithAShelfThatLeave: of the hosts that have a result, one that is there is asked; none is a miss. A host in
// quarantine is not asked.
func TestHostsWithAShelfThatLeave(t *testing.T) {
	r, hosts := shelves(t, 3, nil)
	var key resultcache.Key
	for _, h := range hosts {
		key = h.put(t, 1, "object")
	}
	r.connect(hosts...)
	if e := r.look(key, hosts...); e == nil || e.Host != hosts[0].Addr {
		t.Fatalf("%+v", e)
	}
	hosts[0].Stop()
	eventually(t, "the first one to be gone", func() bool { return r.link(hosts[0].Addr) == nil })
	if e := r.look(key, hosts...); e == nil || e.Host != hosts[1].Addr {
		t.Errorf("%+v", e)
	}
	r.m.quarantine(hosts[1].Addr, "a test")
	if e := r.look(key, hosts...); e == nil || e.Host != hosts[2].Addr {
		t.Errorf("%+v", e)
	}
	r.m.farm.ForgetResult(key)
	if e := r.look(key, hosts...); e != nil {
		t.Errorf("%+v", e)
	}
}

// TestShelfThatStalls: a host that does not answer Reads costs a bounded time and some errors. Its memory is not used
// when the answer comes at last.
func TestShelfThatStalls(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	key := h.put(t, 1, "object")
	r.connect(h)
	h.mu.Lock()
	for range 3 {
		if e := r.glance(key, h); e != nil {
			t.Errorf("%+v", e)
		}
	}
	h.mu.Unlock()
	if _, _, wrong := r.counts(); wrong != 3 {
		t.Errorf("%v errors", wrong)
	}
	r.idle() // no memory is registered any more
	eventually(t, "the tier to be asked again", func() bool { return r.look(key, h) != nil })

	h.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, _ := shelved.New(r.m.farm, []scheduler.Host{{Addr: h.Addr}}, 1<<20)
	if _, _, err := s.Get(ctx, key, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a wrapper that has gone: %v", err)
	}
	h.mu.Unlock()
}

// TestShelfOfANewHost: what a host keeps may not be known yet when it is connected. A look is early then, until somebody has
// waited in vain.
func TestShelfOfANewHost(t *testing.T) {
	r, hosts := shelves(t, 2, nil)
	h, good := hosts[0], hosts[1]
	list := []scheduler.Host{{Addr: h.Addr}, {Addr: good.Addr}}
	early := func(want bool) *shelved.Look {
		t.Helper()
		look, early := shelved.New(r.m.farm, list, 1<<20)
		if early != want {
			t.Errorf("early: %v", early)
		}
		return look
	}
	early(true)
	r.connect(good)
	early(false)
	h.mu.Lock() // no answer
	r.m.farm.Want(r.m.lists.Of(h.Addr).Sched, nil)
	eventually(t, "the host", func() bool { return r.link(h.Addr) != nil })
	early(true).Await(t.Context())
	early(false)
	h.mu.Unlock()
	if !r.link(h.Addr).KnowsShelf(t.Context()) {
		t.Error("no shelf")
	}
	early(false)
}

// TestReadsOfAShelfAreNoSignOfLife: a daemon whose program hangs loses its connection, although its RDMA stack answers
// Reads, however many and however long these are.
func TestReadsOfAShelfAreNoSignOfLife(t *testing.T) {
	r, hosts := shelves(t, 1, func(o *Options) { o.Heartbeat, o.HeartbeatDead = 20*time.Millisecond, 200*time.Millisecond },
		func(d *daemontest.Daemon) { d.Mute = true })
	h := hosts[0]
	key := h.put(t, 1, strings.Repeat("object", 10000))
	r.connect(h)
	l := r.link(h.Addr)
	eventually(t, "the end of the connection", func() bool {
		r.look(key, h)
		return l.Ended() != nil
	})
	if err := l.Ended(); !strings.Contains(err.Error(), "silent") {
		t.Error(err)
	}
}

// TestLyingShelf: a host whose shelf is none, or changes as none does, loses its connection; a head that is torn changes
// nothing.
func TestLyingShelf(t *testing.T) {
	r, hosts := shelves(t, 1, nil)
	h := hosts[0]
	key := h.put(t, 1, "object")
	r.connect(h)
	h.mu.Lock()
	h.mem[20] ^= 1
	h.mu.Unlock()
	if e := r.look(key, h); e != nil {
		t.Errorf("behind a torn head: %+v", e)
	}
	h.mu.Lock()
	h.mem[20] ^= 1
	h.mu.Unlock()
	if e := r.look(key, h); e == nil {
		t.Error("not found once the head is whole again")
	}
	l := r.link(h.Addr)
	h.mu.Lock()
	head := shelf.Head{Last: 0, Records: 256, At: binary.LittleEndian.Uint64(h.mem[32:]), Data: 1 << 20}
	copy(h.mem, head.Append(nil))
	h.mu.Unlock()
	eventually(t, "the end of the connection", func() bool {
		r.look(key, h)
		return l.Ended() != nil
	})
	if err := l.Ended(); !errors.Is(err, shelf.ErrMalformed) {
		t.Error(err)
	}
	h.mu.Lock() // for the connection that follows
	clear(h.mem[:shelf.HeadLen])
	h.mu.Unlock()
}

// TestCheckOfKeptResults: a result that somebody else has kept is judged as a host's answer would be.
func TestCheckOfKeptResults(t *testing.T) {
	r := newRig(t, nil)
	c := &client{m: r.m}
	tc, err := identifyTest(t.Context(), "/usr/bin/gcc", toolchain.Env{})
	if err != nil {
		t.Fatal(err)
	}
	c.compiler = r.m.compilers.Of(tc, "/usr/bin/gcc")
	if c.sink, err = r.m.memory.TrySink(0); err != nil || c.sink == nil {
		t.Fatal(err)
	}
	defer c.sink.Drop()
	k := &known.Job{Body: &job.Body{Args: []string{"-c", "x.c"}, Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}, {Kind: unit.OutputStackUsage, Name: "x.su", Optional: true}}}}
	now := time.Now()
	for what, x := range map[string]struct {
		e    resultcache.Entry
		want error
	}{
		"good":             {resultcache.Entry{Files: []resultcache.File{{Data: []byte("object")}}}, nil},
		"failed":           {resultcache.Entry{Exit: 1, Files: []resultcache.File{{Data: []byte("object")}}}, resultcache.ErrDamaged},
		"no object":        {resultcache.Entry{Files: []resultcache.File{{Index: 1, Data: []byte("text\n")}}}, resultcache.ErrDamaged},
		"a file too many":  {resultcache.Entry{Files: []resultcache.File{{Data: []byte("object")}, {Index: 2}}}, resultcache.ErrDamaged},
		"not text":         {resultcache.Entry{Files: []resultcache.File{{Data: []byte("object")}, {Index: 1, Data: []byte("\x7fELF\x00")}}}, resultcache.ErrDamaged},
		"escape sequences": {resultcache.Entry{Stderr: []byte("\x1b]0;title\a"), Files: []resultcache.File{{Data: []byte("object")}}}, resultcache.ErrMiss},
		"the time":         {resultcache.Entry{Files: []resultcache.File{{Data: []byte("object of " + now.Format("15:04:05"))}}}, resultcache.ErrMiss},
	} {
		x.e.Made, x.e.Wall = now, time.Second
		mem := c.sink.Bytes()
		for _, part := range x.e.Parts() {
			n := copy(mem, *part)
			*part, mem = mem[:n:n], mem[n:]
		}
		if err := c.check(k.Body, k.Modules, &x.e); !errors.Is(err, x.want) || x.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
}
