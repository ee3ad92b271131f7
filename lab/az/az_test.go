package az

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// pair returns two ends of a stream over TCP.
func pair(t testing.TB, ca, cb stream.Config) (a, b *stream.Conn) {
	t.Helper()
	ctx := iwarptest.Context(t)
	da, db := iwarptest.Open(t, iwarp.Config{}), iwarptest.Open(t, iwarp.Config{})
	l, err := db.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			b, err = stream.Accept(ctx, db, r, nil, cb)
		}
		accepted <- err
	}()
	if a, err = stream.Dial(ctx, da, l.Addr().String(), nil, ca); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(a, b) })
	return a, b
}

func end(conns ...*stream.Conn) {
	for _, c := range conns {
		c.Close()
	}
	for _, c := range conns {
		<-c.Done()
	}
}

// arena returns one that is closed at the end of the test.
func arena(t testing.TB, n, size int, p Pages) *Arena {
	t.Helper()
	a, err := NewArena(n, size, p)
	if errors.Is(err, ErrNoHugePages) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// conn returns a stream that sends in place whatever it costs, and its peer.
func conn(t testing.TB, a *Arena, peer stream.Config) (*Conn, *stream.Conn) {
	t.Helper()
	s, b := pair(t, stream.Config{Linger: time.Second}, peer)
	c, err := New(s, a, Options{Min: 1, Always: true})
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

func eachKind(t *testing.T, f func(t *testing.T, p Pages)) {
	for _, p := range []Pages{Huge, Small} {
		t.Run(p.String(), func(t *testing.T) { f(t, p) })
	}
}

// beside runs f again and again until the function that it returns is called.
func beside(f func()) (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !over.Load() {
			f()
			runtime.Gosched()
		}
	})
	return func() { over.Store(true); wg.Wait() }
}

// TestContents: what arrives is what was there at Write, though the application overwrites it at once: all pages, some, or single
// bytes; data of all sizes at all places; and what it writes is there later. The garbage collector runs all the time, and processes
// are started.
func TestContents(t *testing.T) {
	eachKind(t, func(t *testing.T, p Pages) {
		for name, others := range map[string]func(){"alone": nil, "gc": runtime.GC, "exec": func() { _ = exec.Command("true").Run() }} {
			t.Run(name, func(t *testing.T) {
				if others != nil {
					defer beside(others)()
				}
				a := arena(t, 3, 200<<10, p)
				c, peer := conn(t, a, stream.Config{})
				rounds := 300
				if testing.Short() {
					rounds = 50
				}
				got := make(chan []byte, 1)
				go func() {
					all, _ := io.ReadAll(peer)
					got <- all
				}()
				want := overwriting(t, a, c, rounds)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if all := <-got; !bytes.Equal(all, want) {
					t.Errorf("%d bytes arrive, %d were sent, or they are others", len(all), len(want))
				}
				t.Logf("%+v", c.Stats())
			})
		}
	})
}

// overwriting sends, and overwrites what it sends. It returns what has to arrive.
func overwriting(t *testing.T, a *Arena, c *Conn, rounds int) (sent []byte) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	holds := make([][]byte, a.Buffers()) // what each buffer has to hold
	for i := range holds {
		holds[i] = make([]byte, len(a.Buffer(i)))
		copy(holds[i], a.Buffer(i))
	}
	write := func(i, off, n int) {
		for k := off; k < off+n; k++ {
			holds[i][k] = byte(rnd.Uint32())
		}
		copy(a.Buffer(i)[off:off+n], holds[i][off:off+n])
	}
	for range rounds {
		i := rnd.IntN(len(holds))
		buf := a.Buffer(i)
		if rnd.IntN(2) == 0 {
			if err := c.Reclaim(buf); err != nil {
				t.Fatal(err)
			}
		}
		off := rnd.IntN(len(buf) / 2)
		n := 1 + rnd.IntN(1<<(4+rnd.IntN(13)))
		write(i, off, n)
		if !bytes.Equal(buf, holds[i]) {
			t.Fatal("a buffer does not hold what was written to it")
		}
		sent = append(sent, holds[i][off:off+n]...)
		if k, err := c.Write(buf[off : off+n]); k != n || err != nil {
			t.Fatalf("%d bytes of %d, %v", k, n, err)
		}
		switch rnd.IntN(4) {
		case 0:
			write(i, off, n)
		case 1:
			for k := off; k < off+n; k += smallPage {
				write(i, k, 1)
			}
		case 2:
			write(i, off+rnd.IntN(n), 1)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range holds {
		if !bytes.Equal(a.Buffer(i), holds[i]) || !bytes.Equal(a.buffers[i].shared, holds[i]) {
			t.Errorf("buffer %d does not hold what was written to it", i)
		}
	}
	return sent
}

// TestReuse: a Write of a buffer that is still being sent from waits, and neither content is lost.
func TestReuse(t *testing.T) {
	eachKind(t, func(t *testing.T, p Pages) {
		a := arena(t, 1, 64<<10, p)
		c, peer := conn(t, a, stream.Config{Ring: 4096})
		buf := a.Buffer(0)[:64<<10]
		second := make(chan error, 1)
		fillWith(buf, 'a')
		if _, err := c.Write(buf); err != nil { // most of it has to wait for the reader
			t.Fatal(err)
		}
		fillWith(buf, 'b')
		go func() {
			_, err := c.Write(buf)
			second <- err
		}()
		got := make([]byte, 2*len(buf))
		if _, err := io.ReadFull(peer, got); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			if want := "ab"[i/len(buf)]; x != want {
				t.Fatalf("byte %d is %c", i, x)
			}
		}
		if s := c.Stats(); s.Sends != 2 || s.Touched != uint64(len(buf)) {
			t.Errorf("%+v", s)
		}
	})
}

