package regcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/lab/regcache"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// fakePD registers nothing, and knows what is registered.
type fakePD struct {
	iwarp.PD
	mu   sync.Mutex
	live map[*fakeMR]bool
	made int
	fail error
	keep error         // of Dereg
	gate chan struct{} // RegMR waits for it, if it is not nil
}

type fakeMR struct {
	iwarp.MR
	pd     *fakePD
	buf    []byte
	access iwarp.Access
}

func (p *fakePD) RegMR(buf []byte, a iwarp.Access, _ *iwarp.MROptions) (iwarp.MR, error) {
	if p.gate != nil {
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return nil, p.fail
	}
	p.made++
	m := &fakeMR{pd: p, buf: buf, access: a}
	p.live[m] = true
	return m, nil
}

func (m *fakeMR) Dereg() error {
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if !m.pd.live[m] {
		return errors.New("deregistered twice")
	}
	if m.pd.keep != nil {
		return m.pd.keep
	}
	delete(m.pd.live, m)
	return nil
}

func (m *fakeMR) Base() uint64     { return 1000 }
func (m *fakeMR) STag() iwarp.STag { return 7 }

func open(t *testing.T, o regcache.Options) (*regcache.Cache, *fakePD) {
	t.Helper()
	p := &fakePD{live: make(map[*fakeMR]bool)}
	c, err := regcache.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

func get(t *testing.T, c *regcache.Cache, buf []byte, a iwarp.Access) *regcache.Ref {
	t.Helper()
	r, err := c.Get(buf, a)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func put(t *testing.T, r *regcache.Ref) {
	t.Helper()
	if err := r.Put(); err != nil {
		t.Error(err)
	}
}

// TestHits: what is covered is found, rights included, and remote rights never reach beyond what was asked.
func TestHits(t *testing.T) {
	const lw, rw = iwarp.LocalWrite, iwarp.LocalWrite | iwarp.RemoteWrite
	buf := make([]byte, 1000)
	for _, x := range []struct {
		name           string
		first, second  iwarp.Access
		lo1, hi1       int
		lo2, hi2       int
		hits, regions  int
		offsetOfSecond uint64
	}{
		{"the same", lw, lw, 0, 100, 0, 100, 1, 1, 1000},
		{"a part", lw, lw, 0, 100, 20, 90, 1, 1, 1020},
		{"less rights", lw, 0, 0, 100, 20, 90, 1, 1, 1020},
		{"more rights", 0, lw, 0, 100, 0, 100, 0, 2, 1000},
		{"a part of what a peer may write to, for us", rw, lw, 0, 100, 20, 90, 1, 1, 1020},
		{"a part of what a peer may write to, for a peer", rw, rw, 0, 100, 20, 90, 0, 2, 1000},
		{"the same for a peer", rw, rw, 0, 100, 0, 100, 1, 1, 1000},
		{"overlapping for a peer", rw, rw, 0, 100, 50, 150, 0, 2, 1000},
		{"overlapping: one for both", lw, lw, 0, 100, 50, 150, 0, 1, 1050},
		{"overlapping from below", lw, lw, 50, 150, 0, 100, 0, 1, 1000},
		{"around it", lw, lw, 50, 60, 0, 100, 0, 1, 1000},
		{"adjacent", lw, lw, 0, 100, 100, 200, 0, 2, 1000},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, p := open(t, regcache.Options{})
			put(t, get(t, c, buf[x.lo1:x.hi1], x.first))
			r := get(t, c, buf[x.lo2:x.hi2], x.second)
			if sge := r.SGE(); sge.Addr != x.offsetOfSecond || int(sge.Length) != x.hi2-x.lo2 || sge.LKey != 7 {
				t.Errorf("%+v", sge)
			}
			put(t, r)
			put(t, r) // once more does nothing
			s := c.Stats()
			if int(s.Hits) != x.hits || s.Entries != x.regions || len(p.live) != x.regions || s.Used != 0 {
				t.Errorf("%+v, %d registered; want %d hits, %d regions", s, len(p.live), x.hits, x.regions)
			}
			if err := c.Close(); err != nil || len(p.live) != 0 {
				t.Errorf("close: %v, %d registered", err, len(p.live))
			}
			if _, err := c.Get(buf, lw); !errors.Is(err, regcache.ErrClosed) {
				t.Errorf("Get of a closed cache: %v", err)
			}
		})
	}
}

