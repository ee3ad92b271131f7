package results

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// newListing returns a cache whose first tier keeps manifests.
func newListing(t *testing.T) (*bench, *disk.Store) {
	t.Helper()
	b := newBench(t, 0)
	s, err := disk.Open(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b.tiers[0].Store = s
	return b, s
}

// look looks for want, whose inputs have a sum without the unread ones of 7, and returns the key of what is found.
func (b *bench) look(t *testing.T, want resultcache.Key) (found resultcache.Key, tier string) {
	t.Helper()
	e, tier := b.Find(t.Context(), &Look{Key: want, Room: room, Second: &SecondStep{
		Key: func() resultcache.Key { return resultcache.Key{100} },
		Sum: func(unread []byte) (sum [32]byte, ok bool) { return [32]byte{7}, unread[0] != 99 },
	}})
	b.writing.Wait()
	if e == nil {
		return found, tier
	}
	return e.Key, tier
}

func TestSecondStep(t *testing.T) {
	b, s := newListing(t)
	list := resultcache.Key{100}
	one, two, three := resultcache.Key{1}, resultcache.Key{2}, resultcache.Key{3}
	item := resultcache.Item{Unread: []byte{1}, Sum: [32]byte{7}, Result: one}
	b.Keep(nil, one, entryOf(t, one, "h"))
	b.KeepManifest(list, resultcache.Item{Unread: []byte{99}, Sum: [32]byte{7}, Result: one})
	b.KeepManifest(list, resultcache.Item{Unread: []byte{1}, Sum: [32]byte{8}, Result: one})
	b.writing.Wait()
	if key, tier := b.look(t, two); tier != "" {
		t.Errorf("%v found, of other inputs", key)
	}
	b.KeepManifest(list, resultcache.Item{Unread: []byte{2}, Sum: [32]byte{7}, Result: resultcache.Key{50}}) // it is gone
	b.KeepManifest(list, item)
	b.writing.Wait()
	far := b.far.gets
	if key, tier := b.look(t, two); key != one || tier != "near" {
		t.Errorf("%v from %q", key, tier)
	}
	if b.counts["near second"] != 1 || b.counts["near hit"] != 0 || b.counts["near miss"] != 1 || b.far.gets != far {
		t.Errorf("%v, %d looks further away, %d before", b.counts, b.far.gets, far)
	}
	if key, tier := b.look(t, two); key != two || tier != "near" || b.counts["near hit"] != 1 { // there is a copy now
		t.Errorf("%v from %q; %v", key, tier, b.counts)
	}
	if _, err := s.Get(t.Context(), two, nil); err != nil {
		t.Error(err)
	}
	if b.find(t, three) != "" { // a look that has no second step
		t.Error("found without a second step")
	}

	// A host that compiles wrongly.
	b.Distrust("h")
	b.writing.Wait()
	if key, tier := b.look(t, three); tier != "" {
		t.Errorf("%v of a host that compiles wrongly", key)
	}

	// A result that is damaged.
	e := entryOf(t, one, "i")
	e[len(e)-1]++
	if err := s.Put(t.Context(), one, e); err != nil {
		t.Fatal(err)
	}
	if key, tier := b.look(t, three); tier != "" || b.counts["near error"] != 1 {
		t.Errorf("%v, damaged; %v", key, b.counts)
	}
	if _, err := s.Get(t.Context(), one, nil); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("a damaged result is still there: %v", err)
	}
}

// TestDamagedManifest: a damaged manifest is a miss, and removed.
func TestDamagedManifest(t *testing.T) {
	b, s := newListing(t)
	list, one := resultcache.Key{100}, resultcache.Key{1}
	b.Keep(nil, one, entryOf(t, one, "h"))
	b.KeepManifest(list, resultcache.Item{Unread: []byte{1}, Sum: [32]byte{7}, Result: one})
	b.writing.Wait()
	m, err := s.GetManifest(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	m[len(m)/2]++
	if err := s.PutManifest(t.Context(), list, m); err != nil {
		t.Fatal(err)
	}
	// In a store that others use it may be whole: it is neither removed nor replaced.
	near := b.tiers[0]
	near.Shared = true
	if key, tier := b.look(t, resultcache.Key{2}); tier != "" || b.counts["near error"] != 1 {
		t.Errorf("%v from %q; %v", key, tier, b.counts)
	}
	near.delivers() // or else nothing at all would be written
	b.KeepManifest(list, resultcache.Item{Unread: []byte{1}, Sum: [32]byte{7}, Result: one})
	b.writing.Wait()
	if now, err := s.GetManifest(t.Context(), list); err != nil || !bytes.Equal(now, m) {
		t.Errorf("it was removed or replaced: %v", err)
	}
	near.delivers()
	near.Shared = false
	if key, tier := b.look(t, resultcache.Key{2}); tier != "" || b.counts["near error"] != 3 {
		t.Errorf("%v from %q; %v", key, tier, b.counts)
	}
	if _, err := s.GetManifest(t.Context(), list); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("it is still there: %v", err)
	}
	// It can be kept anew.
	b.KeepManifest(list, resultcache.Item{Unread: []byte{1}, Sum: [32]byte{7}, Result: one})
	b.writing.Wait()
	if key, tier := b.look(t, resultcache.Key{2}); key != one {
		t.Errorf("%v from %q", key, tier)
	}
	b.DropManifest(list)
	b.writing.Wait()
	if _, err := s.GetManifest(t.Context(), list); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestManifestReadOnly: nothing is written to a tier that is only read.
func TestManifestReadOnly(t *testing.T) {
	b, s := newListing(t)
	b.tiers[0].Write = false
	one, list := resultcache.Key{1}, resultcache.Key{100}
	m := &resultcache.Manifest{Key: list}
	m.Add(resultcache.Item{Unread: []byte{1}, Sum: [32]byte{7}, Result: one})
	text, err := m.Append(nil)
	if err := errors.Join(err, s.PutManifest(t.Context(), list, text), s.Put(t.Context(), one, entryOf(t, one, "h"))); err != nil {
		t.Fatal(err)
	}
	b.KeepManifest(list, resultcache.Item{Unread: []byte{2}, Sum: [32]byte{9}, Result: one})
	if key, _ := b.look(t, resultcache.Key{2}); key != one {
		t.Errorf("found %v", key)
	}
	b.DropManifest(list)
	b.writing.Wait()
	if u, err := s.Usage(t.Context()); err != nil || u.Files != 1 || u.Manifests != 1 || time.Since(u.Oldest) > time.Hour {
		t.Errorf("%+v, %v", u, err)
	}
}
