package disk

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/alone"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

var ctx = context.Background()

// open returns a store of the size, whose clock is set by hand.
func open(t *testing.T, dir string, size int64) (*Store, *time.Time) {
	t.Helper()
	s, err := Open(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.now = func() time.Time { return now }
	return s, &now
}

// entry returns an entry of one output with n bytes that cannot be made shorter, and its key in a part.
func entry(t *testing.T, part, number byte, n int) (resultcache.Key, []byte) {
	t.Helper()
	data := make([]byte, n)
	for i, x := 0, uint32(number)+1; i < n; i++ {
		x = x*1664525 + 1013904223
		data[i] = byte(x >> 24)
	}
	e := &resultcache.Entry{Key: resultcache.Key{part << 4, number}, Files: []resultcache.File{{Data: data}}}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.Key, b
}

func (s *Store) has(key resultcache.Key) bool {
	name, _ := s.path(key)
	_, err := os.Lstat(name)
	return err == nil
}

func TestPutGetDrop(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "new", "dir"), 1<<30)
	key, b := entry(t, 3, 1, 5000)
	if _, err := s.Get(ctx, key, nil); !errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("Get from an empty store: %v", err)
	}
	if err := s.Drop(ctx, key); err != nil {
		t.Errorf("Drop of nothing: %v", err)
	}
	for range 2 { // the second one replaces the first
		if err := s.Put(ctx, key, b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(ctx, key, []byte("before"))
	if err != nil || !bytes.Equal(got, append([]byte("before"), b...)) {
		t.Errorf("Get: %v, %d bytes of %d", err, len(got)-6, len(b))
	}
	if u, err := s.Usage(ctx); err != nil || u.Files != 1 || u.Bytes != blocks(int64(len(b))) || s.Size() != u.Bytes {
		t.Errorf("%+v, %v; estimate %d", u, err, s.Size())
	}
	st, err := os.Stat(s.Dir())
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", st.Mode(), err)
	}
	if err := s.Drop(ctx, key); err != nil || s.has(key) || s.Size() != 0 {
		t.Errorf("Drop: %v", err)
	}
}