// TestMergedRegionIsStillUsed: a region that a longer one has replaced serves its users to the end.
func TestMergedRegionIsStillUsed(t *testing.T) {
	c, p := open(t, regcache.Options{})
	buf := make([]byte, 300)
	a := get(t, c, buf[:200], 0)
	b := get(t, c, buf[100:], 0)
	if len(p.live) != 2 || a.MR() == b.MR() {
		t.Errorf("%d registered", len(p.live))
	}
	put(t, a)
	if len(p.live) != 1 || c.Stats().Merges != 1 {
		t.Errorf("%d registered after its last use, %+v", len(p.live), c.Stats())
	}
	if r := get(t, c, buf, 0); r.MR() != b.MR() {
		t.Error("what the longer one covers was not found")
	}
}

// TestLRU: the region that has been without a user for longest makes room; one in use never does.
func TestLRU(t *testing.T) {
	c, p := open(t, regcache.Options{MaxBytes: 300, MaxEntries: 3})
	bufs := make([][]byte, 5)
	for i := range bufs {
		bufs[i] = make([]byte, 100)
	}
	for i := range 3 {
		put(t, get(t, c, bufs[i], 0))
	}
	held := get(t, c, bufs[0], 0)
	put(t, get(t, c, bufs[3], 0)) // 1 makes room
	put(t, get(t, c, bufs[2], 0))
	if s := c.Stats(); s.Hits != 2 || s.Evictions != 1 || s.Entries != 3 || s.Bytes != 300 {
		t.Errorf("%+v", s)
	}
	put(t, get(t, c, bufs[1], 0)) // 3 makes room, as 2 was used since
	put(t, get(t, c, bufs[2], 0))
	if s := c.Stats(); s.Hits != 3 || s.Evictions != 2 {
		t.Errorf("%+v", s)
	}
	x, y, z := get(t, c, bufs[1], 0), get(t, c, bufs[2], 0), get(t, c, bufs[4], 0)
	put(t, z)
	if s := c.Stats(); s.Bypasses != 1 || s.Entries != 3 || len(p.live) != 3 {
		t.Errorf("with all in use: %+v, %d registered", s, len(p.live))
	}
	for _, r := range []*regcache.Ref{held, x, y} {
		put(t, r)
	}
	big := get(t, c, make([]byte, 301), 0)
	if s := c.Stats(); s.Evictions != 2 || s.Entries != 3 {
		t.Errorf("what is too big for the cache made room: %+v", s)
	}
	put(t, big)
	if len(p.live) != 3 {
		t.Errorf("%d registered", len(p.live))
	}
}

// TestFailures: a registration that fails leaves nothing behind, whoever waits for it.
func TestFailures(t *testing.T) {
	c, p := open(t, regcache.Options{})
	p.fail, p.gate = errors.New("no memory"), make(chan struct{})
	buf := make([]byte, 100)
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := c.Get(buf, 0)
			errs <- err
		}()
	}
	for c.Stats().Hits+c.Stats().Misses < 3 {
	}
	close(p.gate)
	for range 3 {
		if err := <-errs; !errors.Is(err, p.fail) {
			t.Error(err)
		}
	}
	if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 || s.Misses != 1 {
		t.Errorf("%+v", s)
	}
	p.fail = nil
	put(t, get(t, c, buf, 0))
	if _, err := c.Get(nil, 0); !errors.Is(err, iwarp.ErrInvalid) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := regcache.New(p, regcache.Options{MaxBytes: -1}); !errors.Is(err, iwarp.ErrInvalid) {
		t.Error(err)
	}
}

