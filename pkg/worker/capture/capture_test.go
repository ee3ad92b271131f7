package capture

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// each runs a test for both kinds of Capture, which keep 64 KiB.
func each(t *testing.T, test func(t *testing.T, next func() *Capture)) {
	const kept = 64 << 10
	t.Run("memory", func(t *testing.T) {
		pool, err := shm.NewPool(shm.Options{Name: "capture-test", Size: 2 * kept, Max: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		test(t, func() *Capture { return must(t)(InMemory(t.Context(), pool, kept)) })
	})
	t.Run("pipes", func(t *testing.T) {
		p := NewPipes(kept)
		defer p.Close()
		test(t, func() *Capture { return must(t)(p.Capture()) })
	})
}

func must(t *testing.T) func(*Capture, error) *Capture {
	return func(c *Capture, err error) *Capture {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// write writes b as a command would, and returns how many bytes were taken.
func write(c *Capture, i int, b []byte) int {
	n := 0
	for n < len(b) {
		m, err := unix.Write(c.FD(i), b[n:])
		if err != nil {
			break
		}
		n += m
	}
	return n
}

// TestCapture: each output is what was written to it, a flood is cut with a note, and the next command's
// output has nothing of it.
func TestCapture(t *testing.T) {
	each(t, func(t *testing.T, next func() *Capture) {
		want := func(c *Capture, i int, text string) {
			t.Helper()
			if b, err := c.Written(i); err != nil || string(b) != text {
				t.Errorf("output %d is %.50q, %v; want %.50q", i, b, err, text)
			}
		}
		c := next()
		write(c, 0, []byte("out"))
		write(c, 1, []byte("err"))
		write(c, 0, []byte(" more"))
		want(c, 0, "out more")
		want(c, 1, "err")
		if c.Cut() {
			t.Error("cut, of a few bytes")
		}
		if err := c.Rewind(); err != nil {
			t.Fatal(err)
		}
		want(c, 0, "")
		exact := bytes.Repeat([]byte("x"), 64<<10)
		write(c, 0, exact)
		want(c, 0, string(exact))
		if c.Cut() {
			t.Error("cut, of what may be kept")
		}
		write(c, 0, []byte("y"))
		want(c, 0, string(exact)+Note(64<<10))
		if !c.Cut() {
			t.Error("not cut, with a byte more")
		}
		want(c, 1, "")
		c.Close()
		c = next()
		want(c, 0, "")
		want(c, 1, "")
		c.Close()
	})
}

// TestFloodIsTakenFromAPipe: a pipe takes everything that a command writes, however much.
func TestFloodIsTakenFromAPipe(t *testing.T) {
	p := NewPipes(64 << 10)
	defer p.Close()
	c := must(t)(p.Capture())
	if n := write(c, 1, make([]byte, 8<<20)); n != 8<<20 {
		t.Errorf("%d bytes were taken", n)
	}
	if b, err := c.Written(1); err != nil || len(b) != 64<<10+len(Note(64<<10)) || !c.Cut() {
		t.Errorf("%d bytes are kept, %v", len(b), err)
	}
}

// TestJoined: both outputs are one text, in order.
func TestJoined(t *testing.T) {
	p := NewPipes(64 << 10)
	defer p.Close()
	c := must(t)(p.Joined())
	write(c, 1, []byte("a"))
	write(c, 0, []byte("b"))
	write(c, 1, []byte("c"))
	if b, err := c.Written(0); err != nil || string(b) != "abc" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestChangedPipe: a pipe that a command has changed for those after it is replaced.
func TestChangedPipe(t *testing.T) {
	p := NewPipes(64 << 10)
	defer p.Close()
	first := must(t)(p.Capture())
	if again := must(t)(p.Capture()); again.to[0] != first.to[0] {
		t.Error("a pipe that nobody touched is replaced")
	}
	if err := unix.SetNonblock(first.FD(0), true); err != nil {
		t.Fatal(err)
	}
	if again := must(t)(p.Capture()); again.to[0] == first.to[0] || again.to[1] != first.to[1] {
		t.Error("a pipe that does not wait any more is kept, or its neighbour is not")
	}
}

// TestNothingStays: Close leaves no descriptors or goroutines behind.
func TestNothingStays(t *testing.T) {
	count := func() (fds, goroutines int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list), runtime.NumGoroutine()
	}
	use := func() {
		p := NewPipes(1 << 10)
		must(t)(p.Capture()).Close()
		p.Close()
	}
	use() // what the netpoller needs stays
	fds, goroutines := count()
	use()
	f, g := count()
	for range 60000 { // one that has told of its end may take a moment to be gone
		if g <= goroutines {
			break
		}
		time.Sleep(time.Millisecond)
		f, g = count()
	}
	if f != fds || g > goroutines {
		t.Errorf("%d descriptors and %d goroutines, before it %d and %d", f, g, fds, goroutines)
	}
	pool, err := shm.NewPool(shm.Options{Name: "capture-test", Size: 1 << 10, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := InMemory(ctx, pool, 512); err == nil {
		t.Error("two buffers of a pool of one")
	}
	if b, err := pool.TryGet(0); b == nil || err != nil {
		t.Errorf("the first buffer is not given back: %v", err)
	} else {
		b.Put()
	}
}