func fillWith(p []byte, x byte) {
	for i := range p {
		p[i] = x
	}
}

// TestDies: when the connection ends while buffers are being sent from, they hold what the application has written, can be used
// again on another connection, and the error is reported once, by the next call.
func TestDies(t *testing.T) {
	calls := map[string]func(c *Conn, p []byte) error{
		"Write":   func(c *Conn, p []byte) error { _, err := c.Write(p); return err },
		"Reclaim": func(c *Conn, p []byte) error { return c.Reclaim(p) },
		"Flush":   func(c *Conn, _ []byte) error { return c.Flush() },
	}
	eachKind(t, func(t *testing.T, p Pages) {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				a := arena(t, 2, 64<<10, p)
				c, peer := conn(t, a, stream.Config{Ring: 4096})
				for i := range 2 {
					fillWith(a.Buffer(i), 'a')
					if _, err := c.Write(a.Buffer(i)[:64<<10]); err != nil {
						t.Fatal(err)
					}
					a.Buffer(i)[5] = 'b'
				}
				end(peer)
				if err := call(c, a.Buffer(0)); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the error is %v", err)
				}
				if err := c.Reclaim(a.Buffer(0)); err != nil {
					t.Errorf("reported again: %v", err)
				}
				_ = c.Flush() // of the other buffer
				end(c.Conn)
				other, sink := conn(t, a, stream.Config{})
				for i := range 2 {
					b := &a.buffers[i]
					if b.apart || b.shared[5] != 'b' || b.shared[6] != 'a' {
						t.Errorf("buffer %d: apart %v, %q", i, b.apart, b.shared[5:7])
					}
					if _, err := other.Write(a.Buffer(i)[5:7]); err != nil {
						t.Error(err)
					}
				}
				got := make([]byte, 4)
				if _, err := io.ReadFull(sink, got); string(got) != "baba" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
	})
}

// TestCannotMap: when a view cannot be mapped nothing is lost: data is copied, and later on sent in place again.
func TestCannotMap(t *testing.T) {
	a := arena(t, 1, 64<<10, Small)
	c, peer := conn(t, a, stream.Config{})
	got := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(peer)
		got <- all
	}()
	send := func(x byte) {
		fillWith(a.Buffer(0), x)
		if _, err := c.Write(a.Buffer(0)); err != nil {
			t.Fatal(err)
		}
	}
	fd := a.fd
	send('a')
	a.fd = -1
	send('b') // can not be joined
	send('c')
	a.fd = fd
	send('d') // is joined
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	a.fd = -1
	send('e') // can not be parted
	a.fd = fd
	send('f')
	if s := c.Stats(); s.Sends != 3 || s.Stuck != 3 {
		t.Errorf("%+v", s)
	}
	c.Close()
	all := <-got
	for i, x := range all {
		if want := "abcdef"[i/(64<<10)]; x != want {
			t.Fatalf("byte %d is %c and not %c", i, x, want)
		}
	}
	if len(all) != 6*64<<10 {
		t.Errorf("%d bytes arrive", len(all))
	}
}

// TestDirt: both ways of asking find just the pages that were written to.
func TestDirt(t *testing.T) {
	eachKind(t, func(t *testing.T, p Pages) {
		a := arena(t, 2, 2<<20, p)
		b := &a.buffers[1]
		if err := b.part(); err != nil {
			t.Fatal(err)
		}
		if b.app[3*smallPage] != b.shared[3*smallPage] { // a page that is only read
			t.Error("the views differ")
		}
		want := []span{{5 * smallPage, 7 * smallPage}, {200 * smallPage, 201 * smallPage}}
		for i := 300; i < 500; i += 2 { // more than are told at a time
			want = append(want, span{i * smallPage, (i + 1) * smallPage})
		}
		for _, s := range want {
			fill(b.app[s.from:], s.to-s.from)
		}
		for _, scans := range []bool{true, false} {
			a.dirt.scans = scans
			got, err := a.dirt.of(b.app, nil)
			if err != nil || len(got) != len(want) {
				t.Fatalf("by scan %v: %v, %v", scans, got, err)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("by scan %v: %v and not %v", scans, got[i], want[i])
				}
			}
		}
	})
}

