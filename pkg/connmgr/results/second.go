package results

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// SecondStep finds results of compiles whose inputs differ from those of a Look in nothing that they have read.
type SecondStep struct {
	// Key returns the key of the manifest.
	Key func() resultcache.Key
	// Sum returns the sum over the inputs without the contents of the files in unread. ok is false if these
	// contents count.
	Sum func(unread []byte) (sum [sha256.Size]byte, ok bool)
}

// second looks for a result that the manifest in a tier leads to, and returns it, or nil. The tier gets a copy
// under the key that was looked for.
func (c *Cache) second(ctx context.Context, t *tier, l *Look, buf *[]byte) *resultcache.Entry {
	store, ok := t.Store.(resultcache.Manifests)
	if !ok || l.Second == nil {
		return nil
	}
	key := l.Second.Key()
	m, _ := c.manifest(ctx, t, store, key)
	if m == nil {
		return nil
	}
	sums := make(map[string]*[sha256.Size]byte, 1) // by the unread files; nil: these count
	for i := range m.Items {
		x := &m.Items[i]
		sum, known := sums[string(x.Unread)]
		if !known {
			if s, ok := l.Second.Sum(x.Unread); ok {
				sum = &s
			}
			sums[string(x.Unread)] = sum
		}
		if sum == nil || *sum != x.Sum {
			continue
		}
		look := *l
		look.Key = x.Result
		b, e, err := t.find(ctx, &look, (*buf)[:0])
		*buf = b
		switch {
		case err == nil && !c.distrusts(&e.Origin):
			t.delivers()
			if e.Base != "" {
				return e // under l.Key are results of one directory alone
			}
			if renamed, err := resultcache.Renamed(b, x.Result, l.Key); err == nil {
				c.put(t, l.Key, renamed, held)
			}
			return e
		case err == nil: // of a host that compiles wrongly
			c.drop(t, x.Result)
		case errors.Is(err, errUntrusted):
			c.untrusted(t, &look, x.Result, err)
		case errors.Is(err, resultcache.ErrDamaged):
			c.damaged(t, x.Result, err)
		}
	}
	return nil
}

// manifest returns a tier's manifest of key, or nil. replace says that another one may take its place: a damaged one of a
// store that others use may be whole there.
func (c *Cache) manifest(ctx context.Context, t *tier, store resultcache.Manifests, key resultcache.Key) (m *resultcache.Manifest, replace bool) {
	b, err := store.GetManifest(ctx, key)
	if err == nil {
		m, err = resultcache.DecodeManifest(b, key)
	}
	switch {
	case err == nil:
		return m, true
	case errors.Is(err, resultcache.ErrDamaged) && t.Shared:
		c.count(t.Name, Error)
		t.alters(time.Now())
		c.log.Warn("a manifest is damaged, or was on its way here", "tier", t.Name, "key", key, "err", err)
		return nil, false
	case errors.Is(err, resultcache.ErrDamaged):
		c.count(t.Name, Error)
		c.log.Warn("a manifest is damaged, and removed", "tier", t.Name, "key", key, "err", err)
		c.dropManifest(t, key)
	case !errors.Is(err, resultcache.ErrMiss) && !errors.Is(err, resultcache.ErrVersion) && ctx.Err() == nil:
		c.count(t.Name, Error)
		c.trouble(t, "manifests are not read", err)
	}
	return nil, true
}

// KeepManifest adds a result to the manifest of key in the tiers that keep manifests, in the background.
func (c *Cache) KeepManifest(key resultcache.Key, item resultcache.Item) {
	for _, t := range c.tiers {
		store, ok := t.Store.(resultcache.Manifests)
		if ok {
			c.write(t, resultcache.MaxManifest, key, func() error { return c.addTo(t, store, key, item) })
		}
	}
}

func (c *Cache) addTo(t *tier, store resultcache.Manifests, key resultcache.Key, item resultcache.Item) error {
	c.manifests.Lock() // of another program's change at the same time, one is lost, which costs hits
	defer c.manifests.Unlock()
	m, replace := c.manifest(c.ctx, t, store, key)
	if !replace {
		return nil
	}
	if m == nil {
		m = &resultcache.Manifest{Key: key}
	}
	if !m.Add(item) {
		return nil
	}
	b, err := m.Append(nil)
	if err != nil {
		return nil // of too many files
	}
	return store.PutManifest(c.ctx, key, b)
}

// DropManifest removes the manifest of key, because a result that it leads to is wrong.
func (c *Cache) DropManifest(key resultcache.Key) {
	for _, t := range c.tiers {
		c.dropManifest(t, key)
	}
}

func (c *Cache) dropManifest(t *tier, key resultcache.Key) {
	if store, ok := t.Store.(resultcache.Manifests); ok {
		c.remove(t, "a manifest is not removed", func() error { return store.DropManifest(c.ctx, key) })
	}
}
