package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// write returns what makes an image of n zeros.
func write(t *testing.T, n int) func(keep func(*os.File, int64) error) error {
	return func(keep func(*os.File, int64) error) error {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Truncate(int64(n)); err != nil {
			return err
		}
		return keep(f, int64(n))
	}
}

func owner(name string) Owner { return Owner{Name: name} }

func get(t *testing.T, s *Store, key byte, tenant string, n int) *Image {
	t.Helper()
	x, err := s.Get(Key{key}, owner(tenant), nil, write(t, n))
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Bytes()) != n {
		t.Errorf("image %d has %d bytes, want %d", key, len(x.Bytes()), n)
	}
	return x
}

// has reports whether an image is kept.
func has(s *Store, key byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[Key{key}] != nil
}

// TestRoom: images take no more room than they may, the least recently used one goes first, and no tenant takes all.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, 10000)
	get(t, s, 1, "a", 3000).Free()
	get(t, s, 2, "a", 3000).Free()
	get(t, s, 3, "b", 3000).Free()
	get(t, s, 1, "a", 3000).Free() // used again
	get(t, s, 4, "b", 3000).Free() // b's own goes, as b would have more than half
	if !has(s, 1) || !has(s, 2) || has(s, 3) || !has(s, 4) {
		t.Errorf("b has driven out what is a's: %+v", s.Stats())
	}
	get(t, s, 5, "c", 4000).Free()
	if has(s, 2) || !has(s, 1) || !has(s, 4) || !has(s, 5) {
		t.Errorf("not the least recently used one has gone: %+v", s.Stats())
	}
	if _, err := s.Get(Key{6}, owner("c"), nil, write(t, 20000)); !errors.Is(err, ErrRoom) || !has(s, 1) || !has(s, 4) || !has(s, 5) {
		t.Errorf("one that is too big: %v, %+v", err, s.Stats())
	}
	if st := s.Stats(); st.Bytes != 10000 || st.Made != 5 || st.Used != 1 || st.Failed != 1 || st.Gone != 2 {
		t.Errorf("%+v", st)
	}
	s.Close()
	if st := s.Stats(); st.Images != 0 || st.Bytes != 0 {
		t.Errorf("after Close: %+v", st)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

// TestRoomInUse: images that are in use, and those that are being copied, count as room that is taken.
func TestRoomInUse(t *testing.T) {
	s := New(t.TempDir(), 10000)
	x := get(t, s, 1, "a", 3000)
	began, goOn, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		y, err := s.Get(Key{2}, owner("b"), nil, func(keep func(*os.File, int64) error) error {
			err := write(t, 6000)(keep)
			close(began)
			<-goOn
			return err
		})
		y.Free()
		done <- err
	}()
	<-began
	if _, err := s.Get(Key{3}, owner("c"), nil, write(t, 1500)); !errors.Is(err, ErrRoom) {
		t.Errorf("beside 9000 of 10000 bytes: %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.Tick(true) // the second one is not in use
	if s.Tick(false); has(s, 2) || !has(s, 1) || s.Stats().Bytes != 3000 {
		t.Errorf("%+v", s.Stats())
	}
	get(t, s, 3, "c", 7000).Free()
	x.Free()
}

// TestManySmall: however small images are, there are only so many, as each takes a mapping; and a tenant that has many small ones
// drops its own.
func TestManySmall(t *testing.T) {
	s := New(t.TempDir(), 10*mostParts)
	get(t, s, 1, "a", 1).Free()
	for i := range 2 * mostParts { // without files, which would take their time
		x, _ := s.enter(Key{2, byte(i), byte(i >> 8)}, owner("b"))
		if err := s.reserve(x, 1); err != nil {
			t.Fatal(err)
		}
		s.end(x, nil)
		x.Free()
	}
	if st := s.Stats(); st.Images != mostParts || !has(s, 1) {
		t.Errorf("%+v, the other tenant's is there: %v", st, has(s, 1))
	}
}

// TestTick: while the machine is short of memory, nothing stays that is not in use; and what was made for a tenant goes with it.
func TestTick(t *testing.T) {
	s := New(t.TempDir(), 10000)
	gone := false
	leaving := Owner{"b", func() bool { return gone }}
	get(t, s, 1, "a", 1000).Free()
	x := get(t, s, 2, "a", 1000)
	y, err := s.Get(Key{3}, leaving, nil, write(t, 1000))
	if err != nil {
		t.Fatal(err)
	}
	s.Tick(false)
	if st := s.Stats(); st.Images != 3 || st.Bytes != 3000 {
		t.Errorf("%+v", st)
	}
	s.Tick(true)
	if st := s.Stats(); st.Images != 2 || st.Bytes != 2000 || has(s, 1) || x.Bytes()[999] != 0 {
		t.Errorf("short of memory: %+v", st)
	}
	get(t, s, 2, "a", 1000).Free() // still shared by those that use it
	if st := s.Stats(); st.Images != 2 || st.Used != 1 {
		t.Errorf("%+v", st)
	}
	x.Free()
	if st := s.Stats(); st.Images != 1 || st.Bytes != 1000 {
		t.Errorf("no longer in use: %+v", st)
	}
	gone = true
	s.Tick(false)
	if st := s.Stats(); st.Images != 0 || st.Bytes != 1000 || y.Bytes()[999] != 0 {
		t.Errorf("the tenant is gone: %+v", st)
	}
	y.Free()
	get(t, s, 4, "a", 1000).Free()
	if st := s.Stats(); st.Images != 1 || st.Bytes != 1000 {
		t.Errorf("afterwards: %+v", st)
	}
}

// TestTogether: an image is made once, and callers that come meanwhile wait for it.
func TestTogether(t *testing.T) {
	s := New(t.TempDir(), 1<<20)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		x, err := s.Get(Key{1}, owner("a"), nil, func(keep func(*os.File, int64) error) error {
			close(begun)
			<-goOn
			return write(t, 100)(keep)
		})
		if err != nil {
			t.Error(err)
			return
		}
		x.Free()
	})
	<-begun
	stop := make(chan struct{})
	close(stop)
	if _, err := s.Get(Key{1}, owner("a"), stop, write(t, 1)); !errors.Is(err, ErrStopped) {
		t.Errorf("a caller that is stopped: %v", err)
	}
	for range 3 {
		wait.Go(func() { get(t, s, 1, "a", 100).Free() })
	}
	close(goOn)
	wait.Wait()
	no := errors.New("no")
	if _, err := s.Get(Key{2}, owner("a"), nil, func(func(*os.File, int64) error) error { return no }); !errors.Is(err, no) {
		t.Errorf("one that fails: %v", err)
	}
	if _, err := s.Get(Key{2}, owner("a"), nil, write(t, 0)); err == nil {
		t.Error("an image without content is taken")
	}
	if _, err := s.Get(Key{2}, owner("a"), nil, func(func(*os.File, int64) error) error { return nil }); err == nil {
		t.Error("no image is taken for one")
	}
	get(t, s, 2, "a", 5).Free()
	if st := s.Stats(); st.Made != 2 || st.Failed != 3 || st.Used != 3 || st.Bytes != 2<<20/mostParts {
		t.Errorf("%+v", st)
	}
	s.Close()
}

