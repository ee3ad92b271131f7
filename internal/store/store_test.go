package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// words is a log that tests read.
type words struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) lines() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.b.String(), "\n")
}

func open(t *testing.T, o Options) (*Store, *words) {
	t.Helper()
	w := new(words)
	o.Log = slog.New(slog.NewTextHandler(w, nil))
	s := New(o)
	t.Cleanup(func() {
		s.Close()
		if st := s.Stats(); st.Bytes != 0 || st.Contents != 0 {
			t.Errorf("left after Close: %+v", st)
		}
	})
	return s, w
}

// content makes one of n bytes that is like no other.
func content(n, seed int) (ID, []byte) {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(n), byte(n >> 8), byte(n >> 16)}).Read(b) // never fails
	return sha256.Sum256(b), b
}

func put(t *testing.T, x *Tenant, n, seed int) ID {
	t.Helper()
	id, b := content(n, seed)
	c, err := x.Put(id, b)
	if err != nil {
		t.Fatalf("Put: %v", err)
	}
	c.Unpin()
	return id
}

// has wants a content to be there, or not, and as it was put.
func has(t *testing.T, x *Tenant, n, seed int, want bool) {
	t.Helper()
	id, b := content(n, seed)
	c := x.Pin(id)
	if (c != nil) != want {
		t.Fatalf("content %d of %d bytes is there: %v, want %v", seed, n, c != nil, want)
	}
	if c == nil {
		return
	}
	defer c.Unpin()
	if !bytes.Equal(c.Bytes(), b) || !c.Intact() {
		t.Fatalf("content %d of %d bytes is another one", seed, n)
	}
}

func TestPutAndPin(t *testing.T) {
	s, _ := open(t, Options{Memory: 64 << 20})
	x := s.Open("x")
	defer x.Close()
	sizes := []int{0, 1, 4095, 4096, 4097, 100_000, 3 << 20, 20 << 20}
	for i, n := range sizes {
		put(t, x, n, i)
		put(t, x, n, i)
	}
	for i, n := range sizes {
		has(t, x, n, i, true)
		has(t, x, n+1, i, false)
	}
	if st := s.Stats(); st.Hits == 0 || st.Lacks == 0 || st.Contents != len(sizes)-1 {
		t.Errorf("%+v", st)
	}
	if x.Epoch() == 0 {
		t.Error("an epoch of 0 is no epoch")
	}
}

// TestOtherContent: a name stands for its content alone, whatever is already there.
func TestOtherContent(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20})
	x := s.Open("x")
	defer x.Close()
	id, b := content(1000, 1)
	_, other := content(1000, 2)
	for range 2 {
		if _, err := x.Put(id, other); !errors.Is(err, ErrOther) {
			t.Fatalf("Put of another content: %v", err)
		}
		if _, err := x.Put(ID{}, nil); !errors.Is(err, ErrOther) {
			t.Fatalf("Put of no content: %v", err)
		}
		c, err := x.Put(id, b)
		if err != nil {
			t.Fatal(err)
		}
		c.Unpin()
	}
	has(t, x, 1000, 1, true)
	var none *Tenant // keeps nothing, but a job may use what it brings
	if _, err := none.Put(id, other); !errors.Is(err, ErrOther) {
		t.Errorf("Put of another content without a store: %v", err)
	}
	if _, err := none.Put(id, b); !errors.Is(err, ErrFull) {
		t.Errorf("Put without a store: %v", err)
	}
}

// Nothing of one tenant's is there for another one.
func TestTenantsShareNothing(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20, Disk: 1 << 20, Dir: filepath.Join(t.TempDir(), "s"), Keep: time.Hour})
	x, y := s.Open("x"), s.Open("y")
	defer x.Close()
	defer y.Close()
	put(t, x, 1000, 1)
	has(t, y, 1000, 1, false)
	put(t, y, 1000, 1)
	if st := s.Stats(); st.Contents != 2 {
		t.Errorf("%d contents, want one for each tenant", st.Contents)
	}
	if x.Epoch() == y.Epoch() {
		t.Error("two tenants have the same epoch")
	}
}