// TestLeaksNothing: an arena leaves no mapping, and no descriptor.
func TestLeaksNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, p Pages) {
		before := open(t)
		for range 3 {
			a, err := NewArena(2, 100<<10, p)
			if errors.Is(err, ErrNoHugePages) {
				continue // which leaves nothing either
			} else if err != nil {
				t.Fatal(err)
			}
			c, peer := conn(t, a, stream.Config{Ring: 4096})
			for i := range 2 {
				if _, err := c.Write(a.Buffer(i)); err != nil {
					t.Fatal(err)
				}
			}
			end(peer, c.Conn)
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if after := open(t); after != before {
			t.Errorf("open before: %s, after: %s", before, after)
		}
	})
}

// open tells what arenas this process has mapped and open.
func open(t *testing.T) string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "(deleted)") {
			all = append(all, line)
		}
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && (strings.Contains(to, "(deleted)") || strings.Contains(to, "pagemap")) {
			all = append(all, to)
		}
	}
	return strings.Join(all, ", ")
}

// TestChooses: short data is copied, and so is all other data while the application writes to what is being sent.
func TestChooses(t *testing.T) {
	a := arena(t, 2, 64<<10, Small)
	a.costs = Costs{Remap: 2 * time.Microsecond, Touch: time.Microsecond, Copy: 1e9}
	s, peer := pair(t, stream.Config{}, stream.Config{})
	c, err := New(s, a, Options{Min: 1000})
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, struct{ io.Reader }{peer})
	for i, x := range []struct {
		n, sends, touch int
		inPlace         uint64
	}{
		{999, 10, 0, 0},
		{8000, 10 * trialSends, 0, 10 * trialSends}, // 2 us against 16
		{64 << 10, 3 * trialPause, 64 << 10, 0},     // 162 us against 131
	} {
		if i == 2 {
			a.costs.Touch = 10 * time.Microsecond
		}
		before := c.Stats().Sends
		for range x.sends {
			if _, err := c.Write(a.Buffer(0)[:x.n]); err != nil {
				t.Fatal(err)
			}
			fill(a.Buffer(0), x.touch)
			if x.touch == 0 {
				if err := c.Reclaim(a.Buffer(0)); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := c.Stats().Sends - before
		if x.touch == 0 && got != x.inPlace {
			t.Errorf("%d of %d sends of %d bytes are in place", got, x.sends, x.n)
		}
		if x.touch > 0 && got > 5*trialSends {
			t.Errorf("%d of %d sends of %d bytes are in place, though all of it is touched", got, x.sends, x.n)
		}
	}
	if _, err := c.Write(make([]byte, 100<<10)); err != nil { // not in the arena
		t.Error(err)
	}
	t.Logf("%+v", c.Stats())
}

// TestOnlyPeerDirect: the buffer stays mapped, and may be written to, as long as the peer lets the data wait.
func TestOnlyPeerDirect(t *testing.T) {
	a := arena(t, 1, 64<<10, Small)
	s, peer := pair(t, stream.Config{Policy: exs.Direct}, stream.Config{})
	c, err := New(s, a, Options{Min: 1, Always: true})
	if err != nil {
		t.Fatal(err)
	}
	fillWith(a.Buffer(0), 'a')
	if _, err := c.Write(a.Buffer(0)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.buffers[0].op.Done():
		t.Error("it has left, though nobody reads")
	default:
	}
	fillWith(a.Buffer(0), 'b')
	got := make([]byte, 64<<10)
	if _, err := io.ReadFull(peer, got); err != nil || bytes.Count(got, []byte{'a'}) != len(got) {
		t.Errorf("%q..., %v", got[:10], err)
	}
	if err := c.Flush(); err != nil || bytes.Count(a.buffers[0].shared, []byte{'b'}) != len(got) {
		t.Errorf("%q..., %v", a.buffers[0].shared[:10], err)
	}
}

func TestCosts(t *testing.T) {
	eachKind(t, func(t *testing.T, p Pages) {
		a := arena(t, 1, 2<<20, p)
		c := a.Costs()
		t.Logf("%+v: from %d bytes on", c, a.Threshold())
		if c.Remap <= 0 || c.Copy <= 0 || a.Threshold() <= 0 || p == Small && a.Threshold() != math.MaxInt {
			t.Errorf("%+v: from %d bytes on", c, a.Threshold())
		}
	})
	if _, err := NewArena(0, 1, Small); err == nil {
		t.Error("an arena of nothing")
	}
	if n := unix.Getpagesize(); n != smallPage {
		t.Logf("pages have %d bytes", n)
	}
}

// TestCostsBesideLoad: a trial that was disturbed, in whichever part, changes no cost.
func TestCostsBesideLoad(t *testing.T) {
	const quick, disturbed = 100 * time.Microsecond, 10 * time.Millisecond
	got := longest
	for _, tr := range []timing{
		{apart: quick, after: 3 * quick, plain: disturbed},
		{apart: disturbed, after: 3 * quick, plain: quick},
		{apart: quick, after: disturbed, plain: quick},
	} {
		got = got.least(tr)
	}
	if want := (timing{quick, 3 * quick, quick}); got != want || got.cost() != 3*quick {
		t.Errorf("%v costs %v", got, got.cost())
	}
	if always := (timing{apart: quick, after: quick, plain: disturbed}); always.cost() != quick {
		t.Errorf("%v costs %v", always, always.cost())
	}
}
