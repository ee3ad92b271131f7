package discover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

// nameServer answers on loopback, by UDP and TCP.
type nameServer struct {
	t    *testing.T
	addr string

	mu    sync.Mutex
	a     map[string][]string // addresses by name, lower case with a final dot
	srv   map[string][]dnsmessage.SRVResource
	how   string // "", or: hang, garbage, truncate, refuse, none
	asked int
	by    map[string]int // questions by network
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{t: t, a: map[string][]string{}, srv: map[string][]dnsmessage.SRVResource{}, by: map[string]int{}}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = udp.LocalAddr().String()
	tcp, err := net.Listen("tcp4", s.addr)
	if err != nil {
		t.Skipf("the TCP port beside the UDP port is taken: %v", err)
	}
	var run sync.WaitGroup
	run.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			if b := s.answer(buf[:n], "udp"); b != nil {
				_, _ = udp.WriteTo(b, from)
			}
		}
	})
	run.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			var head [2]byte
			if _, err := c.Read(head[:]); err == nil {
				q := make([]byte, int(head[0])<<8|int(head[1]))
				if _, err := c.Read(q); err == nil {
					b := s.answer(q, "tcp")
					_, _ = c.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
				}
			}
			c.Close()
		}
	})
	t.Cleanup(func() {
		udp.Close()
		tcp.Close()
		run.Wait()
	})
	return s
}

func (s *nameServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *nameServer) answer(q []byte, network string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.by[network]++
	var m dnsmessage.Message
	if err := m.Unpack(q); err != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.RecursionAvailable = true, true
	m.Additionals = nil
	name := strings.ToLower(m.Questions[0].Name.String())
	head := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}
	switch {
	case s.how == "hang":
		return nil
	case s.how == "garbage":
		return append(q[:2:2], "nonsense that is no message"...)
	case s.how == "refuse":
		m.RCode = dnsmessage.RCodeRefused
	case s.how == "truncate" && network == "udp":
		m.Truncated = true
	case s.how == "none":
		m.RCode = dnsmessage.RCodeNameError
	case m.Questions[0].Type == dnsmessage.TypeA:
		for _, a := range s.a[name] {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}})
		}
	case m.Questions[0].Type == dnsmessage.TypeSRV:
		for _, r := range s.srv[name] {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &r})
		}
	}
	b, err := m.Pack()
	if err != nil {
		s.t.Errorf("pack an answer: %v", err)
	}
	return b
}

func (s *nameServer) finder(o Options) *Finder {
	var d net.Dialer
	o.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, strings.TrimRight(network, "46")+"4", s.addr)
	}}
	if o.Interval == 0 {
		o.Interval = 20 * time.Millisecond
	}
	f := New(o)
	s.t.Cleanup(f.Close)
	return f
}

func mustParse(t *testing.T, text string) hostlist.List {
	t.Helper()
	l, err := hostlist.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// found are the entries of a list as text.
func found(f *Finder, l hostlist.List) []string {
	got, _ := f.List(l)
	out := []string{}
	for _, h := range got.Hosts {
		out = append(out, fmt.Sprintf("%s/%d", h.Addr(), h.Slots))
	}
	return out
}

// wantSoon waits until the list is as wanted.
func wantSoon(t *testing.T, f *Finder, l hostlist.List, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = found(f, l); slices.Equal(got, want) {
			return
		}
	}
	list, _ := f.List(l)
	t.Fatalf("hosts are %q, want %q; sources %+v", got, want, list.Sources)
}

