package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/lab/9p/export"
	"github.com/rdistcc/rdistcc/lab/9p/p9"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func TestMain(m *testing.M) { iwarptest.Main(m) }

// transports are the devices that a server and its client have.
var transports = map[string]func(t *testing.T) (server, client iwarp.Device, addr string){
	"soft": func(t *testing.T) (iwarp.Device, iwarp.Device, string) {
		return iwarptest.Open(t, iwarp.Config{}), iwarptest.Open(t, iwarp.Config{}), "127.0.0.1:0"
	},
	"inproc": func(t *testing.T) (iwarp.Device, iwarp.Device, string) {
		n := inproc.NewNetwork()
		a, b := n.Open(inproc.Defaults()), n.Open(inproc.Defaults())
		t.Cleanup(func() { iwarptest.Close(t, a); iwarptest.Close(t, b) })
		return a, b, "9p:0"
	},
}

// logged is a log that tests look at while the server writes it.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// farm is a server on a directory, and the device of its clients.
type farm struct {
	dir  string
	dev  iwarp.Device // of clients
	addr string
	log  *logged
	end  func() // ends the server and waits for it
}

// start serves a directory with a large file and a small one.
func start(t *testing.T, transport string) *farm {
	t.Helper()
	f := &farm{dir: t.TempDir(), log: new(logged)}
	for name, size := range map[string]int{"large": 1<<20 + 3, "small": 5} {
		if err := os.WriteFile(filepath.Join(f.dir, name), bytes.Repeat([]byte("content"), size/7+1)[:size], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := export.Open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, client, addr := transports[transport](t)
	f.dev = client
	s := &server{dev: dev, tree: tree, log: log.New(f.log, "", 0)}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := s.listen(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, l) }()
	f.end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the server ended with %v", err)
		}
		l.Close()
		tree.Close()
	})
	t.Cleanup(f.end)
	return f
}

// mounted is a client as the kernel's is: it posts a receive for each request and sends it as one message.
type mounted struct {
	t   *testing.T
	e   *iwarptest.End
	in  iwarp.MR
	buf []byte // a place for each request that may be under way
	at  int    // the place that is used next
	tag uint16
}

func (f *farm) mount(t *testing.T) (*mounted, error) {
	t.Helper()
	m := &mounted{t: t, e: iwarptest.NewEnd(t, f.dev, iwarp.QPInitAttr{MaxRecv: 2 * requests}), buf: make([]byte, requests*export.MaxMsize)}
	var err error
	if m.in, err = m.e.PD.RegMR(m.buf, iwarp.LocalWrite, nil); err != nil {
		t.Fatal(err)
	}
	_, err = f.dev.Dial(iwarptest.Context(t), f.addr, m.e.QP, nil)
	return m, err
}

// send posts a receive and sends b.
func (m *mounted) send(b []byte) error {
	at := uint64(m.at * export.MaxMsize)
	m.at = (m.at + 1) % requests
	recv := &iwarp.RecvWR{ID: at, SGL: []iwarp.SGE{{Addr: m.in.Base() + at, Length: export.MaxMsize, LKey: m.in.STag()}}}
	if err := m.e.QP.PostRecv(recv); err != nil {
		return err
	}
	return m.e.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: b})
}

// answer waits for an answer and returns it.
func (m *mounted) answer() ([]byte, error) {
	if err := m.e.CQ.Wait(iwarptest.Context(m.t)); err != nil {
		m.t.Fatal(err)
	}
	var wc [1]iwarp.WC
	m.e.CQ.Poll(wc[:])
	if wc[0].Status != iwarp.StatusSuccess {
		<-m.e.QP.Done()
		return nil, fmt.Errorf("%v: %w", wc[0].Status, errors.Join(m.e.QP.Err(), net.ErrClosed))
	}
	return m.buf[wc[0].ID:][:wc[0].ByteLen], nil
}

