// Package results is a manager's cache of results: it asks the stores of its tiers in turn, keeps what hosts
// have compiled, and lets equal jobs that are under way at the same time share one compile.
//
//	tier       one store, and what is done when it gives trouble
//	results    the tiers together
//	flight     equal jobs at the same time
//	second     results of compiles that differ in what was not read
//	value      what another program keeps among the results
//	counts     what has become of the looks into each tier
//	ahead      results that are fetched before they are asked for
//	forecast   what the next build will want
//	signing    who has put what is in stores that others use
//	distrust   hosts whose results are not used any more
//
// The package knows neither hosts nor wrappers. All of it is safe for concurrent use.
package results

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Results of a look into a tier, and of an attempt to keep something there, as metrics name them.
const (
	Hit       = "hit"
	Miss      = "miss"
	Error     = "error"
	Joined    = "joined"    // with an equal job that was under way
	Untrusted = "untrusted" // there is one, but nobody has signed it whose signature counts
	Second    = "second"    // a hit by the second step, which does not count as a hit or a miss besides
)

// Outcomes returns all of them.
func Outcomes() []string { return []string{Hit, Second, Miss, Error, Joined, Untrusted} }

// Options are the options of New.
type Options struct {
	Tiers []Tier // in the order in which they are asked
	Log   *slog.Logger
	// Count is called with each event: a tier and one of Outcomes.
	Count func(tier, outcome string)
	// NoBackFill says that a result which was found in a tier is not kept in those in front of it.
	NoBackFill bool
	Signing    Signing
	// Ahead is how many bytes of results are fetched before they are asked for, from the tiers that others use; 0: none are.
	Ahead int64
}

// Cache is a manager's cache of results. Close ends it.
type Cache struct {
	tiers []*tier
	log   *slog.Logger
	count func(tier, outcome string)
	fill  bool // tiers in front of the one that had a result
	flights
	distrust

	ctx     context.Context // ends what is being written
	cancel  context.CancelFunc
	writing sync.WaitGroup
	pending *semaphore.Weighted // bytes that wait to be written
	writers *semaphore.Weighted

	manifests sync.Mutex // held while one is changed
}

// What waits to be written, in bytes, and how many writes there are at a time. What exceeds it is not kept.
const (
	maxPending = 64 << 20
	maxWriters = 4
)

