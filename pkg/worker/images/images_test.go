package images

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func write(n int) func(*os.File) error {
	return func(to *os.File) error {
		_, err := to.Write(make([]byte, n))
		return err
	}
}

func get(t *testing.T, s *Store, key byte, tenant string, n int) *Image {
	t.Helper()
	x, err := s.Get(Key{key}, tenant, nil, write(n))
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
	in := get(t, s, 6, "c", 20000) // too big to be kept, and in use
	if in.Bytes()[19999] != 0 || has(s, 6) {
		t.Errorf("an image that is too big is kept: %+v", s.Stats())
	}
	in.Free()
	if st := s.Stats(); st.Bytes > 10000 || st.Made != 6 || st.Used != 1 {
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

// TestTogether: an image is made once, and callers that come meanwhile wait for it.
func TestTogether(t *testing.T) {
	s := New(t.TempDir(), 1<<20)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		x, err := s.Get(Key{1}, "a", nil, func(to *os.File) error {
			close(begun)
			<-goOn
			return write(100)(to)
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
	if _, err := s.Get(Key{1}, "a", stop, write(1)); !errors.Is(err, ErrStopped) {
		t.Errorf("a caller that is stopped: %v", err)
	}
	for range 3 {
		wait.Go(func() { get(t, s, 1, "a", 100).Free() })
	}
	close(goOn)
	wait.Wait()
	no := errors.New("no")
	if _, err := s.Get(Key{2}, "a", nil, func(*os.File) error { return no }); !errors.Is(err, no) {
		t.Errorf("one that fails: %v", err)
	}
	if _, err := s.Get(Key{2}, "a", nil, write(0)); err == nil {
		t.Error("an image without content is taken")
	}
	get(t, s, 2, "a", 5).Free()
	if st := s.Stats(); st.Made != 2 || st.Failed != 2 {
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
		maker := func(to *os.File) error {
			if tries.Add(1) > 1 {
				return write(100)(to)
			}
			close(begun)
			<-goOn
			return c.err
		}
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := s.Get(Key{1}, "a", nil, maker); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
		<-begun
		for range 3 {
			wait.Go(func() {
				x, err := s.Get(Key{1}, "a", nil, maker)
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