// TestFloodEvictsItself: a tenant that fills the store loses its own, down to an equal share; the most
// recently used stays.
func TestFloodEvictsItself(t *testing.T) {
	const n = 10_000
	s, _ := open(t, Options{Memory: 100 * (3*pageSize + overhead)})
	quiet, loud := s.Open("quiet"), s.Open("loud")
	defer quiet.Close()
	defer loud.Close()
	for i := range 45 {
		put(t, quiet, n, i)
	}
	for i := range 1000 {
		put(t, loud, n, 1000+i)
	}
	for i := range 45 {
		has(t, quiet, n, i, true)
	}
	has(t, loud, n, 1999, true)
	has(t, loud, n, 1000, false)
	// And the one that comes later has its part at once.
	third := s.Open("third")
	defer third.Close()
	for i := range 30 {
		put(t, third, n, 5000+i)
	}
	for i := range 30 {
		has(t, third, n, 5000+i, true)
	}
	if st := s.Stats(); st.Evictions == 0 || st.Bytes > s.o.Memory {
		t.Errorf("%+v", st)
	}
}

// What is pinned stays as it is; where nothing else is left there is no room.
func TestPinnedStays(t *testing.T) {
	const n = 4096
	s, _ := open(t, Options{Memory: 16 * (n + overhead)})
	x := s.Open("x")
	defer x.Close()
	var pinned []*Content
	for i := 0; ; i++ {
		id, b := content(n, i)
		c, err := x.Put(id, b)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pinned = append(pinned, c)
	}
	if len(pinned) != 14 { // but for the part that is others'
		t.Errorf("%d contents found room", len(pinned))
	}
	y := s.Open("y")
	put(t, y, n, 100)
	y.Close()
	s.Shrink(1 << 30)
	s.Limit(0)
	for i, c := range pinned {
		if _, b := content(n, i); !bytes.Equal(c.Bytes(), b) || !c.Intact() {
			t.Fatalf("content %d changed while it was pinned", i)
		}
		c.Unpin()
	}
	s.Limit(1 << 30)
	put(t, x, n, 200)
	has(t, x, n, 200, true)
}

func TestLimitAndShrink(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20})
	x := s.Open("x")
	defer x.Close()
	for i := range 100 {
		put(t, x, 4096, i)
	}
	before := s.Stats().Bytes
	if got := s.Shrink(before / 2); got < before/2 || s.Stats().Bytes != before-got {
		t.Errorf("Shrink(%d) = %d of %d", before/2, got, before)
	}
	has(t, x, 4096, 99, true)
	has(t, x, 4096, 0, false)
	s.Limit(20_000)
	if st := s.Stats(); st.Bytes > 20_000 {
		t.Errorf("%d bytes beyond the limit", st.Bytes)
	}
	if _, err := x.Put(content(30_000, 1)); !errors.Is(err, ErrFull) {
		t.Errorf("Put beyond the limit: %v", err)
	}
}

// With its last connection a tenant is gone, or as much later as is set; its epoch tells.
func TestKeep(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20})
	x := s.Open("x")
	epoch := x.Epoch()
	put(t, x, 1000, 1)
	again := s.Open("x")
	x.Close()
	has(t, again, 1000, 1, true)
	pinned := again.Pin(put(t, again, 1000, 2))
	again.Close()
	if _, b := content(1000, 2); !bytes.Equal(pinned.Bytes(), b) {
		t.Error("what was pinned has gone with its tenant")
	}
	pinned.Unpin()
	if st := s.Stats(); st.Bytes != 0 || st.Contents != 0 {
		t.Errorf("left of a tenant that is gone: %+v", st)
	}
	x = s.Open("x")
	defer x.Close()
	has(t, x, 1000, 1, false)
	if x.Epoch() == epoch {
		t.Error("the epoch is the same after all was wiped")
	}

	s, _ = open(t, Options{Memory: 1 << 20, Keep: time.Minute})
	x = s.Open("x")
	epoch = x.Epoch()
	put(t, x, 1000, 1)
	x.Close()
	s.Tick(time.Now().Add(time.Minute / 2))
	x = s.Open("x")
	has(t, x, 1000, 1, true)
	if x.Epoch() != epoch {
		t.Error("the epoch is another one, and nothing was wiped")
	}
	s.Tick(time.Now().Add(time.Hour)) // it is connected
	has(t, x, 1000, 1, true)
	x.Close()
	s.Tick(time.Now().Add(2 * time.Minute))
	if st := s.Stats(); st.Bytes != 0 || st.Contents != 0 {
		t.Errorf("left of a tenant that is gone: %+v", st)
	}
}