// TestMakerFails: those that wait for an image get the error of the caller that makes it. If that only had to stop, one of them
// makes it.
func TestMakerFails(t *testing.T) {
	for _, c := range []struct {
		err         error
		tries, used int32
	}{{errors.New("no"), 1, 0}, {fmt.Errorf("%w: cancelled", ErrStopped), 2, 2}} {
		s := New(t.TempDir(), 1<<20)
		begun, goOn := make(chan struct{}), make(chan struct{})
		var tries atomic.Int32
		maker := func(keep func(*os.File, int64) error) error {
			if tries.Add(1) > 1 {
				return write(t, 100)(keep)
			}
			close(begun)
			<-goOn
			return c.err
		}
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := s.Get(Key{1}, owner("a"), nil, maker); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
		<-begun
		for range 3 {
			wait.Go(func() {
				x, err := s.Get(Key{1}, owner("a"), nil, maker)
				if c.tries == 1 && !errors.Is(err, c.err) || c.tries > 1 && err != nil {
					t.Errorf("one that waits for %v: %v", c.err, err)
				}
				x.Free()
			})
		}
		for users(s, 1) < 4 {
			runtime.Gosched()
		}
		close(goOn)
		wait.Wait()
		if st := s.Stats(); tries.Load() != c.tries || st.Used != uint64(c.used) || st.Failed != 1 {
			t.Errorf("%v: made %d times, %+v", c.err, tries.Load(), st)
		}
	}
}

// users returns how many callers use an image, or wait for it.
func users(s *Store, key byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.all[Key{key}]; x != nil {
		return x.users
	}
	return 0
}
