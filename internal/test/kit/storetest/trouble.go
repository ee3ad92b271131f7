package storetest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// short is enough for a test to see that something does not end by itself.
const short = 200 * time.Millisecond

// patience is for what is bound to come: a test fails after that.
const patience = 30 * time.Second

// Trouble tests a store behind a network. server is the address of a real server, and open returns a store for
// the server at an address, without anything that would hide trouble.
func Trouble(t *testing.T, server string, open func(t *testing.T, addr string) resultcache.Store) {
	t.Run("down at the start", func(t *testing.T) { down(t, open) })
	t.Run("lost", func(t *testing.T) { lost(t, server, open) })
	t.Run("stalled", func(t *testing.T) { stalled(t, server, open) })
	t.Run("cut", func(t *testing.T) { cut(t, server, open) })
	t.Run("garbage", func(t *testing.T) { garbage(t, open) })
}

// down: opening a store needs no server, and its use says that there is none. Once there is one, it works.
func down(t *testing.T, open func(t *testing.T, addr string) resultcache.Store) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s := open(t, addr)
	key, b := Entry(t, 1, 100)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = Fails(t, ctx, s, key)
	if err := s.Put(ctx, key, b); err == nil || ctx.Err() != nil {
		t.Errorf("Put: %v", err)
	}
}

// lost: after its connections have ended, a store uses new ones.
func lost(t *testing.T, server string, open func(t *testing.T, addr string) resultcache.Store) {
	r := newRelay(t, server)
	s := open(t, r.Addr())
	key, b := Entry(t, 2, 100)
	mustPut(t, s, key, b)
	for range 3 {
		r.Reset()
		eventually(t, func(ctx context.Context) error {
			_, err := s.Get(ctx, key, nil)
			return err
		})
	}
	mustDrop(t, s, key)
}

// stalled: a server that says nothing costs as much time as the caller's context allows, and no more.
func stalled(t *testing.T, server string, open func(t *testing.T, addr string) resultcache.Store) {
	r := newRelay(t, server)
	s := open(t, r.Addr())
	key, b := Entry(t, 3, 100)
	// What was held reaches the server after all, beside the next requests: they are about another entry.
	other, ob := Entry(t, 6, 100)
	for _, connected := range []bool{false, true} {
		if connected {
			mustPut(t, s, other, ob)
		}
		r.Hold()
		for what, use := range map[string]func(context.Context) error{
			"Get":  func(ctx context.Context) error { _, err := s.Get(ctx, key, nil); return err },
			"Put":  func(ctx context.Context) error { return s.Put(ctx, key, b) },
			"Drop": func(ctx context.Context) error { return s.Drop(ctx, key) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), short)
			ended := make(chan error, 1)
			go func() { ended <- use(ctx) }()
			select {
			case err := <-ended:
				if err == nil || errors.Is(err, resultcache.ErrMiss) {
					t.Errorf("%s (connected: %t) gave %v", what, connected, err)
				}
			case <-time.After(patience):
				t.Fatalf("%s (connected: %t) has not returned %s after its context has ended", what, connected, patience)
			}
			cancel()
		}
		r.Release()
		eventually(t, func(ctx context.Context) error {
			return s.Put(ctx, other, ob)
		})
	}
	mustDrop(t, s, other)
}

// cut: an entry of which only a part arrives is an error, and so is one of which only a part was taken.
func cut(t *testing.T, server string, open func(t *testing.T, addr string) resultcache.Store) {
	r := newRelay(t, server)
	s := open(t, r.Addr())
	key, b := Entry(t, 4, 3<<20)
	mustPut(t, s, key, b)
	hit := r.Cut(relay.Back, 1<<20)
	// A client may ask again, and then succeed.
	got, err := s.Get(t.Context(), key, nil)
	if err == nil && string(got) != string(b) || errors.Is(err, resultcache.ErrMiss) {
		t.Errorf("a connection cut in an entry: %v, %d bytes", err, len(got))
	}
	wait(t, hit)
	r.Disarm()
	eventually(t, func(ctx context.Context) error {
		_, err := s.Get(ctx, key, nil)
		return err
	})
	Has(t, s, key, b)
	mustDrop(t, s, key)

	key, b = Entry(t, 5, 3<<20) // the server may have the bytes of the other one still
	hit = r.Cut(relay.Out, 1<<20)
	err = s.Put(t.Context(), key, b)
	wait(t, hit)
	r.Disarm()
	eventually(t, func(ctx context.Context) error {
		got, getErr := s.Get(ctx, key, nil)
		switch {
		case errors.Is(getErr, resultcache.ErrMiss) && err != nil:
			return nil
		case getErr == nil && string(got) != string(b):
			t.Errorf("a part of an entry is there (Put: %v)", err)
		}
		return getErr
	})
}

// Garbage is what servers of other kinds answer, and what none does.
var Garbage = []string{
	"",
	"\x00\x00\x00\x00\x00\x00\x00\x00",
	"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
	"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
	"$9223372036854775807\r\n",
	"$70000000000\r\nabc",
	"*2147483647\r\n$1\r\na\r\n",
	"-ERR \xff\xfe\r\n",
	"+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n$3\r\nabc\r\n",
	"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64\xff\xff\xff\xff\xff\xff\xff\xff",
	strings.Repeat("x", 1<<20),
}

// garbage: no answer makes the program end, or keeps it busy for longer than it is to take.
func garbage(t *testing.T, open func(t *testing.T, addr string) resultcache.Store) {
	key, b := Entry(t, 5, 100)
	for _, text := range Garbage {
		s := open(t, Answers(t, text))
		ctx, cancel := context.WithTimeout(t.Context(), short)
		got, err := s.Get(ctx, key, nil)
		if err == nil {
			if _, err := resultcache.Decode(got, key, func(n int) ([]byte, error) { return make([]byte, n), nil }); err == nil {
				t.Errorf("%.40q is taken for an entry", text)
			}
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: an error of several lines: %v", text, err)
		}
		_ = s.Put(ctx, key, b) // it may take an answer for a yes
		_ = s.Drop(ctx, key)
		cancel()
	}
}

// Answers returns the address of a server that answers what it reads with one text after the other, and then
// says nothing.
func Answers(t *testing.T, texts ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { c.Close() })
				defer stop()
				for _, text := range texts {
					if _, err := c.Read(make([]byte, 4096)); err != nil {
						return
					}
					if _, err := io.WriteString(c, text); err != nil {
						return
					}
				}
				_, _ = io.Copy(io.Discard, c) // until the client has had enough
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func newRelay(t *testing.T, target string) *relay.Relay {
	t.Helper()
	r, err := relay.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// eventually tries something until it succeeds: a client may need a try, or a pause, to notice that its connections are
// gone.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, patience/10)
		err := try(one)
		done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still: %v", err)
		case <-time.After(10 * time.Millisecond): // of a client that refuses to dial again so soon
		}
	}
}

// wait waits until a connection has been cut. Without that, what the test is about has not happened.
func wait[T any](t *testing.T, hit <-chan T) {
	t.Helper()
	select {
	case <-hit:
	case <-time.After(30 * time.Second):
		t.Fatal("the entry did not go over a connection as it should have")
	}
}