func TestNameWithSeveralAddresses(t *testing.T) {
	s := newNameServer(t)
	s.set(func() { s.a["farm.example.org."] = []string{"192.0.2.9", "192.0.2.10"} })
	f := s.finder(Options{})
	l := mustParse(t, "first/2 dns+farm.example.org:7700/8,zstd last")
	if got, want := found(f, l), []string{"first:7632/2", "192.0.2.9:7700/8", "192.0.2.10:7700/8", "last:7632/0"}; !slices.Equal(got, want) {
		t.Errorf("the first answer is %q, want %q", got, want)
	}
	list, stamp := f.List(l)
	if list.Hosts[1].Compress != hostlist.CompressZstd || list.Hosts[0].Compress != hostlist.CompressAuto {
		t.Errorf("options are not those of the entry: %+v", list.Hosts)
	}
	s.set(func() { s.a["farm.example.org."] = []string{"192.0.2.11", "192.0.2.10"} })
	wantSoon(t, f, l, "first:7632/2", "192.0.2.10:7700/8", "192.0.2.11:7700/8", "last:7632/0")
	if _, after := f.List(l); after == stamp {
		t.Error("the stamp is the same for another list")
	}
	s.set(func() { s.how = "none" })
	wantSoon(t, f, l, "first:7632/2", "last:7632/0")
}

func TestServiceRecords(t *testing.T) {
	s := newNameServer(t)
	record := func(priority uint16, target string, port uint16) dnsmessage.SRVResource {
		return dnsmessage.SRVResource{Priority: priority, Weight: 1, Port: port, Target: dnsmessage.MustNewName(target)}
	}
	s.set(func() {
		s.srv["_rdistcc._tcp.example.org."] = []dnsmessage.SRVResource{record(20, "c.example.org.", 7002), record(10, "b.example.org.", 7001), record(10, "a.example.org.", 7000)}
		s.a["a.example.org."] = []string{"192.0.2.1"}
		s.a["b.example.org."] = []string{"192.0.2.3", "192.0.2.2"}
	})
	f := s.finder(Options{})
	l := mustParse(t, "srv+_rdistcc._tcp.example.org/4")
	wantSoon(t, f, l, "192.0.2.1:7000/4", "192.0.2.2:7001/4", "c.example.org:7002/4")
	s.set(func() { s.a["b.example.org."] = []string{"192.0.2.1", "192.0.2.2"}; delete(s.a, "a.example.org.") })
	n := 0
	s.set(func() { n = s.asked })
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		more := s.asked - n
		s.mu.Unlock()
		if more > 12 {
			break
		}
	}
	// A name that is not found now has the address that it had, one with several keeps its own.
	wantSoon(t, f, l, "192.0.2.1:7000/4", "192.0.2.2:7001/4", "c.example.org:7002/4")
	s.set(func() { s.srv["_rdistcc._tcp.example.org."] = []dnsmessage.SRVResource{record(1, ".", 0)} })
	wantSoon(t, f, l)
}

func TestTruncatedAnswersAreAskedForByTCP(t *testing.T) {
	s := newNameServer(t)
	s.set(func() { s.how = "truncate" })
	var want []string
	for i := range 100 {
		a := fmt.Sprintf("192.0.2.%d", i+1)
		s.set(func() { s.a["farm.example.org."] = append(s.a["farm.example.org."], a) })
		want = append(want, a+":7632/0")
	}
	f := s.finder(Options{})
	wantSoon(t, f, mustParse(t, "dns+farm.example.org"), want...)
	s.set(func() {
		if s.by["tcp"] == 0 {
			t.Error("nothing was asked by TCP")
		}
	})
}

// The last good answer stands whatever the name server does.
func TestNameServerInTrouble(t *testing.T) {
	for _, how := range []string{"hang", "garbage", "refuse"} {
		t.Run(how, func(t *testing.T) {
			s := newNameServer(t)
			s.set(func() { s.a["farm.example.org."] = []string{"192.0.2.9"} })
			f := s.finder(Options{Timeout: 50 * time.Millisecond})
			l := mustParse(t, "dns+farm.example.org")
			wantSoon(t, f, l, "192.0.2.9:7632/0")
			s.set(func() { s.how = how })
			for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				list, _ := f.List(l)
				if p := list.Sources[0].Problem; p != "" {
					if len(list.Hosts) != 1 || strings.Contains(p, s.addr) {
						t.Errorf("hosts %v, problem %q", list.Hosts, p)
					}
					break
				}
				if time.Now().After(end) {
					t.Fatal("nobody notices")
				}
			}
			began := time.Now()
			if got := found(f, l); !slices.Equal(got, []string{"192.0.2.9:7632/0"}) {
				t.Errorf("hosts are %q, want the last good answer", got)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("a list took %v", took)
			}
			s.set(func() { s.how = ""; s.a["farm.example.org."] = []string{"192.0.2.10"} })
			wantSoon(t, f, l, "192.0.2.10:7632/0")
		})
	}
}