// TestLeastRecentlyUsedGoFirst: a part that is too big loses what was not used for the longest time.
func TestLeastRecentlyUsedGoFirst(t *testing.T) {
	const size = 64 << 10
	s, now := open(t, t.TempDir(), parts*size)
	var keys []resultcache.Key
	for i := range byte(8) {
		key, b := entry(t, 5, i, 7<<10) // takes two blocks
		if err := s.Put(ctx, key, b); err != nil {
			t.Fatal(err)
		}
		name, _ := s.path(key)
		at := now.Add(time.Duration(i)*time.Hour - 24*time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if _, err := s.Get(ctx, keys[0], nil); err != nil { // is used now
		t.Fatal(err)
	}
	other, b := entry(t, 6, 0, 7<<10)
	if err := s.Put(ctx, other, b); err != nil {
		t.Fatal(err)
	}
	key, b := entry(t, 5, 8, 7<<10)
	if err := s.Put(ctx, key, b); err != nil {
		t.Fatal(err)
	}
	if !s.has(keys[0]) || s.has(keys[1]) || s.has(keys[2]) || !s.has(keys[3]) || !s.has(key) || !s.has(other) {
		t.Error("other entries are left than the most recently used ones")
	}
	if u, err := s.Usage(ctx); err != nil || u.Bytes > size+8<<10 {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestClockSetBack: an entry from the future does not outlive all others.
func TestClockSetBack(t *testing.T) {
	const size = 32 << 10
	s, now := open(t, t.TempDir(), parts*size)
	first, b := entry(t, 1, 0, 7<<10)
	if err := s.Put(ctx, first, b); err != nil {
		t.Fatal(err)
	}
	name, _ := s.path(first)
	future := now.Add(1000 * time.Hour)
	if err := os.Chtimes(name, future, future); err != nil {
		t.Fatal(err)
	}
	for i := range byte(40) {
		key, b := entry(t, 1, i+1, 7<<10)
		if err := s.Put(ctx, key, b); err != nil {
			t.Fatal(err)
		}
	}
	if s.has(first) {
		t.Error("the entry from the future is still there")
	}
}

// TestSeveralStores: two programs with one directory do not disturb each other, and keep to its size together.
func TestSeveralStores(t *testing.T) {
	const size = 128 << 10
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range byte(4) {
		s, _ := open(t, dir, parts*size)
		wg.Go(func() {
			for j := range byte(60) {
				key, b := entry(t, 2, j, 6<<10)
				if err := s.Put(ctx, key, b); err != nil {
					t.Errorf("store %d: %v", i, err)
				}
				got, err := s.Get(ctx, key, nil)
				switch {
				case errors.Is(err, resultcache.ErrMiss): // another one has removed it
				case err != nil:
					t.Errorf("store %d: %v", i, err)
				default:
					if _, err := resultcache.Decode(got, key, func(n int) ([]byte, error) { return make([]byte, n), nil }); err != nil {
						t.Errorf("store %d: %v", i, err)
					}
				}
			}
		})
	}
	wg.Wait()
	s, _ := open(t, dir, parts*size)
	u, err := s.Usage(ctx)
	if err != nil || u.Files == 0 || u.Bytes > 2*size {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestTrouble: what is in the place of an entry is not taken for one, and nothing waits.
func TestTrouble(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	key, b := entry(t, 1, 1, 100)
	name, _ := s.path(key)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func() error{
		"FIFO":      func() error { return unix.Mkfifo(name, 0o600) },
		"directory": func() error { return os.Mkdir(name, 0o700) },
		"link":      func() error { return os.Symlink("/etc/passwd", name) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, key, nil); err == nil || errors.Is(err, resultcache.ErrMiss) {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(ctx, key, make([]byte, 1<<30)); !errors.Is(err, resultcache.ErrTooBig) {
		t.Errorf("too big: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, file, 1<<30)
	if err := s.Put(ctx, key, b); err == nil {
		t.Error("Put below a file succeeds")
	}
	if _, err := Open("relative", 1); err == nil {
		t.Error("a relative directory is taken")
	}
}

// TestFullDisk: an entry that could not be written whole is not there, and leaves nothing behind.
func TestFullDisk(t *testing.T) {
	if !alone.Here(t) {
		return
	}
	s, _ := open(t, t.TempDir(), 1<<30)
	key, b := entry(t, 1, 1, 100<<10)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limit := was
	limit.Cur = 50 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	err := s.Put(ctx, key, b)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err == nil || s.has(key) {
		t.Errorf("Put: %v", err)
	}
	_ = filepath.WalkDir(s.Dir(), func(name string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			t.Errorf("%s is left", name)
		}
		return nil
	})
}

// TestPrune: Prune, PruneOlder, Clear and Verify remove what they say, and leftovers of killed programs go
// with the time.
func TestPrune(t *testing.T) {
	s, now := open(t, t.TempDir(), 1<<30)
	var keys []resultcache.Key
	for i := range byte(6) {
		key, b := entry(t, i, i, 3<<10)
		if err := s.Put(ctx, key, b); err != nil {
			t.Fatal(err)
		}
		name, _ := s.path(key)
		at := now.Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	start := *now
	*now = now.Add(10 * time.Hour)
	name, _ := s.path(keys[5])
	leftover, fresh := filepath.Join(filepath.Dir(name), newPrefix+"1"), filepath.Join(filepath.Dir(name), newPrefix+"2")
	for _, f := range []string{leftover, fresh} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(fresh, *now, *now); err != nil {
		t.Fatal(err)
	}
	if u, err := s.PruneOlder(ctx, start.Add(90*time.Minute)); err != nil || u.Files != 2 || s.has(keys[1]) || !s.has(keys[2]) {
		t.Errorf("PruneOlder: %+v, %v", u, err)
	}
	if u, err := s.Prune(ctx, 8<<10); err != nil || u.Files != 2 || s.has(keys[3]) || !s.has(keys[4]) {
		t.Errorf("Prune: %+v, %v", u, err)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("what a killed program has left is still there")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error("a file that is being written is removed")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1]++
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := 0
	if u, err := s.Verify(ctx, func(got string, _ error) {
		if bad++; got != name {
			t.Errorf("%s is damaged", got)
		}
	}); err != nil || u.Files != 2 || bad != 1 || s.has(keys[5]) || !s.has(keys[4]) {
		t.Errorf("Verify: %+v, %v, %d damaged", u, err, bad)
	}
	if u, err := s.Clear(ctx); err != nil || u.Files != 1 || s.has(keys[4]) {
		t.Errorf("Clear: %+v, %v", u, err)
	}
}
