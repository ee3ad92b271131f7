package identity_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// device is one of our iWARP stacks as id.
func device(t *testing.T, id *identity.Identity) iwarp.Device {
	t.Helper()
	return iwarptest.Open(t, iwarp.Config{Dial: id.Dial, Listen: id.Listen})
}

func listenOn(t *testing.T, dev iwarp.Device) iwarp.Listener {
	t.Helper()
	l, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// wire is a relay between a client and a daemon that keeps what the client says.
type wire struct {
	addr string
	mu   sync.Mutex
	out  bytes.Buffer
}

// newWire relays to addr. change, when not nil, may alter what the client has said
// first, or answer it: then it returns nil.
func newWire(t *testing.T, addr string, change func(first []byte, c net.Conn) []byte) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &wire{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.relay(c, addr, change)
		}
	}()
	return w
}

func (w *wire) relay(c net.Conn, addr string, change func([]byte, net.Conn) []byte) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(c, to); c.Close() }()
	b := make([]byte, 64<<10)
	for first := true; ; first = false {
		n, err := c.Read(b)
		w.mu.Lock()
		w.out.Write(b[:n])
		w.mu.Unlock()
		out := b[:n]
		if first && change != nil {
			if out = change(out, c); out == nil {
				return
			}
		}
		if _, werr := to.Write(out); err != nil || werr != nil {
			return
		}
	}
}

func (w *wire) said() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.out.Bytes())
}

// TestIWARPOverTLS: what iWARP asks of its socket reaches the one below TLS, each side knows the other's
// identity, and a message takes few records, not one for each of its parts.
func TestIWARPOverTLS(t *testing.T) {
	ca := newCA(t)
	a := iwarptest.NewEnd(t, device(t, mustNew(t, identity.Client, ca.client())), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, device(t, mustNew(t, identity.Daemon, ca.daemon())), iwarp.QPInitAttr{})
	l := listenOn(t, b.Dev)
	w := newWire(t, l.Addr().String(), nil)
	inv, who := make(chan error, 1), make(chan string, 1)
	go func() {
		req, err := l.Accept(t.Context())
		if err == nil {
			who <- req.Info().Peer
			err = req.Accept(t.Context(), b.QP, &iwarp.ConnParam{})
		}
		inv <- err
	}()
	info, err := a.Dev.Dial(t.Context(), w.addr, a.QP, &iwarp.ConnParam{})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-inv; err != nil {
		t.Fatal(err)
	}
	if peer := <-who; peer != "build7" || info.Peer != identity.Anyone {
		t.Errorf("the daemon met %q and the client %q", peer, info.Peer)
	}
	const size = 4 << 20
	src := a.Reg(t, bytes.Repeat([]byte("data"), size/4), iwarp.LocalWrite, nil)
	memory := make([]byte, size)
	dst := b.Reg(t, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	before := len(records(t, w.said()))
	a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, STag: dst.STag(), TO: dst.Base(), SGL: []iwarp.SGE{{Addr: src.Base(), Length: size, LKey: src.STag()}}})
	a.WaitOK(t, 1)
	if s := a.QP.Stats(); s.Path.RTT == 0 || s.Path.Acked == 0 {
		t.Errorf("nothing is known of the path below TLS: %+v", s.Path)
	}
	if err := a.QP.Disconnect(iwarptest.Context(t)); err != nil {
		t.Errorf("graceful end: %v", err)
	}
	if err := b.WaitDone(t); err != nil {
		t.Errorf("the responder's end: %v", err)
	}
	if memory[size-1] != 'a' {
		t.Error("the Write did not arrive")
	}
	if n := len(records(t, w.said())) - before; n > size/(16<<10)*11/10+8 {
		t.Errorf("%d records of TLS for a Write of %d bytes", n, size)
	}
}

// records are the lengths of the TLS records in what a client said.
func records(t *testing.T, b []byte) (lengths []int) {
	t.Helper()
	for len(b) >= 5 {
		n := int(b[3])<<8 | int(b[4])
		lengths = append(lengths, n)
		b = b[min(len(b), 5+n):]
	}
	return lengths
}

