package relay

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// echo returns the address of a server that echoes; it ends with the test.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until either end
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// exchange sends b and returns what comes back.
func exchange(t *testing.T, c net.Conn, b []byte) ([]byte, error) {
	t.Helper()
	go c.Write(b) // what is wrong with it shows in the answer
	got := make([]byte, len(b))
	n, err := io.ReadFull(c, got)
	return got[:n], err
}

func TestRelay(t *testing.T) {
	r, err := New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text := bytes.Repeat([]byte("0123456789abcdef"), 20000)

	c := dial(t, r)
	if got, err := exchange(t, c, text); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	// What came back is counted a moment after it was written.
	for end := time.Now().Add(2 * time.Minute); r.Moved() < 2*int64(len(text)) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if r.Moved() != 2*int64(len(text)) || r.Conns() != 1 {
		t.Errorf("%d bytes moved on %d connections", r.Moved(), r.Conns())
	}

	hit := r.Flip(Out, 100000)
	got, err := exchange(t, c, text)
	wrong := 0
	for i := range got {
		if got[i] != text[i] {
			wrong++
		}
	}
	if err != nil || wrong != 1 || got[100000] == text[100000] {
		t.Errorf("%d bytes are wrong, %v, want the one", wrong, err)
	}
	<-hit

	hit = r.Cut(Back, 70001)
	if got, err := exchange(t, c, text); err == nil || len(got) > 70001 {
		t.Errorf("%d bytes came back, %v, want a cut behind 70001", len(got), err)
	}
	<-hit

	c = dial(t, r)
	r.SetRate(4 << 20)
	r.SetDelay(time.Millisecond)
	if got, err := exchange(t, c, text); err != nil || !bytes.Equal(got, text) {
		t.Errorf("slowly: %d bytes came back, %v", len(got), err)
	}
	r.SetRate(0)
	r.SetDelay(0)

	r.Hold()
	late := dial(t, r)
	for _, c := range []net.Conn{c, late} {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if got, err := exchange(t, c, text[:16]); len(got) > 0 || err == nil {
			t.Errorf("held: %q came back, %v", got, err)
		}
	}
	r.Release()
	for _, c := range []net.Conn{c, late} {
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadFull(c, make([]byte, 16)); err != nil {
			t.Errorf("released: %v", err)
		}
	}

	if n := r.Strand(); n != 2 {
		t.Errorf("%d connections stranded, want 2", n)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := exchange(t, c, text[:16]); len(got) > 0 || err == nil {
		t.Errorf("stranded: %q came back, %v", got, err)
	}
	c = dial(t, r)
	if got, err := exchange(t, c, text); err != nil || !bytes.Equal(got, text) {
		t.Errorf("a new one: %d bytes came back, %v", len(got), err)
	}
	if n := r.Reset(); n == 0 {
		t.Error("no connection to reset")
	}
	if got, err := exchange(t, c, text); err == nil {
		t.Errorf("reset: %d bytes came back", len(got))
	}
}