// Tenants that come and go are not remembered without bound, those without contents not at all.
func TestManyTenants(t *testing.T) {
	s, _ := open(t, Options{Memory: 64 << 20, Keep: time.Hour})
	for i := range away + 100 {
		x := s.Open(fmt.Sprint(i))
		if i%2 == 0 {
			put(t, x, 10, i)
		}
		x.Close()
	}
	if n := len(s.tenants); n != (away+100)/2 {
		t.Errorf("%d tenants, want those with contents, %d", n, (away+100)/2)
	}
	for i := range 2 * away {
		x := s.Open(fmt.Sprint(i))
		put(t, x, 10, i)
		x.Close()
	}
	s.Tick(time.Now())
	if n := len(s.tenants); n != away {
		t.Errorf("%d tenants, want %d", n, away)
	}
}

// Memory that changes by itself is noticed, and is not handed out again.
func TestMemoryThatForgets(t *testing.T) {
	s, w := open(t, Options{Memory: 1 << 20})
	x := s.Open("x")
	defer x.Close()
	id := put(t, x, 5000, 1)
	c := x.Pin(id)
	c.Bytes()[4321] ^= 4
	if c.Intact() {
		t.Error("a flipped bit was not seen")
	}
	has(t, x, 5000, 1, false)
	c.Unpin()
	put(t, x, 5000, 1)
	c = x.Pin(id)
	c.Bytes()[0] ^= 1
	put(t, x, 5000, 1) // which meets what is wrong
	c.Unpin()
	has(t, x, 5000, 1, true)
	if w.lines() != 2 {
		t.Errorf("%d lines in the log, want 2", w.lines())
	}
}

// reopened closes a store and opens the next one of the same directory.
func reopened(t *testing.T, s *Store, o Options) (*Store, *words) {
	t.Helper()
	s.Close()
	return open(t, o)
}

func TestDiskOutlivesTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "store")
	o := Options{Memory: 1 << 20, Disk: 1 << 20, Dir: dir, Keep: time.Hour}
	s := New(Options{Memory: o.Memory, Disk: o.Disk, Dir: dir, Keep: o.Keep, Log: slog.New(slog.DiscardHandler)})
	x := s.Open("some tenant")
	epoch := x.Epoch()
	for i := range 50 {
		put(t, x, 1000+i, i)
	}
	x.Close()
	s, w := reopened(t, s, o)
	other := s.Open("other")
	has(t, other, 1000, 0, false)
	other.Close()
	x = s.Open("some tenant")
	if x.Epoch() != epoch {
		t.Error("the epoch is another one, and nothing was wiped")
	}
	for i := range 50 {
		has(t, x, 1000+i, i, true)
	}
	x.Close()
	for _, e := range entries(t, dir) {
		if strings.Contains(e, "tenant") {
			t.Errorf("%s tells of a tenant", e)
		}
	}
	// Without memory for it, it is on disk still.
	x = s.Open("some tenant")
	s.Shrink(1 << 30)
	if st := s.Stats(); st.Bytes != 0 || st.Contents != 50 {
		t.Errorf("%+v", st)
	}
	has(t, x, 1049, 49, true)
	x.Close()
	if w.lines() != 0 {
		t.Errorf("the log has %s", w.b.String())
	}

	// Kept for no time, it goes.
	o.Keep = 0
	s, _ = reopened(t, s, o)
	x = s.Open("some tenant")
	has(t, x, 1000, 0, false)
	if x.Epoch() == epoch {
		t.Error("the epoch is the same after all was wiped")
	}
	put(t, x, 1000, 1)
	x.Close()
	s.Close()
	if got := entries(t, dir); len(got) != 2 { // lock and key
		t.Errorf("left in the directory: %q", got)
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// What the disk has changed counts as absent, in one line, and can be put again.
func TestDiskThatLies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	o := Options{Memory: 1 << 20, Disk: 1 << 20, Dir: dir, Keep: time.Hour}
	s, _ := open(t, o)
	x := s.Open("x")
	for i := range 6 {
		put(t, x, 1000, i)
	}
	x.Close()
	s.Close()
	file := func(i int) string {
		id, _ := content(1000, i)
		list, err := filepath.Glob(filepath.Join(dir, "*-*", fileName(id)))
		if err != nil || len(list) != 1 {
			t.Fatalf("files of a content: %v, %v", list, err)
		}
		return list[0]
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file(0))
	must(err)
	b[500] ^= 1
	must(os.WriteFile(file(0), b, 0o600))
	must(os.Truncate(file(1), 999))
	must(os.Truncate(file(2), 0))
	name := file(3)
	must(os.Remove(name))
	must(os.Symlink("/etc/passwd", name))
	name = file(4)
	must(os.Remove(name))
	must(unix.Mkfifo(name, 0o600))
	s, w := open(t, o)
	x = s.Open("x")
	defer x.Close()
	for i := range 5 {
		has(t, x, 1000, i, false)
	}
	has(t, x, 1000, 5, true)
	if n := w.lines(); n != 1 {
		t.Errorf("%d lines in the log, want 1:\n%s", n, w.b.String())
	}
	for i := range 6 {
		put(t, x, 1000, i)
		has(t, x, 1000, i, true)
	}
	// One that goes while the store runs.
	for st := s.Stats(); st.DiskBytes < 6*(1000+overhead); st = s.Stats() {
		time.Sleep(time.Millisecond)
	}
	must(os.Remove(file(5)))
	s.Shrink(1 << 30)
	has(t, x, 1000, 5, false)
	has(t, x, 1000, 4, true)
}

// TestDiskOfOtherLength: a file whose length has changed after a restart does not pass that on to the
// content when it is put again before it has been asked for.
func TestDiskOfOtherLength(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	o := Options{Memory: 1 << 20, Disk: 1 << 20, Dir: dir, Keep: time.Hour}
	s, _ := open(t, o)
	x := s.Open("x")
	sizes := []int64{0: 999, 1: 1001, 2: 3 * pageSize, 3: 200 * pageSize, 4: 1}
	for i := range sizes {
		put(t, x, 1000, i)
	}
	x.Close()
	s.Close()
	for i, size := range sizes {
		id, _ := content(1000, i)
		list, err := filepath.Glob(filepath.Join(dir, "*-*", fileName(id)))
		if err != nil || len(list) != 1 {
			t.Fatalf("files of a content: %v, %v", list, err)
		}
		if err := os.Truncate(list[0], size); err != nil {
			t.Fatal(err)
		}
	}
	s, w := open(t, o)
	x = s.Open("x")
	defer x.Close()
	for began := time.Now(); s.Stats().Contents < len(sizes); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the files are not found")
		}
	}
	for i := range sizes {
		id, b := content(1000, i)
		c, err := x.Put(id, b)
		if err != nil {
			t.Fatal(err)
		}
		if c.Len() != len(b) || !bytes.Equal(c.Bytes(), b) || !c.Intact() {
			t.Errorf("a content of %d bytes has %d, as its file of before", len(b), c.Len())
		}
		c.Unpin()
		has(t, x, 1000, i, true)
	}
	// What is on disk by now is right again.
	for st := s.Stats(); st.DiskBytes < int64(len(sizes))*(1000+overhead); st = s.Stats() {
		time.Sleep(time.Millisecond)
	}
	s.Shrink(1 << 30)
	for i := range sizes {
		has(t, x, 1000, i, true)
	}
	if st := s.Stats(); st.DiskBytes != int64(len(sizes))*(1000+overhead) || st.Contents != len(sizes) || w.lines() != 0 {
		t.Errorf("%+v, and the log has %s", st, w.b.String())
	}
}

