package identity_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
)

// heard is what a daemon's side received on a connection.
type heard struct {
	text string // all that was read
	err  error
	peer string
}

// listen takes connections as id and reports what each one said. What it says first is
// answered by "yes".
func listen(t *testing.T, id *identity.Identity) (addr string, got <-chan heard) {
	t.Helper()
	l, err := id.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ch := make(chan heard, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				var b [64]byte
				n, err := c.Read(b[:])
				h := heard{text: string(b[:n]), err: err}
				if p, ok := c.(interface{ PeerName() string }); ok {
					h.peer = p.PeerName()
				}
				if err == nil {
					_, _ = c.Write([]byte("yes"))
				}
				ch <- h
			}()
		}
	}()
	return l.Addr().String(), ch
}

// ask dials as id, says "hello" and returns the answer.
func ask(t *testing.T, id *identity.Identity, addr string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := id.Dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if len(b) > 0 {
		err = nil // the other end closes without a goodbye
	}
	return string(b), err
}

func TestRightPair(t *testing.T) {
	a := newCA(t)
	for _, names := range [][]string{{identity.Anyone}, {"127.0.0.1"}, {"build9", "127.0.0.1"}, {"localhost"}} {
		addr, got := listen(t, mustNew(t, identity.Daemon, a.daemon(names...)))
		if names[0] == "localhost" {
			addr = strings.Replace(addr, "127.0.0.1", "localhost", 1)
		}
		answer, err := ask(t, mustNew(t, identity.Client, a.client()), addr)
		if err != nil || answer != "yes" {
			t.Fatalf("daemon with names %v: %q, %v", names, answer, err)
		}
		if h := <-got; h.text != "hello" || h.peer != "build7" {
			t.Errorf("daemon with names %v heard %+v", names, h)
		}
	}
}

// TestWrongPairs: for each wrong pair, what the daemon counts, what the client is told, and that the daemon
// has read nothing.
func TestWrongPairs(t *testing.T) {
	a, other := newCA(t), newCA(t)
	clock := time.Now
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	before := func() time.Time { return time.Now().Add(-2 * time.Hour) }
	trust := mustNew(t, identity.Client, a.client())
	foreign := identity.Unchecked(identity.Client, mustNew(t, identity.Client, other.client()), trust)
	turned := identity.Unchecked(identity.Daemon, mustNew(t, identity.Client, a.client()), trust)
	daemons := identity.Unchecked(identity.Client, mustNew(t, identity.Daemon, a.daemon()), trust)
	for _, tt := range []struct {
		what           string
		daemon, client *identity.Identity
		cause, told    string
	}{
		{"client of another CA", use(t, identity.Daemon, a.daemon(), clock), foreign, identity.CauseUnknownCA, "does not trust the CA of our certificate"},
		{"daemon of another CA", use(t, identity.Daemon, other.daemon(), clock), use(t, identity.Client, a.client(), clock), identity.CauseRefused, "not signed by the CA that is trusted here"},
		{"client's certificate has expired there", use(t, identity.Daemon, a.daemon(), later), use(t, identity.Client, a.client(), clock), identity.CauseExpired, "its clock is wrong, or the one here"},
		{"client's certificate is not valid yet there", use(t, identity.Daemon, a.daemon(), before), use(t, identity.Client, a.client(), clock), identity.CauseNotYet, "its clock is wrong, or the one here"},
		{"daemon's certificate has expired here", use(t, identity.Daemon, a.daemon(), clock), use(t, identity.Client, a.client(), later), identity.CauseRefused, "expired on "},
		{"daemon's is not valid yet here", use(t, identity.Daemon, a.daemon(), clock), use(t, identity.Client, a.client(), before), identity.CauseRefused, "not valid before "},
		{"daemon of another name", use(t, identity.Daemon, a.daemon("build9"), clock), use(t, identity.Client, a.client(), clock), identity.CauseRefused, `is for "build9", not for "127.0.0.1"`},
		{"a client's as a daemon's", turned, use(t, identity.Client, a.client(), clock), identity.CauseRefused, "is not for a daemon: it lacks serverAuth"},
		{"a daemon's as a client's", use(t, identity.Daemon, a.daemon(), clock), daemons, identity.CauseWrongRole, "does not accept our certificate"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			d := tt.daemon
			var r record
			r.of(d)
			addr, got := listen(t, d)
			answer, err := ask(t, tt.client, addr)
			var e *identity.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.told) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the client got %q, %v; want %q", answer, err, tt.told)
			}
			if h := <-got; h.text != "" || h.peer != "" || h.err == nil {
				t.Errorf("the daemon heard %+v", h)
			}
			if r.failed() != tt.cause {
				t.Errorf("the daemon counted %q, want %q", r.failed(), tt.cause)
			}
			if n := strings.Count(r.text(), "did not prove"); n != 1 || !strings.Contains(r.text(), "cause="+tt.cause) {
				t.Errorf("%d lines in the log:\n%s", n, r.text())
			}
		})
	}
}

// What speaks no TLS is refused unread, and can tell why.
func TestPlaintextToTLS(t *testing.T) {
	a := newCA(t)
	d := mustNew(t, identity.Daemon, a.daemon())
	var r record
	r.of(d)
	addr, got := listen(t, d)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("MPA ID Req Frame\x40\x02\x00\x00")); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(b, []byte{21, 3, 3, 0, 2, 2, 10}) {
		t.Errorf("got % x, %v: want the alert unexpected_message", b, err)
	}
	if h := <-got; h.text != "" || r.failed() != identity.CausePlaintext {
		t.Errorf("the daemon heard %+v and counted %q", h, r.failed())
	}
}

