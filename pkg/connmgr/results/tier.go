package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Tier is a store of results and how it is used.
type Tier struct {
	Name    string            // one of resultcache.Tiers
	Store   resultcache.Store // nil for resultcache.TierFarm, whose store comes with each Look
	Read    bool
	Write   bool
	Shared  bool          // others use it too, behind a network: what is read damaged may have been altered on its way
	Timeout time.Duration // for each Get; Put and Drop have several times as long. 0: none
	// Lent says that the tier is another program's, which may be one of ours that asks this cache: it is neither asked
	// for values nor given any, or they could go round in circles.
	Lent bool
}

// tier is a Tier that is in use.
type tier struct {
	Tier
	counts
	signing *Signing
	ahead   *ahead // nil: nothing is fetched ahead

	mu       sync.Mutex
	errors   int       // in a row
	until    time.Time // it is left alone until then
	told     bool      // that it gives trouble
	readOnly time.Time // nothing is written to it until then
	altered  time.Time // the same, as something that was read was damaged, and nothing has been whole since
	warned   time.Time // that a result was not taken from it, as nobody has signed it whose signature counts
}

func newTier(t Tier, s *Signing) *tier { return &tier{Tier: t, signing: s} }

// errRoom wraps errors of the memory for a result.
var errRoom = errors.New("no memory for a result")

// find gets, decodes and checks an entry. The slice that it returns is buf, or longer.
func (t *tier) find(ctx context.Context, l *Look, buf []byte) ([]byte, *resultcache.Entry, error) {
	if t.Store == nil {
		ctx, cancel := t.within(ctx, 1)
		defer cancel()
		return t.findInFarm(ctx, l, buf)
	}
	if b, come := t.ahead.find(ctx, l, buf); come {
		e, err := (*resultcache.Entry)(nil), resultcache.ErrMiss
		if b != nil {
			e, err = t.judge(l, b)
		}
		switch {
		case err == nil:
			t.ahead.took(l.Command, l.Key, b)
			t.cameAhead()
			return b, e, nil
		case b == nil:
			l.Command.misses(t, l.Key)
			return buf, nil, err
		case errors.Is(err, errRoom):
			return b, nil, err
		}
		t.ahead.reject(l.Command, l.Key)
	}
	ctx, cancel := t.within(ctx, 1)
	defer cancel()
	b, err := t.Store.Get(ctx, l.Key, buf)
	if errors.Is(err, resultcache.ErrMiss) {
		l.Command.misses(t, l.Key)
	}
	if err != nil {
		return b, nil, err
	}
	e, err := t.judge(l, b)
	if err == nil {
		t.ahead.took(l.Command, l.Key, b)
	}
	return b, e, err
}

// judge decodes and checks an entry as the store has it.
func (t *tier) judge(l *Look, b []byte) (*resultcache.Entry, error) {
	e, err := l.decode(b)
	if err == nil {
		err = t.proven(e)
	}
	if err == nil && t.Name != resultcache.TierManager {
		err = l.check(e)
	}
	return e, err
}

// findInFarm does the same with the hosts that the job may go to. The entry is that of the host that has
// served it, whatever it says. What it says is noted: a copy names the host that has compiled it.
func (t *tier) findInFarm(ctx context.Context, l *Look, buf []byte) ([]byte, *resultcache.Entry, error) {
	if l.Farm == nil {
		return buf, nil, resultcache.ErrMiss
	}
	b, host, err := l.Farm.Get(ctx, l.Key, buf)
	if err != nil {
		return b, nil, err
	}
	e, err := l.decode(b)
	if err == nil {
		err = l.check(e)
	}
	if err == nil {
		l.maker = e.Host
		if e.Host, err = l.Farm.Maker(e); err != nil {
			err = fmt.Errorf("%s has it: %w", host, err)
		}
	}
	if err != nil && !errors.Is(err, errRoom) {
		l.Farm.Drop(l.Key, host, errors.Is(err, resultcache.ErrDamaged))
	}
	return b, e, err
}

