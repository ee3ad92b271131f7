package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// memory is a store whose trouble is set by hand.
type memory struct {
	mu     sync.Mutex
	all    map[resultcache.Key][]byte
	err    error         // of every call
	putErr error         // of Put alone
	slow   time.Duration // before every Get
	gets   int
	puts   int
	drops  int
}

func (m *memory) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	if m.slow > 0 {
		select {
		case <-time.After(m.slow):
		case <-ctx.Done():
			return buf, ctx.Err()
		}
	}
	if m.err != nil {
		return buf, m.err
	}
	b, ok := m.all[key]
	if !ok {
		return buf, resultcache.ErrMiss
	}
	return append(buf, b...), nil
}

func (m *memory) Put(_ context.Context, key resultcache.Key, entry []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if err := cmp.Or(m.err, m.putErr); err != nil {
		return err
	}
	if m.all == nil {
		m.all = make(map[resultcache.Key][]byte)
	}
	m.all[key] = append([]byte(nil), entry...)
	return nil
}

func (m *memory) Drop(_ context.Context, key resultcache.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drops++
	delete(m.all, key)
	return nil
}

func (m *memory) Close() error { return nil }

func (m *memory) has(key resultcache.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.all[key]
	return ok
}

// bench is a cache with two tiers in memory.
type bench struct {
	*Cache
	near, far memory
	log       strings.Builder
	counts    map[string]int
}

