package outfit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program returns a toolchain of this machine that consists of one program.
func program(t *testing.T, name string) *toolchain.Toolchain {
	t.Helper()
	path, err := filepath.EvalSymlinks(name)
	must(t, err)
	return &toolchain.Toolchain{ID: unit.ToolchainID{1, byte(len(name))}, Exec: path, Path: path, Family: "gcc", Version: "12.2.0", Target: "x86_64-linux-gnu", Major: 12, Files: []string{path}}
}

// same identifies a compiler that has not changed.
func same(tc *toolchain.Toolchain) Identify {
	return func(context.Context) (toolchain.Toolchain, error) { return *tc, nil }
}

// site is a farm of which an Outfitter knows, with a host.
type site struct {
	t       *testing.T
	store   *received.Store
	service *received.Service

	mu      sync.Mutex
	parcels map[unit.ToolchainID]unit.ToolchainID // by toolchain
	dials   int
	fail    func(n int, c net.Conn) (net.Conn, error) // what becomes of the nth connection; nil: nothing
	ok, no  int
	words   []word // what the farm was told
	away    bool   // there is no host
}

func newSite(t *testing.T, quota int64) *site {
	t.Helper()
	s := &site{t: t, parcels: map[unit.ToolchainID]unit.ToolchainID{}}
	var err error
	log := slog.New(slog.DiscardHandler)
	s.store, err = received.Open(received.Options{Dir: t.TempDir(), Quota: quota, Log: log})
	must(t, err)
	s.service = received.NewService(s.store, log, func(string) {})
	t.Cleanup(func() {
		s.service.Close()
		must(t, s.store.Close())
	})
	return s
}

const host = "host:1"

func (s *site) has(id unit.ToolchainID) bool {
	s.mu.Lock()
	p, ok := s.parcels[id]
	s.mu.Unlock()
	if !ok {
		return false
	}
	for _, t := range s.store.List("alice") {
		if t.ID == p {
			return true
		}
	}
	return false
}

func (s *site) Lacking(id unit.ToolchainID) []string {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away || s.has(id) {
		return nil
	}
	return []string{host}
}

func (s *site) Alias(parcel, own unit.ToolchainID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parcels[own] = parcel
}

func (s *site) Coming(string, unit.ToolchainID, uint64) { s.say(coming) }
func (s *site) Queued(string, unit.ToolchainID)         { s.say(queued) }
func (s *site) Unsendable(string, unit.ToolchainID)     { s.say(unsendable) }

func (s *site) say(w word) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = append(s.words, w)
}

func (s *site) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	s.service.Take(far, "alice")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if s.fail == nil {
		return near, nil
	}
	return s.fail(s.dials, near)
}

func (s *site) outfitter() *Outfitter {
	x := New(Options{Farm: s, Dial: s.dial, Log: slog.New(slog.DiscardHandler), Pause: 10 * time.Millisecond, Sent: func(ok bool, _ uint64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ok {
			s.ok++
		} else {
			s.no++
		}
	}})
	s.t.Cleanup(x.Close)
	return x
}

func (s *site) wait(what string, ok func() bool) {
	s.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("waited in vain for %s", what)
}

func (s *site) counts() (ok, no int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok, s.no
}

