package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// far is a store behind a network. It counts the requests for each name, and may give trouble.
type far struct {
	memory
	trouble func(n int, key resultcache.Key) error // of the n-th request, from 1
	rate    int                                    // bytes a second of what it sends; 0: any
	link    *link                                  // on the way to it; nil: none
	asked   []resultcache.Key
}

func (f *far) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	f.mu.Lock()
	f.asked = append(f.asked, key)
	n, slow := len(f.asked), f.slow
	b, ok := f.all[key]
	if f.rate > 0 {
		slow += time.Second * time.Duration(len(b)) / time.Duration(f.rate)
	}
	f.mu.Unlock()
	if f.link != nil {
		f.link.connect()
		defer f.link.leave()
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return buf, ctx.Err()
	}
	if f.trouble != nil {
		if err := f.trouble(n, key); err != nil {
			return buf, err
		}
	}
	if !ok {
		return buf, resultcache.ErrMiss
	}
	if f.link != nil {
		if err := f.link.send(ctx, len(b)); err != nil {
			return buf, err
		}
	}
	return append(buf, b...), nil
}

// client is a cache without anything of its own, and a build of 24 commands, four at a time.
type client struct {
	*Cache
	t     *testing.T
	log   strings.Builder
	build uint64
	more  int           // bytes of a result
	work  time.Duration // of a command, before it looks for its result
}

const rtt = 50 * time.Millisecond

func newClient(t *testing.T, store *far, ahead int64) *client {
	c := &client{t: t}
	c.Cache = New(Options{Ahead: ahead, Count: func(string, string) {}, Log: slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Tiers: []Tier{{Name: "far", Store: store, Read: true, Write: true, Shared: true, Timeout: time.Second}}})
	store.mu.Lock()
	store.asked = nil
	store.mu.Unlock()
	return c
}

func keyOf(salt string, i int) (k resultcache.Key) {
	copy(k[:], fmt.Sprintf("%s %d", salt, i))
	return k
}

// builds runs a build of n commands whose results depend on salt, four at a time, and returns how many were hits. Every other result is
// found under the second of two names. The store gets what was not there.
func (c *client) builds(salt string, n int) (hits int) {
	c.t.Helper()
	c.build++
	id := c.build
	var mu sync.Mutex
	var all sync.WaitGroup
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range 4 {
		all.Go(func() {
			for i := range next {
				c.Comes()
				time.Sleep(c.work)
				cmd := &Command{Build: id, Keeps: true, Name: func() resultcache.Key { return keyOf("command", i) }}
				keys := []resultcache.Key{keyOf(salt, i)}
				if i%2 == 1 {
					keys = append([]resultcache.Key{keyOf("moved "+salt, i)}, keys...)
				}
				var e *resultcache.Entry
				for _, k := range keys {
					if e == nil {
						e, _ = c.Find(c.t.Context(), &Look{Key: k, Command: cmd, Room: room})
					}
				}
				switch {
				case e == nil:
					key := keyOf(salt, i)
					b, err := (&resultcache.Entry{Key: key, Origin: resultcache.Origin{Made: time.Now()}, Files: []resultcache.File{{Data: append([]byte("object"), noise(c.more)...)}}}).Append(nil)
					if err != nil {
						c.t.Error(err)
					}
					c.Keep(cmd, key, b)
				case !strings.HasPrefix(string(e.Files[0].Data), "object"):
					c.t.Errorf("a result is %q", e.Files[0].Data)
				default:
					mu.Lock()
					hits++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return hits
}

// noise returns n bytes that do not get shorter.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // returns no errors
	return b
}

func (c *client) close() {
	c.t.Helper()
	if err := c.Close(); err != nil {
		c.t.Error(err)
	}
}

// requests returns how often the store was asked since the client was made.
func (f *far) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// filled returns a store with the results of a build, and what that build has written down.
func filled(t *testing.T, n int) *far {
	t.Helper()
	store := &far{memory: memory{slow: rtt}}
	c := newClient(t, store, 64<<20)
	if hits := c.builds("x", n); hits != 0 {
		t.Errorf("%d hits in nothing", hits)
	}
	c.close()
	return store
}

// TestAhead: a machine that has nothing gets all results of a build by a few requests, and notes nothing when nothing is new. Then a
// part has changed: the next machine gets that as well.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		puts := store.puts
		two := newClient(t, store, 64<<20)
		began := time.Now()
		if hits := two.builds("x", 24); hits != 24 || store.requests() > 4 || time.Since(began) > 4*rtt {
			t.Errorf("%d hits by %d requests in %v", hits, store.requests(), time.Since(began))
		}
		if n := two.Counts()[0]; n.Ahead != 24 || n.AheadHits < 22 || n.Hits != 24 {
			t.Errorf("counted: %+v", n)
		}
		two.close()
		if store.puts != puts {
			t.Errorf("%d written though nothing is new", store.puts-puts)
		}
		for i := range 12 { // as many builds, each with something new
			c := newClient(t, store, 64<<20)
			if hits := c.builds("x", 24+i); hits != 24+max(i-1, 0) || store.requests() > 12+2 {
				t.Errorf("build %d: %d hits by %d requests", i, hits, store.requests())
			}
			c.close()
		}
		last := newClient(t, store, 64<<20)
		if hits := last.builds("x", 35); hits != 35 || store.requests() > 12 {
			t.Errorf("%d hits by %d requests", hits, store.requests())
		}
		last.close()
	})
}

// TestAheadOff: without room, every look is a request.
func TestAheadOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		c := newClient(t, store, 0)
		if hits := c.builds("x", 24); hits != 24 || store.requests() != 36 {
			t.Errorf("%d hits by %d requests", hits, store.requests())
		}
		c.close()
	})
}