func newBench(t *testing.T, timeout time.Duration) *bench {
	t.Helper()
	b := &bench{counts: make(map[string]int)}
	var mu sync.Mutex
	b.Cache = New(Options{
		Tiers: []Tier{{Name: "near", Store: &b.near, Read: true, Write: true, Timeout: timeout}, {Name: "far", Store: &b.far, Read: true, Write: true, Timeout: timeout}},
		Log:   slog.New(slog.NewTextHandler(&b.log, nil)),
		Count: func(tier, outcome string) { mu.Lock(); defer mu.Unlock(); b.counts[tier+" "+outcome]++ },
	})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func room(n int) ([]byte, error) { return make([]byte, n), nil }

func entryOf(t *testing.T, key resultcache.Key, host string) []byte {
	t.Helper()
	b, err := (&resultcache.Entry{Key: key, Origin: resultcache.Origin{Host: host, Made: time.Now()}, Files: []resultcache.File{{Data: []byte("object")}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// find looks for a key and returns the tier that had it.
func (b *bench) find(t *testing.T, key resultcache.Key) string {
	t.Helper()
	e, tier := b.Find(t.Context(), &Look{Key: key, Room: room})
	if (e != nil) != (tier != "") || e != nil && string(e.Files[0].Data) != "object" {
		t.Errorf("%+v from %q", e, tier)
	}
	b.writing.Wait()
	return tier
}

// TestTiers: tiers are asked in turn, and those in front get a copy.
func TestTiers(t *testing.T) {
	b := newBench(t, 0)
	key, other := resultcache.Key{1}, resultcache.Key{2}
	if tier := b.find(t, key); tier != "" {
		t.Errorf("%q has it", tier)
	}
	b.Keep(nil, key, entryOf(t, key, "h"))
	b.writing.Wait()
	if !b.near.has(key) || !b.far.has(key) || b.find(t, key) != "near" || b.near.gets != 2 || b.far.gets != 1 {
		t.Errorf("%d and %d looks", b.near.gets, b.far.gets)
	}
	b.far.all[other] = entryOf(t, other, "h")
	if tier := b.find(t, other); tier != "far" || !b.near.has(other) {
		t.Errorf("%q, copy %v", tier, b.near.has(other))
	}
	b.tiers[0].Read, b.tiers[1].Write = false, false
	third := resultcache.Key{3}
	b.Keep(nil, third, entryOf(t, third, "h"))
	b.writing.Wait()
	if !b.near.has(third) || b.far.has(third) || b.find(t, third) != "" {
		t.Error("a tier is read that must not be read, or written that must not be written")
	}
	if got := fmt.Sprint(b.counts); got != "map[far hit:1 far miss:2 near hit:1 near miss:2]" {
		t.Error(got)
	}
}

// TestDamaged: a damaged result is a miss, and removed; the next tier is asked.
func TestDamaged(t *testing.T) {
	b := newBench(t, 0)
	key := resultcache.Key{1}
	b.near.all = map[resultcache.Key][]byte{key: []byte("something")}
	b.far.all = map[resultcache.Key][]byte{key: entryOf(t, key, "h")}
	if tier := b.find(t, key); tier != "far" || b.near.drops != 1 || b.counts["near error"] != 1 {
		t.Errorf("%q, %d removed, %v", tier, b.near.drops, b.counts)
	}
	if _, _, _, err := func() (a, b, c int, err error) { _, err = resultcache.Decode(nil, key, room); return }(); !errors.Is(err, resultcache.ErrDamaged) {
		t.Error(err)
	}
}

// TestAlteredOnItsWay: a reader that gets damaged results from a store that others use removes and replaces none, as they may be whole
// there; it writes to the store again once it gets something whole, or after a while. A result that comes whole and is not
// accepted is removed.
func TestAlteredOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		b.tiers[1].Shared = true
		key, other, third := resultcache.Key{1}, resultcache.Key{2}, resultcache.Key{3}
		whole := entryOf(t, key, "h")
		bent := append([]byte(nil), whole...)
		bent[len(bent)-1] ^= 1
		b.far.all = map[resultcache.Key][]byte{key: bent, other: entryOf(t, other, "h")}
		keeps := func() int {
			before := b.far.puts
			b.Keep(nil, third, entryOf(t, third, "h"))
			b.writing.Wait()
			return b.far.puts - before
		}
		if tier := b.find(t, key); tier != "" || b.far.drops != 0 || b.counts["far error"] != 1 {
			t.Errorf("%q, %d removed, %v", tier, b.far.drops, b.counts)
		}
		if n := keeps(); n != 0 {
			t.Errorf("%d written by a link that alters", n)
		}
		if tier := b.find(t, other); tier != "far" || keeps() != 1 {
			t.Errorf("%q, and nothing is written after something whole", tier)
		}
		b.find(t, key)
		time.Sleep(alteredTime)
		if keeps() != 1 {
			t.Error("nothing is written after a while")
		}
		b.far.all[key] = whole
		_, _ = b.Find(t.Context(), &Look{Key: key, Room: room, Check: func(*resultcache.Entry) error { return resultcache.ErrDamaged }})
		b.writing.Wait()
		if b.far.drops != 1 {
			t.Errorf("%d removed of one that is not accepted", b.far.drops)
		}
	})
}

// TestStoreThatIsDown: a tier that gives trouble is left alone, for longer each time, and asked again after that.
func TestStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Second)
		key := resultcache.Key{1}
		b.near.err = errors.New("down")
		for range 100 {
			b.find(t, key)
		}
		if b.near.gets != patience || b.far.gets != 100 || strings.Count(b.log.String(), "level=WARN") != 1 {
			t.Errorf("%d looks into the tier that is down, %d into the other\n%s", b.near.gets, b.far.gets, b.log.String())
		}
		b.Keep(nil, key, entryOf(t, key, "h"))
		b.writing.Wait()
		if b.near.puts != 0 {
			t.Error("it is written to")
		}
		before := time.Now()
		for b.near.gets < patience+5 && time.Since(before) < time.Hour {
			time.Sleep(100 * time.Millisecond)
			b.find(t, resultcache.Key{9})
		}
		if d := time.Since(before); d < 20*time.Second || d > 2*time.Minute {
			t.Errorf("five more looks after %v", d)
		}
		b.near.err = nil
		time.Sleep(lastPause)
		if tier := b.find(t, key); tier != "far" {
			t.Errorf("%q", tier)
		}
		if tier := b.find(t, key); tier != "near" {
			t.Errorf("%q: the tier that works again has no copy", tier)
		}
	})
}