// New returns a Cache, which owns the stores of its tiers.
func New(o Options) *Cache {
	c := &Cache{log: o.Log, count: o.Count, fill: !o.NoBackFill, pending: semaphore.NewWeighted(maxPending), writers: semaphore.NewWeighted(maxWriters)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, t := range o.Tiers {
		c.tiers = append(c.tiers, newTier(t, &o.Signing))
	}
	if o.Ahead > 0 {
		room, notes := semaphore.NewWeighted(o.Ahead), semaphore.NewWeighted(o.Ahead)
		for _, t := range c.tiers {
			if t.Shared && t.Read {
				t.ahead = newAhead(c, t, room, notes, o.Ahead)
			}
		}
	}
	c.tellMute(&o.Signing)
	return c
}

// closeTime is how long Close waits for what is being written.
const closeTime = 2 * time.Second

// Close waits a moment for what is being written, and closes the stores.
func (c *Cache) Close() error {
	stop := time.AfterFunc(closeTime, c.cancel)
	for _, t := range c.tiers {
		if t.ahead != nil {
			t.ahead.stop()
		}
	}
	c.writing.Wait()
	for _, t := range c.tiers {
		if t.ahead != nil {
			t.ahead.end()
		}
	}
	c.writing.Wait()
	stop.Stop()
	c.cancel()
	var err error
	for _, t := range c.tiers {
		if t.Store != nil {
			err = errors.Join(err, t.Store.Close())
		}
	}
	return err
}

// Look is a look for a result.
type Look struct {
	Key resultcache.Key
	// Room returns memory for n bytes of outputs, as for resultcache.Decode.
	Room func(n int) ([]byte, error)
	// Check, if not nil, says why an entry that others can have made is not accepted. The error wraps
	// resultcache.ErrDamaged, or is resultcache.ErrMiss if that is nobody's fault.
	Check func(e *resultcache.Entry) error
	// Second, if not nil, is asked after a tier that keeps manifests has no entry.
	Second *SecondStep
	// Value says that the look is for a value of another program.
	Value bool
	// Command, if not nil, is the one that the result is for.
	Command *Command
	// Only, if not empty, is the only tier that is asked.
	Only string
	// Joined says that a hit counts as one of a job that was under way.
	Joined bool
	// Untrusted, if not nil, is called with each tier that has a result which nobody has put there whose signature counts.
	Untrusted func(tier string)
	// Farm is asked for the tier resultcache.TierFarm; nil: nobody is.
	Farm Farm

	maker string // the host that an entry of the farm names
}

// Farm are the hosts that a job may go to, as far as they keep results.
type Farm interface {
	// Get is that of resultcache.Store. host is the one that has the entry.
	Get(ctx context.Context, key resultcache.Key, buf []byte) (b []byte, host string, err error)
	// Maker returns the host that has made what Get has returned, as far as that is proven. Its error wraps
	// resultcache.ErrUnproven.
	Maker(e *resultcache.Entry) (host string, err error)
	// Drop says that what Get has returned is of no use, and whether that is because it was damaged or wrong.
	Drop(key resultcache.Key, host string, damaged bool)
}

// Find looks for a result in all tiers, and returns it with its tier, or nil. A tier in front of that one gets a
// copy. A result of the second step has another Key than was looked for.
func (c *Cache) Find(ctx context.Context, l *Look) (*resultcache.Entry, string) {
	key := l.Key
	c.begins(l.Command)
	buf := buffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxBuffer {
			buffers.Put(buf)
		}
	}()
	for i, t := range c.tiers {
		if !t.Read || l.Value && t.Lent || l.Only != "" && t.Name != l.Only || t.Store == nil && l.Farm == nil || t.paused(time.Now()) {
			continue
		}
		began := time.Now()
		b, e, err := t.find(ctx, l, (*buf)[:0])
		*buf = b
		t.looked(time.Since(began), e, len(b), err)
		switch {
		case err == nil && (c.distrusts(&e.Origin) || t.Store == nil && c.distrusts(&resultcache.Origin{Host: l.maker, Made: e.Made})):
			c.count(t.Name, Miss)
			c.log.Info("a result is not used: its host was found to compile wrongly since", "tier", t.Name, "key", key, "host", e.Host)
			c.drop(t, key)
			if t.Store == nil {
				l.Farm.Drop(key, e.Host, false)
			}
		case err == nil:
			if l.Joined {
				c.count(t.Name, Joined)
			} else {
				c.count(t.Name, Hit)
			}
			c.fine(t)
			t.delivers()
			for _, behind := range c.tiers[i+1:] {
				behind.ahead.saw(l.Command, e.Key)
			}
			if c.fill {
				c.putBefore(i, l, e, b)
			}
			return e, t.Name
		case errors.Is(err, resultcache.ErrMiss), errors.Is(err, resultcache.ErrVersion):
			c.fine(t)
			if e := c.second(ctx, t, l, buf); e != nil {
				c.count(t.Name, Second)
				t.second(e)
				return e, t.Name
			}
			c.count(t.Name, Miss)
		case ctx.Err() != nil:
			return nil, ""
		case errors.Is(err, errRoom):
			c.log.Debug("a result has no room", "key", key, "err", err)
		case errors.Is(err, errUntrusted):
			c.untrusted(t, l, key, err)
		case errors.Is(err, resultcache.ErrUnproven):
			c.count(t.Name, Error)
			level := slog.LevelDebug // its time is over
			if errors.Is(err, resultcache.ErrDamaged) {
				level = slog.LevelWarn
			}
			c.log.Log(ctx, level, "a result that others share is not used", "tier", t.Name, "key", key, "err", err)
		case errors.Is(err, resultcache.ErrDamaged):
			c.damaged(t, key, err)
		default:
			c.count(t.Name, Error)
			c.trouble(t, "results are not read", err)
		}
	}
	return nil, ""
}

// damaged records that a result is damaged, and removes it, unless it may be whole in a store that others use.
func (c *Cache) damaged(t *tier, key resultcache.Key, err error) {
	c.count(t.Name, Error)
	if t.Shared && !errors.Is(err, errHeld) {
		t.alters(time.Now())
		c.log.Warn("a kept result is damaged, or was on its way here", "tier", t.Name, "key", key, "err", err)
		return
	}
	what := "a kept result is damaged"
	if t.Write || t.Store == nil {
		what += ", and removed"
	}
	c.log.Warn(what, "tier", t.Name, "key", key, "err", err)
	c.drop(t, key)
}

// buffers are for entries as they are kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the longest buffer that is used again, in bytes.
const maxBuffer = 1 << 20