// A directory that cannot be used leaves memory alone, in one line.
func TestDiskThatCannotBeUsed(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open2 := filepath.Join(base, "open")
	if err := os.Mkdir(open2, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open2, 0o777); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(base, "taken")
	holder, _ := open(t, Options{Memory: 1 << 20, Disk: 1 << 20, Dir: taken})
	_ = holder
	for name, dir := range map[string]string{"a file": file, "below a file": file + "/x", "open to others": open2, "another's": taken, "in proc": "/proc/none"} {
		s, w := open(t, Options{Memory: 1 << 20, Disk: 1 << 30, Dir: dir})
		x := s.Open("x")
		put(t, x, 1000, 1)
		has(t, x, 1000, 1, true)
		x.Close()
		if w.lines() != 1 {
			t.Errorf("%s: the log has %q, want one line", name, w.b.String())
		}
		if s.Most() >= 1<<20 {
			t.Errorf("%s: %d bytes are kept, without a disk", name, s.Most())
		}
	}
}

// Disk has its own bound, and its own even parts.
func TestDiskIsBounded(t *testing.T) {
	const n = 1000
	s, _ := open(t, Options{Memory: 1 << 20, Disk: 100 * (n + overhead), Dir: filepath.Join(t.TempDir(), "store"), Keep: time.Hour})
	quiet, loud := s.Open("quiet"), s.Open("loud")
	defer quiet.Close()
	defer loud.Close()
	for i := range 40 {
		put(t, quiet, n, i)
	}
	for i := range 300 {
		put(t, loud, n, 1000+i)
	}
	s.flush(t)
	if st := s.Stats(); st.DiskBytes > s.o.Disk {
		t.Errorf("%d bytes on disk of %d", st.DiskBytes, s.o.Disk)
	}
	s.Shrink(1 << 30)
	for i := range 40 {
		has(t, quiet, n, i, true)
	}
	has(t, loud, n, 1000, false)
	has(t, loud, n, 1299, true)
}

// flush waits until what was put is on disk.
func (s *Store) flush(t *testing.T) {
	t.Helper()
	for range 60_000 {
		s.mu.Lock()
		n := s.disk.queued
		s.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the disk does not write")
}

// A disk without room leaves memory alone, in one line.
func TestFullDisk(t *testing.T) {
	base := t.TempDir()
	if err := unix.Mount("none", base, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(base, 0); err != nil {
			t.Error(err)
		}
	}()
	w := new(words)
	s := New(Options{Memory: 4 << 20, Disk: 4 << 20, Dir: filepath.Join(base, "store"), Keep: time.Hour, Log: slog.New(slog.NewTextHandler(w, nil))})
	defer s.Close()
	x := s.Open("x")
	defer x.Close()
	for i := range 100 {
		put(t, x, 4000, i)
	}
	for i := range 100 {
		has(t, x, 4000, i, true)
	}
	s.flush(t)
	if w.lines() != 1 {
		t.Errorf("the log has %q, want one line", w.b.String())
	}
	if st := s.Stats(); st.DiskBytes == 0 || st.DiskBytes > 64<<10 {
		t.Errorf("%d bytes on a disk of 64 KiB", st.DiskBytes)
	}
	s.Shrink(1 << 30)
	has(t, x, 4000, 0, true)   // from disk
	has(t, x, 4000, 99, false) // it had no room there
}

// TestManyAtATime: many at a time, with little room, and with a disk: what is found is what was put.
func TestManyAtATime(t *testing.T) {
	s, w := open(t, Options{Memory: 400 << 10, Disk: 300 << 10, Dir: filepath.Join(t.TempDir(), "store"), Keep: time.Minute})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			x := s.Open(fmt.Sprint("tenant", g%3))
			defer x.Close()
			for range 1000 {
				n, seed := 1+r.IntN(20_000), r.IntN(4)
				n = n / 1000 * 1000
				id, b := content(n, seed)
				var c *Content
				if r.IntN(2) == 0 {
					c = x.Pin(id)
				} else {
					var err error
					if c, err = x.Put(id, b); err != nil && !errors.Is(err, ErrFull) {
						t.Errorf("Put: %v", err)
					}
				}
				if c != nil {
					if !bytes.Equal(c.Bytes(), b) || !c.Intact() {
						t.Error("another content")
					}
					c.Unpin()
				}
				if r.IntN(200) == 0 {
					s.Shrink(100 << 10)
					s.Tick(time.Now())
				}
			}
		})
	}
	all.Wait()
	if n := w.lines(); n != 0 {
		t.Errorf("the log has %s", w.b.String())
	}
}