// TestOneLine: the log has a line when a tier begins to give trouble, and one when it works again, not more.
func TestOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Second)
		for range 2 {
			b.log.Reset()
			b.near.err = errors.New("down")
			for range 3600 {
				time.Sleep(time.Second)
				b.find(t, resultcache.Key{1})
			}
			b.near.err = nil
			for range 3600 {
				time.Sleep(time.Second)
				b.find(t, resultcache.Key{1})
			}
			if log := b.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "works again") {
				t.Errorf("the log has\n%s", log)
			}
		}
	})
}

// TestReadOnlyStore: a tier that turns out to be for reading only is read, and not written to for a while.
func TestReadOnlyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Second)
		b.far.putErr = fmt.Errorf("%w: no right", resultcache.ErrReadOnly)
		keep := func(n int) {
			for i := range byte(n) {
				b.Keep(nil, resultcache.Key{i}, entryOf(t, resultcache.Key{i}, "h"))
				b.Drop(resultcache.Key{100, i})
				b.writing.Wait()
			}
		}
		keep(20)
		if b.far.puts != 1 || b.near.puts != 20 || b.find(t, resultcache.Key{200}) != "" || b.far.gets != 1 || strings.Count(b.log.String(), "level=WARN") != 1 {
			t.Errorf("%d attempts to write, %d looks\n%s", b.far.puts, b.far.gets, b.log.String())
		}
		if n := b.counts["far error"]; n != 0 {
			t.Errorf("%d errors counted", n)
		}
		time.Sleep(readOnlyTime + time.Second)
		keep(20)
		if b.far.puts != 2 || strings.Count(b.log.String(), "\n") != 1 {
			t.Errorf("%d attempts to write\n%s", b.far.puts, b.log.String())
		}
		b.far.putErr = nil
		time.Sleep(readOnlyTime + time.Second)
		keep(20)
		if b.far.puts != 22 {
			t.Errorf("%d attempts to write", b.far.puts)
		}
	})
}

// TestStoreThatIsSlow: a look ends with its time, and after three the tier is left alone.
func TestStoreThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 100*time.Millisecond)
		b.near.slow = time.Minute
		began := time.Now()
		for range 50 {
			b.find(t, resultcache.Key{1})
		}
		if d := time.Since(began); d != 300*time.Millisecond {
			t.Errorf("50 looks took %v", d)
		}
	})
}

// TestDistrust: what a host had made before it was found to compile wrongly is not used, and removed.
func TestDistrust(t *testing.T) {
	s, err := disk.Open(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, 0)
	b.tiers[0].Store = s
	bad, good, late := resultcache.Key{1}, resultcache.Key{2}, resultcache.Key{3}
	b.Keep(nil, bad, entryOf(t, bad, "liar"))
	b.Keep(nil, good, entryOf(t, good, "host"))
	b.writing.Wait()
	b.Distrust("liar")
	b.writing.Wait()
	if u, err := s.Usage(t.Context()); err != nil || u.Files != 1 {
		t.Errorf("%+v, %v", u, err)
	}
	if !b.far.has(bad) || b.find(t, bad) != "" || b.far.has(bad) {
		t.Error("a result of a host that compiles wrongly is used, or stays")
	}
	time.Sleep(time.Millisecond) // the clock goes on
	b.Keep(nil, late, entryOf(t, late, "liar"))
	b.writing.Wait()
	if b.find(t, good) != "near" || b.find(t, late) != "near" {
		t.Error("a result of another host, or of a later time, is not used")
	}
}

// TestFlights: one leads, others get its result, or none.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		key := resultcache.Key{1}
		first, leads := b.Join(key)
		if !leads {
			t.Fatal("the first one does not lead")
		}
		if _, leads := b.Join(resultcache.Key{2}); !leads {
			t.Error("another key waits")
		}
		got := make(chan []byte, 3)
		for range 2 {
			go func() {
				x, leads := b.Join(key)
				if leads {
					t.Error("two lead")
				}
				_, b := x.Wait(t.Context())
				got <- b
			}()
		}
		gone, cancel := context.WithCancel(t.Context())
		go func() {
			x, _ := b.Join(key)
			_, b := x.Wait(gone)
			got <- b
		}()
		synctest.Wait()
		cancel()
		if b := <-got; b != nil {
			t.Errorf("one that has gone gets %q", b)
		}
		first.End(key, []byte("result"))
		for range 2 {
			if b := <-got; string(b) != "result" {
				t.Errorf("%q", b)
			}
		}
		again, leads := b.Join(key)
		if !leads {
			t.Error("an ended one is joined")
		}
		again.End(key, nil)
	})
}