// TestAheadTrouble: whatever is wrong with what is fetched, each result that the store has is found, or the tier is in trouble as it
// would be without, and nothing waits for long.
func TestAheadTrouble(t *testing.T) {
	isEntry := func(key resultcache.Key) bool {
		return strings.HasPrefix(string(key[:]), "x ") || strings.HasPrefix(string(key[:]), "moved ")
	}
	each := func(store *far, change func(key resultcache.Key, b []byte) []byte) {
		for key, b := range store.all {
			if !isEntry(key) {
				store.all[key] = change(key, b)
			}
		}
	}
	value := func(key resultcache.Key, v []byte) []byte {
		b, err := resultcache.AppendValue(nil, key, resultcache.Origin{}, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		spoil func(*far)
		hits  int
		most  time.Duration
	}{
		"empty":   {func(s *far) { clear(s.all) }, 0, 3 * time.Second},
		"damaged": {func(s *far) { each(s, func(_ resultcache.Key, b []byte) []byte { return b[:len(b)-1] }) }, 24, 3 * time.Second},
		"bent": {func(s *far) {
			each(s, func(key resultcache.Key, b []byte) []byte {
				if strings.HasPrefix(string(key[:]), "command") {
					return b
				}
				// Its entries are damaged, and the pack is what its maker has made of them.
				e, err := resultcache.Decode(b, key, room)
				if err != nil {
					t.Fatal(err)
				}
				v := e.Files[0].Data
				for i := 100; i < len(v); i += 50 {
					v[i] ^= 1
				}
				return value(key, v)
			})
		}, 24, 3 * time.Second},
		"something else": {func(s *far) {
			each(s, func(key resultcache.Key, _ []byte) []byte { return value(key, []byte("else")) })
		}, 24, 3 * time.Second},
		"later": {func(s *far) {
			each(s, func(key resultcache.Key, _ []byte) []byte { return value(key, []byte{9, 0, 0, 0, 1}) })
		}, 24, 3 * time.Second},
		"packs are gone": {func(s *far) {
			for key := range s.all {
				if !isEntry(key) && !strings.HasPrefix(string(key[:]), "command") {
					delete(s.all, key)
				}
			}
		}, 24, 3 * time.Second},
		"packs do not come": {func(s *far) {
			s.trouble = func(_ int, key resultcache.Key) error {
				if !isEntry(key) && !strings.HasPrefix(string(key[:]), "command") {
					time.Sleep(time.Hour)
				}
				return nil
			}
		}, 24, 6 * time.Second},
		"lists do not come": {func(s *far) {
			s.trouble = func(_ int, key resultcache.Key) error {
				if strings.HasPrefix(string(key[:]), "command") {
					time.Sleep(900 * time.Millisecond)
				}
				return nil
			}
		}, 24, 6 * time.Second},
		"down half-way": {func(s *far) {
			s.trouble = func(n int, _ resultcache.Key) error {
				if n > 2 {
					return errors.New("down")
				}
				return nil
			}
		}, -1, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := filled(t, 24)
				c.spoil(store)
				two := newClient(t, store, 64<<20)
				began := time.Now()
				if hits := two.builds("x", 24); c.hits >= 0 && hits != c.hits || time.Since(began) > c.most {
					t.Errorf("%d hits in %v, by %d requests\n%s", hits, time.Since(began), store.requests(), &two.log)
				}
				_ = two.Close()
				if name == "later" {
					if _, err := resultcache.DecodeForecast([]byte{9, 0, 0, 0}); !errors.Is(err, resultcache.ErrVersion) {
						t.Error(err)
					}
					if b := store.all[keyOf("command", 0)]; len(b) > 300 {
						t.Error("what a later version has written is replaced")
					}
				}
				time.Sleep(2 * time.Hour) // what hangs
			})
		})
	}
}

// TestAheadRoom: of far more than there is room for, as much is fetched as has room; it is given back when the build is over. The
// rest is looked up as ever.
func TestAheadRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 2000)
		c := newClient(t, store, 200<<10)
		if hits := c.builds("x", 2000); hits != 2000 {
			t.Errorf("%d hits", hits)
		}
		n := c.Counts()[0]
		if n.Ahead == 0 || n.Ahead >= 2000 || n.AheadHits == 0 {
			t.Errorf("counted: %+v", n)
		}
		a := c.tiers[0].ahead
		a.mu.Lock()
		held := len(a.parcels)
		a.mu.Unlock()
		time.Sleep(2 * goneTime)
		a.mu.Lock()
		if held == 0 || len(a.parcels) != 0 || len(a.places) != 0 || !a.room.TryAcquire(200<<10) {
			t.Errorf("%d packs, then %d and %d results: they are still there", held, len(a.parcels), len(a.places))
		}
		a.mu.Unlock()
		time.Sleep(2 * lastTime)
		if a.mu.Lock(); len(a.builds) != 0 {
			t.Error("a build is never over")
		}
		a.mu.Unlock()
		c.close()
	})
}