// TestHangingNameServerIsWaitedForOnce: only the first caller waits for a source that never answers.
func TestHangingNameServerIsWaitedForOnce(t *testing.T) {
	s := newNameServer(t)
	s.set(func() { s.how = "hang" })
	f := s.finder(Options{FirstWait: 300 * time.Millisecond, Timeout: time.Minute})
	l := mustParse(t, "dns+farm.example.org build7")
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got := found(f, l); !slices.Equal(got, []string{"build7:7632/0"}) {
				t.Errorf("hosts are %q, want build7", got)
			}
		})
	}
	all.Wait()
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Errorf("the first list came after %v, want the time for an answer to be given", d)
	}
	done := make(chan struct{})
	go func() {
		for range 100 {
			f.List(l)
		}
		close(done)
	}()
	select {
	case <-done: // 100 waits would be 30 s
	case <-time.After(20 * time.Second):
		t.Error("every list waits for a source that does not answer")
	}
}

func TestWatchedFile(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	path := filepath.Join(t.TempDir(), "farm")
	write := func(text string) {
		t.Helper()
		tmp := path + ".new"
		if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	f := New(Options{})
	t.Cleanup(f.Close)
	l := mustParse(t, "file+"+path+",plain build7")
	write("a:7000/4\nb,zstd # the new one\nc,down\n")
	wantSoon(t, f, l, "a:7000/4", "b:7632/0", "build7:7632/0")
	list, _ := f.List(l)
	if list.Hosts[0].Compress != hostlist.CompressPlain || list.Hosts[1].Compress != hostlist.CompressZstd {
		t.Errorf("an entry's own options do not come before the source's: %+v", list.Hosts)
	}
	write("d\n")
	wantSoon(t, f, l, "d:7632/0", "build7:7632/0")
	write("d:x\n") // what stood there stands
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if list, _ = f.List(l); list.Sources[0].Problem != "" {
			break
		}
	}
	if p := list.Sources[0].Problem; len(list.Hosts) != 2 || !strings.Contains(p, `"d:x"`) {
		t.Errorf("hosts %v, problem %q; want the old ones and what is wrong", list.Hosts, p)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantSoon(t, f, l, "build7:7632/0")
}

func TestSourceThatNobodyWantsIsForgotten(t *testing.T) {
	s := newNameServer(t)
	s.set(func() { s.a["farm.example.org."] = []string{"192.0.2.9"} })
	f := s.finder(Options{Forget: 50 * time.Millisecond})
	wantSoon(t, f, mustParse(t, "dns+farm.example.org"), "192.0.2.9:7632/0")
	for end := time.Now().Add(2 * time.Minute); watching(f) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still looked at")
		}
	}
	wantSoon(t, f, mustParse(t, "dns+farm.example.org"), "192.0.2.9:7632/0")
}

func TestManySources(t *testing.T) {
	f := New(Options{FirstWait: time.Millisecond})
	t.Cleanup(f.Close)
	for i := range 2 * maxWatches {
		f.List(mustParse(t, fmt.Sprintf("file+/nonexistent/%d", i)))
	}
	if n := watching(f); n > maxWatches {
		t.Errorf("%d sources are looked at, want at most %d", n, maxWatches)
	}
}

// watching returns how many sources are being queried.
func watching(f *Finder) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watches)
}
