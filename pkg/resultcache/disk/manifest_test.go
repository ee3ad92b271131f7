package disk

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// manifest returns a manifest with a key in a part.
func manifest(t *testing.T, part byte) (resultcache.Key, []byte) {
	t.Helper()
	m := &resultcache.Manifest{Key: resultcache.Key{part << 4, 1}}
	m.Add(resultcache.Item{Unread: []byte{1}})
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m.Key, b
}

// TestManifests: manifests are beside entries, are not taken for such, and count and age like them.
func TestManifests(t *testing.T) {
	s, now := open(t, t.TempDir(), 1<<30)
	key, m := manifest(t, 3)
	other, e := entry(t, 3, 2, 5000)
	if _, err := s.GetManifest(ctx, key); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("from an empty store: %v", err)
	}
	if err := errors.Join(s.DropManifest(ctx, key), s.PutManifest(ctx, key, m), s.PutManifest(ctx, key, m), s.Put(ctx, other, e)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetManifest(ctx, key); err != nil || !bytes.Equal(got, m) {
		t.Errorf("%v, %d bytes of %d", err, len(got), len(m))
	}
	if _, err := s.Get(ctx, key, nil); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("a manifest as an entry: %v", err)
	}
	if _, err := s.GetManifest(ctx, other); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("an entry as a manifest: %v", err)
	}
	size := blocks(int64(len(m))) + blocks(int64(len(e)))
	if u, err := s.Usage(ctx); err != nil || u.Files != 1 || u.Manifests != 1 || u.Bytes != size || s.Size() != size {
		t.Errorf("%+v, %v; estimate %d", u, err, s.Size())
	}
	if n, err := s.DropWhere(ctx, func(*resultcache.Origin) bool { return true }); err != nil || n != 1 {
		t.Errorf("DropWhere: %d, %v", n, err)
	}
	*now = now.Add(time.Hour)
	if u, err := s.PruneOlder(ctx, now.Add(-time.Minute)); err != nil || u.Files != 0 || u.Manifests != 1 {
		t.Errorf("PruneOlder: %+v, %v", u, err)
	}
	if err := errors.Join(s.PutManifest(ctx, key, m), s.Put(ctx, other, e)); err != nil {
		t.Fatal(err)
	}
	if err := s.DropManifest(ctx, key); err != nil {
		t.Error(err)
	}
	if _, err := s.GetManifest(ctx, key); !errors.Is(err, resultcache.ErrMiss) || !s.has(other) {
		t.Errorf("DropManifest: %v, the entry is there: %v", err, s.has(other))
	}
	if err := s.PutManifest(ctx, key, m); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Clear(ctx); err != nil || u.Files != 1 || u.Manifests != 1 {
		t.Errorf("Clear: %+v, %v", u, err)
	}
}

// TestVerifyManifests: damaged manifests are found and removed, and those in a wrong place.
func TestVerifyManifests(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	one, m := manifest(t, 1)
	two, _ := manifest(t, 2)
	three, n := manifest(t, 3)
	n[len(n)-1]++
	_, e := entry(t, 4, 1, 10)
	if err := errors.Join(s.PutManifest(ctx, one, m), s.PutManifest(ctx, two, m), s.PutManifest(ctx, three, n), s.PutManifest(ctx, resultcache.Key{0x40, 1}, e)); err != nil {
		t.Fatal(err)
	}
	bad := 0
	u, err := s.Verify(ctx, func(_ string, err error) {
		bad++
		if !errors.Is(err, resultcache.ErrDamaged) {
			t.Error(err)
		}
	})
	if err != nil || u.Manifests != 4 || bad != 3 {
		t.Errorf("%+v, %d bad, %v", u, bad, err)
	}
	if u, err := s.Usage(ctx); err != nil || u.Manifests != 1 {
		t.Errorf("%+v, %v", u, err)
	}
	// Something else in its place is none.
	name, _ := s.path(one)
	if err := os.Remove(name + manifestSuffix); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name+manifestSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetManifest(ctx, one); !errors.Is(err, resultcache.ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
}