// A chunk hands out each page once, clear, and all of them again.
func TestMemory(t *testing.T) {
	var m memory
	r := rand.New(rand.NewPCG(1, 2))
	var held []block
	for i := range 20_000 {
		if len(held) > 0 && r.IntN(5) < 2 {
			j := r.IntN(len(held))
			b := held[j]
			if b.bytes[0] != byte(b.first) || b.bytes[len(b.bytes)-1] != byte(len(b.bytes)/pageSize) {
				t.Fatalf("step %d: a block was handed out twice", i)
			}
			m.free(b)
			held[j] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		n := 1 + r.IntN(20*pageSize)
		if r.IntN(500) == 0 {
			n += lonePages * pageSize
		}
		b, err := m.allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.bytes) < n || len(b.bytes) >= n+pageSize || b.bytes[0] != 0 || b.bytes[len(b.bytes)-1] != 0 {
			t.Fatalf("step %d: %d bytes for %d, or not clear", i, len(b.bytes), n)
		}
		b.bytes[0], b.bytes[len(b.bytes)-1] = byte(b.first), byte(len(b.bytes)/pageSize)
		held = append(held, b)
	}
	for _, b := range held {
		m.free(b)
	}
	if len(m.chunks) != 0 {
		t.Errorf("%d chunks left", len(m.chunks))
	}
}

func BenchmarkPin(b *testing.B) {
	s := New(Options{Memory: 64 << 20, Log: slog.New(slog.DiscardHandler)})
	x := s.Open("x")
	var ids []ID
	for i := range 350 {
		id, c := content(14<<10, i)
		p, err := x.Put(id, c)
		if err != nil {
			b.Fatal(err)
		}
		p.Unpin()
		ids = append(ids, id)
	}
	var list []*Content
	for b.Loop() {
		list = list[:0]
		for _, id := range ids {
			list = append(list, x.Pin(id))
		}
		for _, c := range list {
			if !c.Intact() {
				b.Fatal("spoiled")
			}
		}
		for _, c := range list {
			c.Unpin()
		}
	}
}

func BenchmarkPut(b *testing.B) {
	id, c := content(14<<10, 1)
	b.SetBytes(int64(len(c)))
	for b.Loop() {
		s := New(Options{Memory: 64 << 20, Log: slog.New(slog.DiscardHandler)})
		x := s.Open("x")
		p, err := x.Put(id, c)
		if err != nil {
			b.Fatal(err)
		}
		p.Unpin()
		x.Close()
	}
}

func BenchmarkSHA256(b *testing.B) {
	_, c := content(14<<10, 1)
	b.SetBytes(int64(len(c)))
	for b.Loop() {
		_ = sha256.Sum256(c)
	}
}