// isNoted reports whether a name is that of a pack or a list, and not of a result.
func isNoted(key resultcache.Key) bool {
	return !strings.HasPrefix(string(key[:]), "x ") && !strings.HasPrefix(string(key[:]), "moved ")
}

// TestAheadNotes: what a build notes takes no more room in the store than what is fetched may take here, however many results there are,
// nor does what all builds of a manager have noted and not written yet take more here.
func TestAheadNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 200 << 10
		store := &far{memory: memory{slow: rtt}}
		c := newClient(t, store, most)
		packs := func() (n int) {
			store.mu.Lock()
			defer store.mu.Unlock()
			for key, b := range store.all {
				if isNoted(key) && !strings.HasPrefix(string(key[:]), "command") {
					n += len(b)
				}
			}
			return n
		}
		a := c.tiers[0].ahead
		c.builds("x", 2000)
		time.Sleep(goneTime)
		if n := packs(); n < most/2 || n > most+most/10 {
			t.Errorf("%d bytes of packs in the store", n)
		}
		for range 3 {
			c.builds("x", 2000)
		}
		a.mu.Lock()
		held := 0
		for _, b := range a.builds {
			held += len(b.data)
		}
		a.mu.Unlock()
		if held == 0 || held > most {
			t.Errorf("%d bytes are noted here", held)
		}
		c.close()
		if !a.notes.TryAcquire(most) {
			t.Error("what was noted takes room though it is written")
		}
	})
}

// TestAheadPacksExpire: a store removes what is old. The build that finds packs gone notes anew what they had.
func TestAheadPacksExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		for key := range store.all {
			if isNoted(key) && !strings.HasPrefix(string(key[:]), "command") {
				delete(store.all, key)
			}
		}
		for i, most := range []int{100, 6} {
			c := newClient(t, store, 64<<20)
			if hits := c.builds("x", 24); hits != 24 || store.requests() > most {
				t.Errorf("build %d: %d hits by %d requests", i, hits, store.requests())
			}
			c.close()
		}
	})
}

// TestAheadSlowLink: what is large is waited for as long as it takes on a slow link, not asked for again.
func TestAheadSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{memory: memory{slow: rtt}}
		c := newClient(t, store, 64<<20)
		c.more = 512 << 10
		c.builds("x", 24)
		c.close()
		store.rate = 1 << 20 // of each connection
		c = newClient(t, store, 64<<20)
		if hits := c.builds("x", 24); hits != 24 || store.requests() > 12 {
			t.Errorf("%d hits by %d requests", hits, store.requests())
		}
		c.close()
	})
}

// TestAheadTwoBuilds: two builds of one checkout share what is fetched. What only reads writes nothing down.
func TestAheadTwoBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		c := newClient(t, store, 64<<20)
		if hits := c.builds("x", 24) + c.builds("x", 24); hits != 48 || store.requests() > 6 {
			t.Errorf("%d hits by %d requests", hits, store.requests())
		}
		if n := c.Counts()[0]; n.Ahead != 24 {
			t.Errorf("fetched twice: %+v", n)
		}
		c.close()
	})
}

// TestAheadFull: a store that takes nothing more is read as before, and what a build has wanted is not noted.
func TestAheadFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{memory: memory{slow: rtt, putErr: errors.New("full")}}
		c := newClient(t, store, 64<<20)
		if hits := c.builds("x", 24); hits != 0 {
			t.Errorf("%d hits", hits)
		}
		c.close()
		if len(store.all) != 0 {
			t.Errorf("%d kept", len(store.all))
		}
	})
}

// TestAheadBehind: builds that find most in front of the store do not make what it names old.
func TestAheadBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		near := &memory{}
		for i := range 2 * lastAge {
			c := newClient(t, store, 64<<20)
			c.tiers = append([]*tier{newTier(Tier{Name: "near", Store: near, Read: true, Write: true}, &Signing{})}, c.tiers...)
			c.builds("x", 25+i)
			c.close()
		}
		last := newClient(t, store, 64<<20)
		if hits := last.builds("x", 24); hits != 24 || store.requests() > 12 {
			t.Errorf("%d hits by %d requests", hits, store.requests())
		}
		last.close()
	})
}

// TestAheadUnsigned: where results need signatures, a list that nobody has signed is not followed.
func TestAheadUnsigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, 24)
		c := newClient(t, store, 64<<20)
		c.tiers[0].signing.Verify = func([32]byte, time.Time, []byte) (string, error) { return "", errors.New("no") }
		if hits := c.builds("x", 24); hits != 0 || c.Counts()[0].Ahead != 0 {
			t.Errorf("%d hits, counted: %+v", hits, c.Counts()[0])
		}
		c.close()
	})
}
