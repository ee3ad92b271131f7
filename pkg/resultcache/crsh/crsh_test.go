package crsh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is for what is bound to come: a test fails after that.
const patience = 30 * time.Second

// memory keeps values.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
	err error // of every call
}

func (m *memory) Get(_ context.Context, key []byte, take func(uint64, io.Reader) error) error {
	m.mu.Lock()
	v, ok := m.all[string(key)]
	err := m.err
	m.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !ok:
		return ErrMissing
	}
	return take(uint64(len(v)), bytes.NewReader(v))
}

func (m *memory) Put(_ context.Context, key []byte, value io.Reader, size uint64, replace bool) (bool, error) {
	if m.err != nil {
		return false, m.err // what follows is not read
	}
	b, err := io.ReadAll(value)
	if err != nil || uint64(len(b)) != size {
		return false, fmt.Errorf("%d of %d bytes: %w", len(b), size, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, is := m.all[string(key)]; is && !replace {
		return false, nil
	}
	m.all[string(key)] = b
	return true, nil
}

func (m *memory) Remove(_ context.Context, key []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.all[string(key)]
	delete(m.all, string(key))
	return is, m.err
}

func (m *memory) Exists(_ context.Context, key []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.all[string(key)]
	return is, m.err
}

// serve serves one connection, and returns its other end. The test ends when it has been served.
func serve(t *testing.T, s *Server) net.Conn {
	t.Helper()
	near, far := socketPair(t)
	done := make(chan struct{})
	go func() {
		s.Serve(context.Background(), far)
		close(done)
	}()
	t.Cleanup(func() {
		near.Close()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Serve goes on after its client has gone")
		}
	})
	return near
}

// socketPair returns the two ends of a connection.
func socketPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func client(t *testing.T, s *Server) *Client {
	t.Helper()
	c, err := NewClient(t.Context(), serve(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get returns the value of a key.
func get(t *testing.T, c *Client, key string) (value string, err error) {
	t.Helper()
	err = c.Get(t.Context(), []byte(key), func(size uint64, r io.Reader) error {
		b, err := io.ReadAll(r)
		if uint64(len(b)) != size {
			t.Errorf("a value of %d bytes that was told as %d", len(b), size)
		}
		value = string(b)
		return err
	})
	return value, err
}

// TestRequests: what one end asks, the other one does, for keys and values of all lengths.
func TestRequests(t *testing.T) {
	c := client(t, &Server{Values: &memory{all: map[string][]byte{}}, Identity: "test 1", Notes: []string{"a note", "two\nlines"}, Patience: patience})
	for _, key := range []string{"", "k", strings.Repeat("\xff", MaxMessage)} {
		for _, n := range []int{0, 1, 4095, 4096, 1 << 20} {
			value := strings.Repeat("v", n)
			if there, err := c.Exists(t.Context(), []byte(key)); there || err != nil {
				t.Errorf("Exists of nothing: %t, %v", there, err)
			}
			if _, err := get(t, c, key); !errors.Is(err, ErrMissing) {
				t.Errorf("Get of nothing: %v", err)
			}
			if kept, err := c.Put(t.Context(), []byte(key), strings.NewReader(value), uint64(n), false); !kept || err != nil {
				t.Errorf("Put of %d bytes: %t, %v", n, kept, err)
			}
			if kept, err := c.Put(t.Context(), []byte(key), strings.NewReader("other"), 5, false); kept || err != nil {
				t.Errorf("Put on top: %t, %v", kept, err)
			}
			if there, err := c.Exists(t.Context(), []byte(key)); !there || err != nil {
				t.Errorf("Exists: %t, %v", there, err)
			}
			if got, err := get(t, c, key); got != value || err != nil {
				t.Errorf("Get: %d bytes, %v; want %d", len(got), err, n)
			}
			if removed, err := c.Remove(t.Context(), []byte(key)); !removed || err != nil {
				t.Errorf("Remove: %t, %v", removed, err)
			}
		}
	}
	if removed, err := c.Remove(t.Context(), []byte("none")); removed || err != nil {
		t.Errorf("Remove of nothing: %t, %v", removed, err)
	}
	identity, notes, err := c.Info(t.Context())
	if identity != "test 1" || fmt.Sprint(notes) != "[a note two lines]" || err != nil {
		t.Errorf("Info: %q, %q, %v", identity, notes, err)
	}
	var r Refusal
	if err := c.Stop(t.Context()); !errors.As(err, &r) {
		t.Errorf("Stop of what does not end: %v", err)
	}
}

// TestRefusals: an error is one short line at the other end, after which the connection goes on, whatever was to be kept.
func TestRefusals(t *testing.T) {
	m := &memory{all: map[string][]byte{}, err: errors.New("no\nroom " + strings.Repeat("é", 300))}
	c := client(t, &Server{Values: m, Patience: patience})
	for range 3 {
		_, err := c.Put(t.Context(), []byte("k"), strings.NewReader(strings.Repeat("v", 1<<20)), 1<<20, true)
		var r Refusal
		if !errors.As(err, &r) || !strings.HasPrefix(string(r), "no room é") || len(r) > MaxMessage || IsBroken(err) {
			t.Errorf("Put: %q", err)
		}
		if _, err := c.Exists(t.Context(), []byte("k")); !errors.As(err, &r) {
			t.Errorf("Exists: %v", err)
		}
	}
	m.err = nil
	if kept, err := c.Put(t.Context(), []byte("k"), strings.NewReader("v"), 1, true); !kept || err != nil {
		t.Errorf("Put: %t, %v", kept, err)
	}
}

// TestStop: a program that may be ended is told so.
func TestStop(t *testing.T) {
	stopped := make(chan struct{})
	c := client(t, &Server{Values: &memory{}, Stop: func() { close(stopped) }})
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-stopped
}

// TestHostileClient: whatever a client sends, a server ends the connection and keeps nothing.
func TestHostileClient(t *testing.T) {
	huge := binary.NativeEndian.AppendUint64(nil, 1<<63)
	long := binary.NativeEndian.AppendUint64(nil, 1<<40)
	for name, sent := range map[string][]byte{
		"unknown":   {9},
		"cut key":   {reqGet, 20, 'k'},
		"cut flags": {reqPut, 1, 'k'},
		"cut size":  {reqPut, 1, 'k', 1, 0, 0},
		"huge":      append([]byte{reqPut, 1, 'k', 1}, huge...),
		"cut value": append(append([]byte{reqPut, 1, 'k', 1}, long...), "value"...),
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{all: map[string][]byte{}}
			conn := serve(t, &Server{Values: m, Patience: patience})
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Error(err)
			}
			if len(m.all) != 0 {
				t.Errorf("it keeps %d values", len(m.all))
			}
		})
	}
}

// TestSlowClient: a client that stops in the middle of a request does not hold a server, and one that asks nothing may stay.
func TestSlowClient(t *testing.T) {
	conn := serve(t, &Server{Values: &memory{}, Patience: 10 * time.Millisecond})
	time.Sleep(50 * time.Millisecond)
	if _, err := conn.Write([]byte{reqGet, 20}); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || len(b) != 5 {
		t.Errorf("%q, %v; want the greeting, and the end", b, err)
	}
}

// TestHostileServer: whatever a server says, a client ends with an error.
func TestHostileServer(t *testing.T) {
	good := []byte{Version, 1, capValues}
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"nothing":       {nil, "EOF"},
		"newer":         {[]byte{2, 1, capValues}, ErrVersion.Error() + ": it says version 2"},
		"no values":     {[]byte{Version, 1, capInfo}, "it keeps no values"},
		"cut greeting":  {[]byte{Version, 9, capValues}, "EOF"},
		"no answer":     {good, "EOF"},
		"nonsense":      {append(good, 77), "begins with 77"},
		"cut error":     {append(good, ansErr, 20, 'x'), "EOF"},
		"cut size":      {append(good, ansOK, 1, 2), "EOF"},
		"negative size": {binary.NativeEndian.AppendUint64(append(good, ansOK), 1<<63), "a value of 9223372036854775808 bytes"},
		"cut value":     {append(binary.NativeEndian.AppendUint64(append(good, ansOK), 1000), "value"...), "5 bytes of 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := socketPair(t)
			go func() {
				_, _ = far.Write(c.says)
				_ = far.(*net.UnixConn).CloseWrite()
			}()
			defer far.Close()
			x, err := NewClient(t.Context(), near)
			if err == nil {
				defer x.Close()
				err = x.Get(t.Context(), []byte("key"), func(size uint64, value io.Reader) error {
					n, _ := io.Copy(io.Discard, value)
					if uint64(n) != size {
						return fmt.Errorf("%d bytes of %d", n, size)
					}
					return nil
				})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !IsBroken(err) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestContext: a request ends when its caller wants no more of it, and the next one is not struck.
func TestContext(t *testing.T) {
	near, far := socketPair(t)
	defer far.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := NewClient(ctx, near); !errors.Is(err, context.Canceled) {
		t.Errorf("without a greeting: %v", err)
	}
	c := client(t, &Server{Values: &memory{all: map[string][]byte{}}, Patience: patience})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := c.Exists(ctx, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Exists: %v", err)
		} else if err != nil {
			c = client(t, &Server{Values: &memory{all: map[string][]byte{}}, Patience: patience})
		}
	}
	if _, err := c.Exists(t.Context(), nil); err != nil {
		t.Errorf("Exists: %v", err)
	}
}

// TestStarted: a helper reads what it was told, and finds its socket even if the rest is wrong.
func TestStarted(t *testing.T) {
	want := Started{Endpoint: "/run/s", URL: "https://example.org/x?y=z", Idle: 90 * time.Second, Attributes: []Attribute{{"a", "1=2"}, {"b", ""}}}
	env := make(map[string]string)
	for _, kv := range want.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	got, err := ReadStarted(func(name string) string { return env[name] })
	if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	env[varCount], env[varIdle] = "1000000", "soon"
	got, err = ReadStarted(func(name string) string { return env[name] })
	if got.Endpoint != "/run/s" || err == nil || !strings.Contains(err.Error(), `CRSH_IDLE_TIMEOUT="soon"`) || !strings.Contains(err.Error(), `CRSH_NUM_ATTR="1000000"`) {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzServe: no client brings a server down, or makes it wait for more than it was sent.
func FuzzServe(f *testing.F) {
	f.Add([]byte{reqGet, 1, 'k', reqInfo, reqExists, 0, reqStop})
	f.Add(append(append([]byte{reqPut, 1, 'k', 0}, binary.NativeEndian.AppendUint64(nil, 3)...), "abc"...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() {
			(&Server{Values: &memory{all: map[string][]byte{}}, Stop: func() {}}).Serve(context.Background(), far)
			close(done)
		}()
		go func() { _, _ = io.Copy(io.Discard, near) }()
		_, _ = near.Write(sent)
		near.Close()
		<-done
	})
}