// TestMemoryThatStaysRegistered: a region that the device does not give up keeps its memory from being
// unmapped, however it left the cache.
func TestMemoryThatStaysRegistered(t *testing.T) {
	c, p := open(t, regcache.Options{MaxEntries: 1})
	m, err := c.Map(make([]byte, 4096), func([]byte) error {
		t.Error("unmapped while it was registered")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p.keep = errors.New("busy")
	for from := range 2 { // the second one evicts the first
		r, err := m.Get(from*100, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		put(t, r)
	}
	if c.Stats().Evictions != 1 {
		t.Errorf("%+v", c.Stats())
	}
	if err := c.Invalidate(t.Context(), m.Bytes()[:10]); !errors.Is(err, p.keep) {
		t.Errorf("Invalidate: %v", err)
	}
	if err := c.Invalidate(t.Context(), m.Bytes()[1000:]); err != nil {
		t.Errorf("Invalidate of other memory: %v", err)
	}
	for range 2 {
		if err := m.Close(t.Context()); !errors.Is(err, p.keep) {
			t.Errorf("Close of the mapping: %v", err)
		}
	}
	if err := c.Close(); !errors.Is(err, p.keep) {
		t.Errorf("Close: %v", err)
	}
}

// TestInvalidate: it ends what overlaps, waits for users, and gives up with its context.
func TestInvalidate(t *testing.T) {
	c, p := open(t, regcache.Options{})
	buf := make([]byte, 300)
	put(t, get(t, c, buf[:100], 0))
	put(t, get(t, c, buf[100:200], 0))
	held := get(t, c, buf[150:300], iwarp.LocalWrite)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Invalidate(ctx, buf[160:170]); !errors.Is(err, context.Canceled) {
		t.Errorf("while it is in use: %v", err)
	}
	if len(p.live) != 2 { // the first one, which does not overlap, and the one in use
		t.Errorf("%d registered", len(p.live))
	}
	done := make(chan error, 1)
	go func() { done <- c.Invalidate(t.Context(), buf) }()
	for c.Stats().Entries > 0 {
	}
	select {
	case err := <-done:
		t.Errorf("returned while memory was in use: %v", err)
	default:
	}
	put(t, held)
	if err := <-done; err != nil || len(p.live) != 0 {
		t.Errorf("%v, %d registered", err, len(p.live))
	}
	if s := c.Stats(); s.Ended != 3 {
		t.Errorf("%+v", s)
	}
}

// TestMapping: mapped memory is registered only through its Mapping, and unmapped only when none of it is
// registered.
func TestMapping(t *testing.T) {
	c, p := open(t, regcache.Options{})
	mem := make([]byte, 4096)
	unmapped := 0
	m, err := c.Map(mem, func([]byte) error {
		unmapped++
		if len(p.live) > 0 {
			t.Error("unmapped while it was registered")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(m.Bytes()[100:200], 0); !errors.Is(err, regcache.ErrForeign) {
		t.Errorf("Get of mapped memory: %v", err)
	}
	if _, err := c.Map(mem[1:2], func([]byte) error { return nil }); !errors.Is(err, iwarp.ErrInvalid) {
		t.Errorf("mapped twice: %v", err)
	}
	for _, x := range [][2]int{{-1, 1}, {0, 4097}, {4096, 1}, {1, -1}, {0, 0}} {
		if _, err := m.Get(x[0], x[1], 0); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("%v: %v", x, err)
		}
	}
	r, err := m.Get(100, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Close(ctx); !errors.Is(err, context.Canceled) || unmapped != 0 {
		t.Errorf("closed in use: %v, unmapped %d times", err, unmapped)
	}
	if _, err := m.Get(0, 1, 0); !errors.Is(err, regcache.ErrClosed) {
		t.Errorf("Get of what is being closed: %v", err)
	}
	put(t, r)
	for range 2 {
		if err := m.Close(t.Context()); err != nil || unmapped != 1 {
			t.Errorf("%v, unmapped %d times", err, unmapped)
		}
	}
	put(t, get(t, c, mem, 0)) // it is no longer the Mapping's
	if _, err := c.Map(mem, func([]byte) error { return nil }); !errors.Is(err, iwarp.ErrInvalid) {
		t.Errorf("mapped while it is cached: %v", err)
	}
}

// TestAgainstModel does random things and compares with what must hold whatever the cache keeps: a region
// that is given out is registered, covers its buffer with its rights, and is exact for a peer; the bounds
// hold for what is not in use; nothing of invalidated memory is registered.
func TestAgainstModel(t *testing.T) {
	rights := []iwarp.Access{0, iwarp.LocalWrite, iwarp.RemoteRead, iwarp.LocalWrite | iwarp.RemoteWrite}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			o := regcache.Options{MaxBytes: int64(200 + rnd.IntN(2000)), MaxEntries: 1 + rnd.IntN(12)}
			c, p := open(t, o)
			buf := make([]byte, 1000)
			type use struct {
				r      *regcache.Ref
				lo, hi int
				a      iwarp.Access
			}
			var uses []use
			covers := func(m *fakeMR, lo, hi int) (from int, ok bool) {
				from = int(uintptr(unsafe.Pointer(&m.buf[0])) - uintptr(unsafe.Pointer(&buf[0])))
				return from, from <= lo && from+len(m.buf) >= hi
			}
			for step := range 3000 {
				switch k := rnd.IntN(10); {
				case k < 5:
					lo := rnd.IntN(len(buf))
					hi := lo + 1 + rnd.IntN(min(300, len(buf)-lo))
					a := rights[rnd.IntN(len(rights))]
					before, made := c.Stats(), p.made
					r := get(t, c, buf[lo:hi], a)
					s := c.Stats()
					if (s.Misses-before.Misses != 1) != (p.made == made) || s.Hits+s.Misses != before.Hits+before.Misses+1 {
						t.Fatalf("%d: counted as %+v after %+v, %d registrations", step, s, before, p.made-made)
					}
					uses = append(uses, use{r, lo, hi, a})
				case k < 9 && len(uses) > 0:
					i := rnd.IntN(len(uses))
					put(t, uses[i].r)
					uses = append(uses[:i], uses[i+1:]...)
				case k == 9:
					lo := rnd.IntN(len(buf))
					hi := lo + 1 + rnd.IntN(min(100, len(buf)-lo))
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					err := c.Invalidate(ctx, buf[lo:hi])
					held := false
					for m := range p.live {
						from, _ := covers(m, 0, 0)
						held = held || from < hi && from+len(m.buf) > lo
					}
					if held != (err != nil) {
						t.Fatalf("%d: invalidated with %v; still registered: %v", step, err, held)
					}
				}
				inUse := map[iwarp.MR]bool{}
				for _, u := range uses {
					m := u.r.MR().(*fakeMR)
					inUse[m] = true
					from, ok := covers(m, u.lo, u.hi)
					exact := u.a < iwarp.RemoteWrite || from == u.lo && len(m.buf) == u.hi-u.lo && m.access == u.a
					if !p.live[m] || !ok || m.access&u.a != u.a || !exact || u.r.SGE().Addr != 1000+uint64(u.lo-from) {
						t.Fatalf("%d: the region for %d to %d with %x is %d to %d with %x, registered: %v", step, u.lo, u.hi, u.a, from, from+len(m.buf), m.access, p.live[m])
					}
				}
				idle, bytes := 0, int64(0)
				for m := range p.live {
					if !inUse[m] {
						idle++
						bytes += int64(len(m.buf))
					}
				}
				if s := c.Stats(); idle > o.MaxEntries || bytes > o.MaxBytes || s.Entries < idle {
					t.Fatalf("%d: %d regions of %d bytes without a user, bounds %+v, %+v", step, idle, bytes, o, s)
				}
			}
			for _, u := range uses {
				put(t, u.r)
			}
			if err := c.Close(); err != nil || len(p.live) != 0 {
				t.Errorf("%v, %d registered at the end", err, len(p.live))
			}
		})
	}
}

// TestConcurrently: users, evictions, invalidations and the end, at the same time.
func TestConcurrently(t *testing.T) {
	c, p := open(t, regcache.Options{MaxBytes: 2000, MaxEntries: 8})
	buf := make([]byte, 1000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				lo := rnd.IntN(900)
				part := buf[lo : lo+1+rnd.IntN(100)]
				if g == 7 {
					if err := c.Invalidate(t.Context(), part); err != nil {
						t.Error(err)
					}
					continue
				}
				a := iwarp.LocalWrite
				if g%2 == 0 {
					a |= iwarp.RemoteWrite
				}
				r, err := c.Get(part, a)
				if err != nil {
					t.Error(err)
					return
				}
				p.mu.Lock()
				if !p.live[r.MR().(*fakeMR)] {
					t.Error("a region in use is not registered")
				}
				p.mu.Unlock()
				if err := r.Put(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil || len(p.live) != 0 {
		t.Errorf("%v, %d registered at the end", err, len(p.live))
	}
}

// TestUnmappedBehindAPeer: memory that a peer may write to is unmapped. Its next Write is refused; it does not
// fault.
func TestUnmappedBehindAPeer(t *testing.T) {
	a, b := iwarptest.Pair(t)
	c, err := regcache.New(b.PD, regcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Map(mem, unix.Munmap)
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Get(4096, 4096, iwarp.LocalWrite|iwarp.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	wr := &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("hello"), STag: r.MR().STag(), TO: r.TO()}
	put(t, r)
	a.Post(t, wr) // the region is cached, and the peer still knows its STag
	a.WaitOK(t, 1)
	for b.QP.Stats().WritesReceived == 0 && b.QP.State() == iwarp.StateRTS {
		b.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpWrite}) // keeps both busy meanwhile
		b.WaitOK(t, 2)
	}
	if string(mem[4096:4101]) != "hello" {
		t.Errorf("%q", mem[4096:4101])
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Post(t, wr)
	if err := b.WaitDone(t); err == nil {
		t.Error("a Write to memory that is gone ended nothing")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