func TestTLSToPlaintext(t *testing.T) {
	a := newCA(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b [20]byte
			_, _ = c.Read(b[:])
			c.Close()
		}
	}()
	_, err = ask(t, mustNew(t, identity.Client, a.client()), l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "has no auth.tls set") {
		t.Errorf("a daemon without TLS: %v", err)
	}
}

// Old versions of TLS, and a client without a certificate.
func TestOtherTLSClients(t *testing.T) {
	a := newCA(t)
	for _, tt := range []struct {
		cfg   *tls.Config
		cause string
	}{
		{&tls.Config{InsecureSkipVerify: true}, identity.CauseNoCertificate},
		{&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}, identity.CauseOther},
	} {
		d := mustNew(t, identity.Daemon, a.daemon())
		var r record
		r.of(d)
		addr, got := listen(t, d)
		c, err := tls.Dial("tcp", addr, tt.cfg)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if h := <-got; err == nil || h.text != "" || r.failed() != tt.cause {
			t.Errorf("client got %v, daemon heard %+v and counted %q, want %q", err, h, r.failed(), tt.cause)
		}
	}
}

// An address that may fail once more has one handshake at a time, not as many as it can begin before the first has failed.
func TestHandshakesUnderWay(t *testing.T) {
	a := newCA(t)
	now := time.Now()
	var later atomic.Int64
	d, err := identity.NewAt(identity.Daemon, a.daemon(), func() time.Time { return now.Add(time.Duration(later.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	var r record
	r.of(d)
	addr, got := listen(t, d)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	turnedAway := func(c net.Conn) {
		t.Helper()
		if b, err := io.ReadAll(c); len(b) == 0 || err != nil {
			t.Errorf("read %x, %v of a connection that should be turned away", b, err)
		}
	}
	for range 199 { // of 200, from loopback
		d.Failed(dialled, identity.CauseUnknownCA, "x")
	}
	first := dial()
	for range 3 {
		turnedAway(dial())
	}
	first.Close() // which is a failure
	if h := <-got; h.err == nil {
		t.Errorf("heard %+v", h)
	}
	turnedAway(dial())
	later.Store(int64(time.Second))
	if answer, err := ask(t, mustNew(t, identity.Client, a.client()), addr); answer != "yes" {
		t.Errorf("the address may try again: %q, %v", answer, err)
	}
	if h := <-got; h.text != "hello" {
		t.Errorf("heard %+v", h)
	}
	if n := strings.Count(r.failed(), identity.CauseTooMany); n != 4 {
		t.Errorf("%d were turned away, want 4", n)
	}
}

// dialled is where connections of tests come from.
var dialled = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// A recorded session, played again: no byte of it gets through, as there is no early
// data and nothing to resume.
func TestReplayIsRefused(t *testing.T) {
	a := newCA(t)
	d := mustNew(t, identity.Daemon, a.daemon())
	addr, got := listen(t, d)
	// A relay that keeps what the client says.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		to, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, to); c.Close() }()
		var b bytes.Buffer
		_, _ = io.Copy(to, io.TeeReader(c, &b))
		said <- b.Bytes()
	}()
	if answer, err := ask(t, mustNew(t, identity.Client, a.client()), l.Addr().String()); err != nil || answer != "yes" {
		t.Fatal(answer, err)
	}
	if h := <-got; h.text != "hello" {
		t.Fatalf("heard %+v", h)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(<-said); err != nil {
		t.Fatal(err)
	}
	if h := <-got; h.text != "" || h.err == nil {
		t.Errorf("played again: heard %+v", h)
	}
}

// No ticket is given, so that no session can be resumed.
func TestNoTickets(t *testing.T) {
	a := newCA(t)
	addr, _ := listen(t, mustNew(t, identity.Daemon, a.daemon()))
	s := a.client()
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	cache := &tickets{}
	for range 2 {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, ClientSessionCache: cache})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("hello"))
		_, _ = c.Read(make([]byte, 3))
		if c.ConnectionState().DidResume {
			t.Error("a session was resumed")
		}
		c.Close()
	}
	if cache.n != 0 {
		t.Errorf("%d session tickets came", cache.n)
	}
}

type tickets struct{ n int }

func (t *tickets) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (t *tickets) Put(_ string, s *tls.ClientSessionState)    { t.n++ }

// A peer that sends a handshake without end is cut off.
func TestHandshakeIsBounded(t *testing.T) {
	a := newCA(t)
	d := mustNew(t, identity.Daemon, a.daemon())
	addr, got := listen(t, d)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Records of a ClientHello of 200 KiB, within what the library itself would take.
	hello := []byte{1, 3, 32, 0}
	for sent := 0; sent < 200<<10; {
		part := make([]byte, 16000)
		copy(part, hello)
		hello = nil
		if _, err = c.Write(append([]byte{22, 3, 1, byte(len(part) >> 8), byte(len(part) & 255)}, part...)); err != nil {
			break
		}
		sent += len(part)
	}
	h := <-got
	if h.err == nil || errors.Is(h.err, os.ErrDeadlineExceeded) {
		t.Errorf("a handshake of 200 KiB ended with %v", h.err)
	}
}