// do sends a request and returns the body of its answer.
func (m *mounted) do(typ p9.Type, fields ...any) []byte {
	m.t.Helper()
	m.tag++
	err := m.send(message(typ, m.tag, fields...))
	var b []byte
	if err == nil {
		b, err = m.answer()
	}
	if err != nil || p9.Type(b[4]) != typ+1 || binary.LittleEndian.Uint16(b[5:]) != m.tag {
		m.t.Fatalf("request of type %d: answer % x, %v", typ, b, err)
	}
	return b[p9.HeaderSize:]
}

// message puts a request together: numbers by their size, strings with their length.
func message(typ p9.Type, tag uint16, fields ...any) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{0, 0, 0, 0, byte(typ)}, tag)
	for _, f := range fields {
		if s, ok := f.(string); ok {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
			continue
		}
		b, _ = binary.Append(b, binary.LittleEndian, f)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return b
}

// attach agrees on a version and attaches the directory as fid 0.
func (m *mounted) attach() {
	m.t.Helper()
	m.do(p9.Tversion, uint32(export.MaxMsize), p9.Version)
	m.do(p9.Tattach, uint32(0), p9.NoFID, "", "", uint32(0))
}

// readFile reads a file of the directory by fid.
func (m *mounted) readFile(fid uint32, name string) []byte {
	m.t.Helper()
	m.do(p9.Twalk, uint32(0), fid, uint16(1), name)
	m.do(p9.Tlopen, fid, uint32(0))
	var all []byte
	for {
		b := m.do(p9.Tread, fid, uint64(len(all)), uint32(export.MaxMsize-p9.ReadHeader))
		if len(b) == 4 {
			m.do(p9.Tclunk, fid)
			return all
		}
		all = append(all, b[4:]...)
	}
}

// close ends the connection.
func (m *mounted) close() {
	m.t.Helper()
	if err := m.e.QP.Disconnect(iwarptest.Context(m.t)); err != nil {
		m.t.Errorf("disconnect: %v", err)
	}
	m.free()
}

// free releases everything.
func (m *mounted) free() {
	m.e.QP.Destroy()
	m.in.Dereg()
	m.e.CQ.Close()
	m.e.PD.Dealloc()
}

// each runs a test on every transport.
func each(t *testing.T, test func(*testing.T, *farm)) {
	for name := range transports {
		t.Run(name, func(t *testing.T) { test(t, start(t, name)) })
	}
}

// TestClients reads files with several clients at a time.
func TestClients(t *testing.T) {
	each(t, func(t *testing.T, f *farm) {
		var wg sync.WaitGroup
		for range 4 {
			m, err := f.mount(t)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				m.attach()
				for i, name := range []string{"large", "small", "large"} {
					want, _ := os.ReadFile(filepath.Join(f.dir, name))
					if got := m.readFile(uint32(i+1), name); !bytes.Equal(got, want) {
						t.Errorf("%s: got %d bytes that differ from its %d", name, len(got), len(want))
					}
				}
				m.close()
			})
		}
		wg.Wait()
		f.end()
		if s := f.log.String(); strings.Count(s, ": connected\n") != 4 || strings.Count(s, ": closed\n") != 4 || strings.Count(s, "\n") != 8 {
			t.Errorf("log:\n%s", s)
		}
	})
}

// TestManyRequests sends as many requests as may be under way before it reads an answer, again and again.
func TestManyRequests(t *testing.T) {
	each(t, func(t *testing.T, f *farm) {
		m, err := f.mount(t)
		if err != nil {
			t.Fatal(err)
		}
		m.attach()
		for range 20 {
			for tag := range uint16(requests) {
				if err := m.send(message(p9.Tgetattr, tag, uint32(0), p9.AllBasic)); err != nil {
					t.Fatal(err)
				}
			}
			for tag := range uint16(requests) {
				if b, err := m.answer(); err != nil || p9.Type(b[4]) != p9.Tgetattr+1 {
					t.Fatalf("request %d: % x, %v", tag, b, err)
				}
			}
		}
		m.close()
	})
}