// hosts is a Farm with one entry.
type hosts struct {
	memory
	dropped  []bool
	unproven error
}

func (h *hosts) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, string, error) {
	b, err := h.memory.Get(ctx, key, buf)
	return b, "build7:7632", err
}

func (h *hosts) Maker(*resultcache.Entry) (string, error) { return "build7:7632", h.unproven }

func (h *hosts) Drop(_ resultcache.Key, _ string, damaged bool) {
	h.dropped = append(h.dropped, damaged)
}

// TestFarm: the hosts that come with a look are asked in their turn. A result is that of the host that has served it,
// in the copies too, and it is checked.
func TestFarm(t *testing.T) {
	b := newBench(t, 0)
	b.tiers = slices.Insert(b.tiers, 1, newTier(Tier{Name: resultcache.TierFarm, Read: true}, &Signing{}))
	key := resultcache.Key{1}
	var farm hosts
	look := func(check func(*resultcache.Entry) error) string {
		t.Helper()
		e, tier := b.Find(t.Context(), &Look{Key: key, Room: room, Farm: &farm, Check: check})
		if e != nil && (e.Host != "build7:7632" || string(e.Files[0].Data) != "object") {
			t.Errorf("%+v", e)
		}
		b.writing.Wait()
		return tier
	}
	if tier := b.find(t, key) + look(nil); tier != "" {
		t.Errorf("%q has it", tier)
	}
	if err := farm.Put(t.Context(), key, entryOf(t, key, "what the host calls itself")); err != nil {
		t.Fatal(err)
	}
	for _, no := range []error{resultcache.ErrDamaged, resultcache.ErrMiss} {
		if tier := look(func(*resultcache.Entry) error { return no }); tier != "" {
			t.Errorf("%q has it", tier)
		}
	}
	if !slices.Equal(farm.dropped, []bool{true, false}) || b.counts["farm error"] != 1 {
		t.Errorf("dropped %v, counted %v", farm.dropped, b.counts)
	}
	for _, farm.unproven = range []error{resultcache.ErrUnproven, fmt.Errorf("%w: %w", resultcache.ErrDamaged, resultcache.ErrUnproven)} {
		if tier := look(nil); tier != "" {
			t.Errorf("%q has it, without a proof", tier)
		}
	}
	farm.unproven = nil
	if !slices.Equal(farm.dropped, []bool{true, false, false, true}) || b.counts["farm error"] != 3 || strings.Count(b.log.String(), "a result that others share is not used") != 1 {
		t.Errorf("dropped %v, counted %v\n%s", farm.dropped, b.counts, b.log.String())
	}
	if tier := look(nil); tier != resultcache.TierFarm || !b.near.has(key) || b.far.has(key) {
		t.Errorf("from %q", tier)
	}
	if tier := look(nil); tier != "near" { // with the name of the host
		t.Errorf("from %q", tier)
	}
	b.Keep(nil, resultcache.Key{2}, entryOf(t, key, ""))
	b.Drop(key)
	b.writing.Wait()
	// A copy of what a host has compiled that is trusted no more is not used, whoever serves it.
	b.Distrust("what the host calls itself")
	farm.dropped = nil
	if tier := look(nil); tier != "" || !slices.Equal(farm.dropped, []bool{false}) {
		t.Errorf("from %q, dropped %v", tier, farm.dropped)
	}
	if e, tier := b.Find(t.Context(), &Look{Key: key, Room: room, Farm: &farm, Only: "far"}); e != nil {
		t.Errorf("from %q", tier)
	}
}