// refuses fails the test if a Request gets as far as the daemon's Accept.
func refuses(t *testing.T, id *identity.Identity) (addr string) {
	t.Helper()
	l := listenOn(t, device(t, id))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if req, err := l.Accept(ctx); err == nil {
			t.Errorf("a Request of %v got through", req.Info().Remote)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l.Addr().String()
}

// dial connects as id.
func dial(t *testing.T, id *identity.Identity, addr string) error {
	t.Helper()
	e := iwarptest.NewEnd(t, device(t, id), iwarp.QPInitAttr{})
	_, err := e.Dev.Dial(t.Context(), addr, e.QP, &iwarp.ConnParam{Timeout: 5 * time.Second})
	return err
}

// TestAttackTLSAbsent (tls-absent): plaintext to a secure port; wrong CA; expired; right CA but wrong role,
// either way; a replayed session. All are refused before any byte of MPA is examined, and each side says
// why.
func TestAttackTLSAbsent(t *testing.T) {
	a, other := newCA(t), newCA(t)
	trust := mustNew(t, identity.Client, a.client())
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	for _, tt := range []struct {
		what           string
		daemon, client *identity.Identity
		told           string
	}{
		{"plaintext", mustNew(t, identity.Daemon, a.daemon()), mustNew(t, identity.Client, identity.Settings{}), "it speaks TLS: set auth.tls here"},
		{"wrong CA", mustNew(t, identity.Daemon, a.daemon()), identity.Unchecked(identity.Client, mustNew(t, identity.Client, other.client()), trust), "does not trust the CA"},
		{"expired", use(t, identity.Daemon, a.daemon(), later), trust, "its clock is wrong, or the one here"},
		{"a daemon's as a client's", mustNew(t, identity.Daemon, a.daemon()), identity.Unchecked(identity.Client, mustNew(t, identity.Daemon, a.daemon()), trust), "does not accept our certificate"},
		{"a client's as a daemon's", identity.Unchecked(identity.Daemon, trust, trust), trust, "it lacks serverAuth"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if err := dial(t, tt.client, refuses(t, tt.daemon)); err == nil || !strings.Contains(err.Error(), tt.told) {
				t.Errorf("the client got %v, want %q", err, tt.told)
			}
		})
	}
	t.Run("played again", func(t *testing.T) {
		d := mustNew(t, identity.Daemon, a.daemon())
		b := iwarptest.NewEnd(t, device(t, d), iwarp.QPInitAttr{})
		l := listenOn(t, b.Dev)
		done := make(chan error, 1)
		go func() {
			req, err := l.Accept(t.Context())
			if err == nil {
				err = req.Accept(t.Context(), b.QP, nil)
			}
			done <- err
		}()
		w := newWire(t, l.Addr().String(), nil)
		if err := errors.Join(dial(t, trust, w.addr), <-done); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", refuses(t, d))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(w.said()); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // until it is closed
	})
}

// TestAttackDowngrade (downgrade): a man in the middle changes what the sides send to make them speak
// without TLS, or without CRC. The mode is configured: neither follows.
func TestAttackDowngrade(t *testing.T) {
	a := newCA(t)
	plain := mustNew(t, identity.Client, identity.Settings{})
	client, daemon := mustNew(t, identity.Client, a.client()), mustNew(t, identity.Daemon, a.daemon())
	reply := append([]byte("MPA ID Rep Frame"), 0x40, 2, 0, 0)
	for what, change := range map[string]func([]byte, net.Conn) []byte{
		"the client's TLS is answered in plain": func(_ []byte, c net.Conn) []byte { _, _ = c.Write(reply); return nil },
		"it is hung up on":                      func([]byte, net.Conn) []byte { return nil },
		"it is told that nobody speaks TLS":     func(_ []byte, c net.Conn) []byte { _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 70}); return nil },
		"it is replaced by a plain Request":     func([]byte, net.Conn) []byte { return append([]byte("MPA ID Req Frame"), 0x40, 1, 0, 0) },
		"a byte of it is changed":               func(b []byte, _ net.Conn) []byte { b[len(b)-1] ^= 1; return b },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWire(t, refuses(t, daemon), change)
			if err := dial(t, client, w.addr); err == nil {
				t.Error("the client was content")
			}
			if bytes.Contains(w.said(), []byte("MPA ID")) {
				t.Error("the client went on without TLS")
			}
		})
	}
	t.Run("the CRC flag is taken out", func(t *testing.T) {
		d := mustNew(t, identity.Daemon, identity.Settings{})
		b := iwarptest.NewEnd(t, device(t, d), iwarp.QPInitAttr{})
		l := listenOn(t, b.Dev)
		got := make(chan iwarp.ConnInfo, 1)
		go func() {
			if req, err := l.Accept(t.Context()); err == nil && req.Accept(t.Context(), b.QP, nil) == nil {
				got <- req.Info()
			}
			close(got)
		}()
		w := newWire(t, l.Addr().String(), func(b []byte, _ net.Conn) []byte { b[16] &^= 0x40; return b })
		e := iwarptest.NewEnd(t, device(t, plain), iwarp.QPInitAttr{})
		info, err := e.Dev.Dial(t.Context(), w.addr, e.QP, nil)
		if err != nil || !info.CRC {
			t.Errorf("the client has no CRC: %+v, %v", info, err)
		}
		if in, ok := <-got; !ok || in.CRC {
			t.Fatalf("the daemon's Request: %+v, %v: the flag was to be gone", in, ok)
		}
	})
}

// Connections that begin a handshake and do not go on take the places of half-open
// start-ups, and no more; their time ends, and then others get in.
func TestSlowHandshakes(t *testing.T) {
	a := newCA(t)
	d := mustNew(t, identity.Daemon, a.daemon())
	var r record
	r.of(d)
	const places = 8
	b := iwarptest.NewEnd(t, device(t, d), iwarp.QPInitAttr{})
	l, err := b.Dev.Listen(t.Context(), "127.0.0.1:0", &iwarp.ListenOptions{RequestTimeout: 300 * time.Millisecond, MaxPending: places})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var slow []net.Conn
	for range 3 * places {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte{22, 3, 1}) // those beyond are closed at once
		slow = append(slow, c)
	}
	for i, c := range slow {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still there", i)
		}
	}
	go func() {
		if req, err := l.Accept(t.Context()); err == nil {
			_ = req.Accept(t.Context(), b.QP, nil)
		}
	}()
	client := mustNew(t, identity.Client, a.client())
	for err = errors.New("not tried"); err != nil && t.Context().Err() == nil; err = dial(t, client, l.Addr().String()) {
	}
	for _, c := range strings.Fields(r.failed()) {
		if c != identity.CauseTimeout && c != identity.CauseClosed {
			t.Errorf("counted %s", c)
		}
	}
	if n := strings.Count(r.failed(), identity.CauseTimeout); n != places {
		t.Errorf("%d handshakes ran into their time, want %d", n, places)
	}
}