// Sizes returns how many bytes of results those tiers have that can say so, by tier.
func (c *Cache) Sizes() map[string]int64 {
	sizes := make(map[string]int64)
	for _, t := range c.tiers {
		if s, ok := t.Store.(interface{ Size() int64 }); ok {
			sizes[t.Name] = s.Size()
		}
	}
	return sizes
}

// Keep keeps an entry in all tiers, in the background. cmd, if not nil, is the command that it is for. It is not changed any more.
func (c *Cache) Keep(cmd *Command, key resultcache.Key, entry []byte) {
	c.begins(cmd)
	for _, t := range c.tiers {
		c.write(t, len(entry), key, func() error {
			b, err := t.put(c.ctx, key, entry, own)
			if err == nil {
				t.ahead.keeps(cmd, key, b)
			}
			return err
		})
	}
}

// putBefore keeps an entry that tier i had in those in front of it. It does not keep the slice.
func (c *Cache) putBefore(i int, l *Look, e *resultcache.Entry, b []byte) {
	for _, t := range c.tiers[:i] {
		if !t.Write || l.Value && t.Lent {
			continue
		}
		copied, from := append([]byte(nil), b...), c.tiers[i].gives()
		if c.tiers[i].Store == nil { // the host, which does not know by what name, was not in it
			var err error
			if copied, err = resultcache.MadeBy(b, e.Key, e.Host); err != nil {
				continue // cannot be
			}
		}
		c.put(t, e.Key, copied, from)
	}
}

// put keeps an entry in a tier, in the background. It does not change the slice. done is closed when that is over; it is
// nil if the entry is not kept.
func (c *Cache) put(t *tier, key resultcache.Key, entry []byte, from origin) (done <-chan struct{}) {
	return c.write(t, len(entry), key, func() error {
		_, err := t.put(c.ctx, key, entry, from)
		return err
	})
}

// write calls do, which writes at most n bytes to a tier, in the background. What it returns is that of put.
func (c *Cache) write(t *tier, n int, key resultcache.Key, do func() error) <-chan struct{} {
	if !t.takes(time.Now()) || c.ctx.Err() != nil || !c.pending.TryAcquire(int64(n)) {
		return nil
	}
	done := make(chan struct{})
	c.writing.Go(func() {
		defer close(done)
		defer c.pending.Release(int64(n))
		if c.writers.Acquire(c.ctx, 1) != nil {
			return
		}
		defer c.writers.Release(1)
		switch err := do(); {
		case err == nil:
			c.fine(t)
		case errors.Is(err, resultcache.ErrReadOnly):
			c.refused(t, err)
		case errors.Is(err, resultcache.ErrTooBig), errors.Is(err, errUntrusted), c.ctx.Err() != nil:
			c.log.Debug("a result is not kept", "tier", t.Name, "key", key, "err", err)
		default:
			c.count(t.Name, Error)
			c.trouble(t, "results are not kept", err)
		}
	})
	return done
}

// Drop removes a result from all tiers, because it is wrong.
func (c *Cache) Drop(key resultcache.Key) {
	for _, t := range c.tiers {
		c.drop(t, key)
	}
}

func (c *Cache) drop(t *tier, key resultcache.Key) {
	c.remove(t, "a wrong result is not removed", func() error { return t.drop(c.ctx, key) })
}

// remove calls do, which removes something from a tier, in the background. what says what an error means.
func (c *Cache) remove(t *tier, what string, do func() error) {
	if !t.Write {
		return
	}
	c.writing.Go(func() {
		switch err := do(); {
		case err == nil, c.ctx.Err() != nil:
		case errors.Is(err, resultcache.ErrReadOnly):
			c.refused(t, err)
		default:
			c.trouble(t, what, err)
		}
	})
}

// fine records that a tier works.
func (c *Cache) fine(t *tier) {
	if t.fine() {
		c.log.Info("the tier works again", "tier", t.Name)
	}
}

// refused records that a tier may only be read.
func (c *Cache) refused(t *tier, err error) {
	if t.refused(time.Now()) {
		c.log.Warn("results are looked up in the tier, but not kept there", "tier", t.Name, "err", err)
	}
}

// trouble records an error of a tier, and logs it if it is news.
func (c *Cache) trouble(t *tier, what string, err error) {
	switch pause, from, news := t.failed(time.Now()); {
	case news:
		c.log.Warn(what+", and the tier is left alone for a while", "tier", t.Name, "err", err, "for", pause)
	case from:
		c.log.Debug(what+", and the tier is left alone again", "tier", t.Name, "err", err, "for", pause)
	}
}