// decode decodes an entry.
func (l *Look) decode(b []byte) (*resultcache.Entry, error) {
	return resultcache.Decode(b, l.Key, func(n int) ([]byte, error) {
		mem, err := l.Room(n)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRoom, err)
		}
		return mem, nil
	})
}

// check checks an entry that others than this machine's manager can have made.
func (l *Look) check(e *resultcache.Entry) error {
	if l.Check == nil {
		return nil
	}
	err := l.Check(e)
	if err != nil {
		err = fmt.Errorf("%w%w", errHeld, err)
	}
	return err
}

// errHeld marks what is wrong with an entry that has come whole, so that the store holds it like that. It has no words.
var errHeld = errors.New("")

// writePatience is how many times longer than a look something that no build waits for may take.
const writePatience = 20

// put keeps a result, and returns it as the store has it.
func (t *tier) put(ctx context.Context, key resultcache.Key, entry []byte, from origin) ([]byte, error) {
	entry, err := t.store(ctx, key, entry, from)
	if err == nil {
		t.wrote(len(entry))
	}
	return entry, err
}

// store keeps an entry, signed if it has to be, and returns it as the store has it.
func (t *tier) store(ctx context.Context, key resultcache.Key, entry []byte, from origin) ([]byte, error) {
	entry, err := t.sealed(key, entry, from)
	if err != nil {
		return nil, err
	}
	ctx, cancel := t.within(ctx, writePatience)
	defer cancel()
	return entry, t.Store.Put(ctx, key, entry)
}

func (t *tier) drop(ctx context.Context, key resultcache.Key) error {
	ctx, cancel := t.within(ctx, writePatience)
	defer cancel()
	return t.Store.Drop(ctx, key)
}

func (t *tier) within(ctx context.Context, times time.Duration) (context.Context, context.CancelFunc) {
	if t.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, times*t.Timeout)
}

// A tier that gives trouble is left alone after patience errors in a row, first for firstPause, and each time
// for twice as long up to lastPause. So a store that is down costs a build a few time-outs and nothing else.
const (
	patience   = 3
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// readOnlyTime is for how long nothing is written to a tier that has said that it may only be read. Another
// server may have taken its place by then, or somebody may have given us the right.
const readOnlyTime = 10 * time.Minute

// paused reports whether the tier is left alone at the moment.
func (t *tier) paused(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.until)
}

// takes reports whether the tier is to be written to at the moment.
func (t *tier) takes(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Write && !now.Before(t.until) && !now.Before(t.readOnly) && !now.Before(t.altered)
}

// alteredTime is for how long nothing is written to a shared tier after something damaged was read from it, unless something
// whole is: where the network alters what is read, it may alter what is written, and that would replace good results.
const alteredTime = time.Minute

// alters notes that something was read damaged.
func (t *tier) alters(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.altered = now.Add(alteredTime)
}

// delivers notes that something was read whole.
func (t *tier) delivers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.altered = time.Time{}
}

// refused notes that the tier may only be read. It returns whether that is news.
func (t *tier) refused(now time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news, t.readOnly = t.readOnly.IsZero(), now.Add(readOnlyTime)
	return news
}

// fine notes that the tier works. It returns whether that is news.
func (t *tier) fine() (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = t.told
	t.errors, t.told = 0, false
	return news
}

// failed notes an error. It returns for how long the tier is left alone if it is so from now on, and whether that
// is news: it was not so before, or the tier has worked since.
func (t *tier) failed(now time.Time) (pause time.Duration, from, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.errors++; t.errors < patience || now.Before(t.until) {
		return 0, false, false
	}
	pause = min(firstPause<<min(t.errors-patience, 10), lastPause)
	t.until = now.Add(pause)
	news, t.told = !t.told, true
	return pause, true, news
}