// TestSend: a host that lacks a compiler gets it, once.
func TestSend(t *testing.T) {
	s := newSite(t, 1<<30)
	x := s.outfitter()
	for _, name := range []string{"/bin/true", "/bin/cat"} {
		tc := program(t, name)
		for range 3 {
			x.Use(tc, same(tc))
		}
		s.wait(name, func() bool { return s.has(tc.ID) })
		list := s.store.List("alice")
		for _, r := range list {
			if r.Exec != tc.Exec {
				continue
			}
			got, err := os.ReadFile(r.Root + tc.Exec)
			want, werr := os.ReadFile(tc.Exec)
			if err := errors.Join(err, werr); err != nil || string(got) != string(want) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
	s.wait("the count", func() bool { ok, no := s.counts(); return ok == 2 && no == 0 })
	s.mu.Lock()
	if len(s.words) == 0 || slices.Contains(s.words, unsendable) {
		t.Errorf("the farm was told %v", s.words)
	}
	s.mu.Unlock()
	s.wait("nothing to be said", func() bool { return len(x.States(host)) == 0 })
}

// cut is a connection that breaks after so many bytes.
type cut struct {
	net.Conn
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if len(b) > c.left {
		n, _ := c.Conn.Write(b[:c.left])
		c.left = 0
		c.Conn.Close()
		return n, io.ErrClosedPipe
	}
	c.left -= len(b)
	return c.Conn.Write(b)
}

// TestBrokenConnections: a transfer goes on where it was cut off, so it ends however short connections are.
func TestBrokenConnections(t *testing.T) {
	s := newSite(t, 1<<30)
	s.fail = func(_ int, c net.Conn) (net.Conn, error) { return &cut{c, 200 << 10}, nil }
	tc := program(t, "/bin/bash") // more than half a megabyte, packed
	if st, err := os.Stat(tc.Path); err != nil || st.Size() < 600<<10 {
		t.Skipf("needs a larger program than bash here: %v, %v", st, err)
	}
	x := s.outfitter()
	x.Use(tc, same(tc))
	s.wait("all of it", func() bool { return s.has(tc.ID) })
	if _, no := s.counts(); no < 2 {
		t.Errorf("%d failures: the test cut nothing off", no)
	}
}

// TestRefused: a host that accepts none is left alone for a while, and it is known why.
func TestRefused(t *testing.T) {
	s := newSite(t, 1<<30)
	s.fail = func(_ int, c net.Conn) (net.Conn, error) {
		c.Close()
		return nil, &streams.Rejected{Rejection: job.Rejection{Cause: job.CauseDenied, Detail: "none are accepted"}}
	}
	x := s.outfitter()
	tc := program(t, "/bin/true")
	x.Use(tc, same(tc))
	s.wait("the reason", func() bool {
		st := x.States(host)
		return len(st) == 1 && st[0].Refused && strings.Contains(st[0].String(), "gcc 12.2.0 cannot be sent there: ") && strings.Contains(st[0].Err, "none are accepted")
	})
	s.mu.Lock()
	if n := len(s.words); n < 2 || s.words[0] != coming || s.words[n-1] != unsendable {
		t.Errorf("the farm was told %v", s.words)
	}
	dials := s.dials
	s.mu.Unlock()
	x.look(time.Now().Add(refusedTime / 2))
	x.look(time.Now().Add(2 * refusedTime))
	s.wait("another attempt", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.dials == dials+1 })
}

// TestQuota: a toolchain for which there is no room is refused as well.
func TestQuota(t *testing.T) {
	s := newSite(t, 1000)
	x := s.outfitter()
	tc := program(t, "/bin/true")
	x.Use(tc, same(tc))
	s.wait("the reason", func() bool {
		st := x.States(host)
		return len(st) == 1 && st[0].Refused && strings.Contains(st[0].Err, "no room")
	})
}

// TestUnfit: a toolchain that the host could not run is not sent. One for the host's kernel and processor is (TestSend).
func TestUnfit(t *testing.T) {
	for why, needs := range map[string]parcel.Needs{
		"it is for s390x, and the host is ": {Machine: "s390x"}, "it needs Linux 99.1.0, and the host has ": {Kernel: parcel.Version{99, 1}},
	} {
		s := newSite(t, 1<<30)
		x := s.outfitter()
		tc := program(t, "/bin/true")
		k := &kit{tc: *tc, again: same(tc)}
		pack, err := x.pack(k)
		must(t, err)
		pack.parcel.Needs = needs
		x.mu.Lock()
		x.used[tc.ID], k.last = k, time.Now()
		x.mu.Unlock()
		x.kick()
		s.wait(why, func() bool {
			st := x.States(host)
			return len(st) == 1 && st[0].Refused && strings.Contains(st[0].Err, why)
		})
		if n := s.store.Stats(); n.Bytes != 0 || s.has(tc.ID) {
			t.Errorf("the host has %+v", n)
		}
	}
}

// TestCannotTravel: a compiler whose files lie where every host has its own is not sent.
func TestCannotTravel(t *testing.T) {
	s := newSite(t, 1<<30)
	x := s.outfitter()
	tc := program(t, "/bin/true")
	tc.Exec, tc.Path, tc.Files = "/proc/self/exe", "/proc/self/exe", []string{"/proc/self/exe"}
	x.Use(tc, same(tc))
	s.wait("the reason", func() bool {
		st := x.States(host)
		return len(st) == 1 && st[0].Refused && st[0].Err != ""
	})
	if s.dials != 0 {
		t.Error("it was offered")
	}
}

// TestReplacedCompiler: a compiler that has been replaced since the job which meant it is not described under its name, as a host
// would take the new one for it. Nothing is told of it any more. When it is back, it is sent.
func TestReplacedCompiler(t *testing.T) {
	s := newSite(t, 1<<30)
	x := s.outfitter()
	tc := program(t, "/bin/true")
	var back atomic.Bool
	x.Use(tc, func(context.Context) (toolchain.Toolchain, error) {
		now := *tc
		if !back.Load() {
			now.ID[0]++
		}
		return now, nil
	})
	s.wait("two attempts", func() bool { _, no := s.counts(); return no >= 2 })
	if st, all := x.States(host), x.Compilers(); len(st)+len(all) != 0 {
		t.Errorf("told of what nobody uses: %v, %v", st, all)
	}
	if len(s.parcels) != 0 || s.dials != 0 {
		t.Error("the new one was sent under the old name")
	}
	back.Store(true)
	s.wait("all of it", func() bool { return s.has(tc.ID) })
	s.wait("it to be told of", func() bool { return len(x.Compilers()) == 1 })
}

// TestReplacedWhereRefused: once a compiler is gone, nothing is told of it where it was refused before, either; nor of one that no
// job has used for long where it is no longer lacking.
func TestReplacedWhereRefused(t *testing.T) {
	s := newSite(t, 1<<30)
	s.fail = func(_ int, c net.Conn) (net.Conn, error) {
		c.Close()
		return nil, &streams.Rejected{Rejection: job.Rejection{Cause: job.CauseDenied, Detail: "none are accepted"}}
	}
	x := s.outfitter()
	gone, idle := program(t, "/bin/true"), program(t, "/bin/sleep")
	var replaced atomic.Bool
	x.Use(gone, func(context.Context) (toolchain.Toolchain, error) {
		now := *gone
		if replaced.Load() {
			now.ID[0]++
		}
		return now, nil
	})
	x.Use(idle, same(idle))
	s.wait("both reasons", func() bool {
		st := x.States(host)
		return len(st) == 2 && st[0].Refused && st[1].Refused
	})
	replaced.Store(true)
	x.mu.Lock()
	x.hosts[pair{host, gone.ID}].rest = time.Time{} // as after some minutes
	x.used[idle.ID].last = time.Now().Add(-2 * usedTime)
	x.mu.Unlock()
	x.kick()
	s.wait("nothing to be told of what is gone", func() bool { st := x.States(host); return len(st) == 1 && st[0].ID == idle.ID })
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	s.wait("nothing to be told of what is not lacking", func() bool { return len(x.States(host)) == 0 })
}

// TestChangesWhileSent: a file that is no longer the one that was described does not get to the host in its place. If the compiler
// is still the same, it is described anew.
func TestChangesWhileSent(t *testing.T) {
	s := newSite(t, 1<<30)
	x := s.outfitter()
	tc := program(t, "/bin/true")
	k := &kit{tc: *tc, again: same(tc)}
	pack, err := x.pack(k)
	must(t, err)
	for i := range pack.parcel.Entries { // as if it had been read before a change
		if e := &pack.parcel.Entries[i]; !e.Link() {
			e.Sum[0] ^= 1
		}
	}
	pack.encoded = pack.parcel.Append(nil)
	if _, err := x.send(pair{host, tc.ID}, &delivery{}, k); !errors.Is(err, parcel.ErrChanged) || !strings.Contains(err.Error(), tc.Exec) {
		t.Errorf("it is sent: %v", err)
	}
	if n := s.store.Stats(); n.Toolchains != 0 || n.Bytes != 0 {
		t.Errorf("the host has %+v", n)
	}
	x.mu.Lock()
	x.used[tc.ID], k.last = k, time.Now()
	x.mu.Unlock()
	x.kick()
	s.wait("all of it", func() bool { return s.has(tc.ID) })
	if _, no := s.counts(); no != 1 {
		t.Errorf("%d attempts failed", no)
	}
}

// TestSendNow: a compiler is sent as soon as somebody asks for that, however long ago it was refused.
func TestSendNow(t *testing.T) {
	s := newSite(t, 1<<30)
	var refuse atomic.Bool
	refuse.Store(true)
	s.fail = func(_ int, c net.Conn) (net.Conn, error) {
		if !refuse.Load() {
			return c, nil
		}
		c.Close()
		return nil, &streams.Rejected{Rejection: job.Rejection{Cause: job.CauseDenied, Detail: "none are accepted"}}
	}
	x := s.outfitter()
	tc := program(t, "/bin/true")
	x.Use(tc, same(tc))
	s.wait("the reason", func() bool { st := x.States(host); return len(st) == 1 && st[0].Refused })
	refuse.Store(false)
	x.Send(host, tc, same(tc))
	s.wait("all of it", func() bool { return s.has(tc.ID) })
	if list := x.Compilers(); len(list) != 1 || list[0].ID != tc.ID || list[0].Bytes == 0 || list[0].Err != nil {
		t.Errorf("%+v", list)
	}
}

// TestAnotherClient: a content that another client is sending is not sent a second time; if that one gives up, it is.
func TestAnotherClient(t *testing.T) {
	s := newSite(t, 1<<30)
	tc := program(t, "/bin/true")
	x := s.outfitter()
	k := &kit{tc: *tc, again: same(tc)}
	pack, err := x.pack(k)
	must(t, err)
	id, missing, err := s.store.Offer("bob", pack.encoded)
	must(t, err)
	r, w := io.Pipe()
	name := ""
	func() { // the name by which it is written is the service's
		near, far := net.Pipe()
		s.service.Take(far, "bob")
		defer near.Close()
		name = nameOf(t, near, pack.encoded)
	}()
	done := make(chan error)
	go func() {
		_, err := s.store.Write("bob", id, name, missing[0].Have, r)
		done <- err
	}()
	_, err = w.Write([]byte{0x7f})
	must(t, err)
	x.Use(tc, same(tc))
	s.wait("a connection", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.dials > 0 })
	time.Sleep(50 * time.Millisecond)
	if s.has(tc.ID) {
		t.Error("two have written it")
	}
	w.CloseWithError(errors.New("gave up"))
	if err := <-done; err == nil {
		t.Error("half a content")
	}
	s.wait("all of it", func() bool { return s.has(tc.ID) })
}

// nameOf asks a host by which name it wants the first content of a parcel.
func nameOf(t *testing.T, c net.Conn, encoded []byte) string {
	t.Helper()
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	defer tr.CloseIdleConnections()
	a, err := (&http.Client{Transport: tr}).Post("http://host/offer", "", bytes.NewReader(encoded))
	must(t, err)
	defer a.Body.Close()
	var o parcel.Offered
	must(t, json.NewDecoder(a.Body).Decode(&o))
	return o.Missing[0].Name
}