// TestNoMessage: what is no message ends its connection with one line in the log, and no other one.
func TestNoMessage(t *testing.T) {
	each(t, func(t *testing.T, f *farm) {
		good, err := f.mount(t)
		if err != nil {
			t.Fatal(err)
		}
		good.attach()
		for _, b := range [][]byte{{1}, make([]byte, 100), {8, 0, 0, 0, byte(p9.Tclunk), 1, 0}} {
			bad, err := f.mount(t)
			if err != nil {
				t.Fatal(err)
			}
			bad.attach()
			if err := bad.send(b); err != nil {
				t.Fatal(err)
			}
			if got, err := bad.answer(); err == nil {
				t.Errorf("% x is answered with % x", b, got)
			}
			bad.free()
		}
		if got := good.readFile(1, "small"); string(got) != "conte" {
			t.Errorf("the other client reads %q", got)
		}
		good.close()
		f.end()
		if s := f.log.String(); strings.Count(s, ": no 9P message: ") != 3 || strings.Count(s, "\n") != 4+3+1 {
			t.Errorf("log:\n%s", s)
		}
	})
}

// TestTooManyClients: one more than there may be is refused, and welcome when another has left.
func TestTooManyClients(t *testing.T) {
	each(t, func(t *testing.T, f *farm) {
		var all []*mounted
		for range maxClients {
			m, err := f.mount(t)
			if err != nil {
				t.Fatal(err)
			}
			m.attach()
			all = append(all, m)
		}
		m, err := f.mount(t)
		var rejected *iwarp.RejectedError
		if !errors.As(err, &rejected) || string(rejected.PrivateData) != "too many clients" {
			t.Errorf("one client too many: %v", err)
		}
		m.free()
		all[0].close()
		for { // the server may be a moment behind
			m, err := f.mount(t)
			if err == nil {
				m.attach()
				m.close()
				break
			}
			m.free()
		}
		for _, m := range all[1:] {
			m.close()
		}
	})
}

// TestServerEnds: the server hangs up on its clients when it ends.
func TestServerEnds(t *testing.T) {
	each(t, func(t *testing.T, f *farm) {
		m, err := f.mount(t)
		if err != nil {
			t.Fatal(err)
		}
		m.attach()
		f.end()
		<-m.e.QP.Done()
		if err := m.e.QP.Err(); err != nil {
			t.Errorf("the client's stream ended with %v, not in order", err)
		}
		m.free()
	})
}

// TestAdmit: beyond this machine, only networks that are named may connect.
func TestAdmit(t *testing.T) {
	s := &server{allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	for ip, want := range map[string]bool{"127.0.0.1": true, "::1": true, "192.0.2.9": true, "::ffff:192.0.2.9": true, "192.0.3.1": false, "2001:db8::1": false} {
		if err := s.admit(&net.TCPAddr{IP: net.ParseIP(ip)}); (err == nil) != want {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

// TestRun runs the program from its command line to its end.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := new(logged)
	status := make(chan int)
	go func() { status <- run(ctx, []string{"--listen", "127.0.0.1:0", t.TempDir()}, out) }()
	cancel()
	if got := <-status; got != 0 {
		t.Errorf("exit status %d\n%s", got, out)
	}
	for _, args := range [][]string{nil, {"a", "b"}, {"--allow", "nonsense", "."}, {"--unknown"}} {
		if got := run(t.Context(), args, new(logged)); got != exitUsage {
			t.Errorf("%v: exit status %d, want %d", args, got, exitUsage)
		}
	}
	out = new(logged)
	if got := run(t.Context(), []string{filepath.Join(t.TempDir(), "nowhere")}, out); got != exitFailed || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("no directory: exit status %d\n%s", got, out)
	}
}
