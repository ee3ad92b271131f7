package worker

import (
	"context"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// add makes a client of a tenant known to a server that has no connections.
func (s *Server) add(tenant string, cl *client) *client {
	cl.tenant = s.tenantLocked(tenant)
	cl.tenant.clients = append(cl.tenant.clients, cl)
	s.clients = append(s.clients, cl)
	return cl
}

func TestTenantOf(t *testing.T) {
	for _, c := range []struct{ peer, remote, want string }{
		{"", "127.0.0.1:4000", "local"},
		{"", "127.3.2.1:4000", "local"},
		{"", "[::1]:4000", "local"},
		{"", "[::ffff:127.0.0.1]:1", "local"},
		{"", "10.1.2.3:4000", "10.1.2.3"},
		{"", "10.1.2.3:4001", "10.1.2.3"},
		{"", "[::ffff:10.1.2.3]:1", "10.1.2.3"},
		{"", "[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"},
		{"", "[2001:db8:1:2:ffff::1]:1", "2001:db8:1:2::/64"},
		{"", "[fe80::1%eth0]:1", "fe80::/64"},
		{"tls:build1", "10.1.2.3:4000", "tls:build1"},
		{"tls:build1", "127.0.0.1:4000", "tls:build1"},
	} {
		remote, err := net.ResolveTCPAddr("tcp", c.remote)
		if err != nil {
			t.Fatal(err)
		}
		if got := tenantOf(iwarp.ConnInfo{Peer: c.peer, Remote: remote}); got != c.want {
			t.Errorf("tenant of %q at %s is %q, want %q", c.peer, c.remote, got, c.want)
		}
	}
}

// site is a server's cores in simulated time.
type site struct {
	*Server
	now  time.Time
	tick time.Time // of its next look around
	end  map[*task]time.Time
}

func newSite(o Options) *site {
	o.Log = slog.New(slog.DiscardHandler)
	s := &site{Server: &Server{o: o, runs: make(map[*task]bool)}, now: time.Unix(1e9, 0), end: make(map[*task]time.Time)}
	s.wake = sync.NewCond(&s.mu)
	s.host.Store(&hostLoad{pressure: job.Pressure{Memory: job.NoPressure}})
	return s
}

// submit queues a job that takes so long; what is its Job message.
func (s *site) submit(cl *client, takes time.Duration, what job.Job) *task {
	t := &task{c: &conn{s: s.Server, client: cl, tenant: cl.tenant}, m: &what, queued: s.now}
	t.m.TextLen = uint64(takes)
	s.enqueueLocked(t)
	return t
}

// run lets the cores work until then; feed is called before each choice, and ended after
// each job. Once in a second of that time the server looks around.
func (s *site) run(until time.Time, feed func(), ended func(t *task)) {
	if s.tick.IsZero() {
		s.tick = s.now.Add(time.Second)
	}
	for s.now.Before(until) {
		feed()
		for s.running < s.o.Jobs {
			t := s.nextTaskLocked(s.now)
			if t == nil {
				break
			}
			s.end[t] = s.now.Add(time.Duration(t.m.TextLen))
		}
		next := s.tick
		if at := s.now.Add(100 * time.Millisecond); at.Before(next) {
			next = at
		}
		for _, e := range s.end {
			if e.Before(next) {
				next = e
			}
		}
		s.now = next
		if s.now.Equal(s.tick) {
			s.tick = s.tick.Add(time.Second)
			for _, v := range s.yieldLocked(s.now) {
				s.end[v] = s.now
			}
		}
		for t, e := range s.end {
			if !e.After(s.now) {
				delete(s.end, t)
				s.ranLocked(t, s.now)
				t.c.tenant.learnLocked(s.now.Sub(t.started), t.m.Memory, 0)
				ended(t)
			}
		}
	}
}

// TestTenantsShareCores: neither a hundred boot numbers, nor weights, builds and lies
// about how long jobs take, give one tenant more of the cores than another.
func TestTenantsShareCores(t *testing.T) {
	s := newSite(Options{Jobs: 4})
	honest := s.add("10.0.0.1", &client{weight: 1})
	var hostile []*client
	for range 100 {
		hostile = append(hostile, s.add("10.0.0.2", &client{weight: maxWeight, builds: maxBuilds}))
	}
	got := map[string]time.Duration{}
	const span = 2000 * time.Second
	s.run(s.now.Add(span), func() {
		for len(honest.queue) < 4 {
			s.submit(honest, time.Second, job.Job{Expect: 1000})
		}
		for _, cl := range hostile {
			for len(cl.queue) < 4 {
				s.submit(cl, 5*time.Second, job.Job{Expect: 1})
			}
		}
	}, func(t *task) { got[t.c.tenant.name] += s.now.Sub(t.started) })
	for name, d := range got {
		if want := 2 * span; math.Abs((d - want).Seconds()) > 0.03*want.Seconds() {
			t.Errorf("%s had %v of the cores, want %v", name, d, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("%d tenants ran jobs", len(got))
	}
}

// TestAttackJobFlood (job-flood): of an honest client's jobs 99 in 100 are done within
// twice the time that its fair share of the cores takes, whatever another one floods
// the host with.
func TestAttackJobFlood(t *testing.T) {
	const takes, jobs = 3 * time.Second, 300
	floods := map[string]func(s *site, cl *client){
		"100,000 jobs at once": func(s *site, cl *client) {
			for len(cl.queue) < 100_000 {
				s.submit(cl, 100*time.Millisecond, job.Job{})
			}
		},
		"jobs as long as the honest ones": func(s *site, cl *client) {
			for len(cl.queue) < 100 {
				s.submit(cl, takes, job.Job{})
			}
		},
		"long ones that are said to be short": func(s *site, cl *client) {
			for len(cl.queue) < 100 {
				s.submit(cl, 10*time.Second, job.Job{Expect: 1})
			}
		},
		"endless ones": func(s *site, cl *client) {
			for len(cl.queue) < 100 {
				s.submit(cl, 10*time.Minute, job.Job{Expect: 100})
			}
		},
	}
	// latencies are those of an honest client that has as many jobs under way as its part
	// of the cores, with a pause between two of them.
	latencies := func(cores, width int, flood func(s *site, cl *client)) (out []time.Duration) {
		s := newSite(Options{Jobs: cores})
		honest := s.add("10.0.0.1", &client{weight: 1})
		hostile := s.add("10.0.0.2", &client{weight: 1})
		next := make([]time.Time, width) // when each place asks again
		for i := range next {
			next[i] = s.now.Add(10*time.Second + time.Duration(i)*700*time.Millisecond)
		}
		under := map[*task]int{}
		for len(out) < jobs {
			s.run(s.now.Add(time.Millisecond), func() {
				if flood != nil {
					flood(s, hostile)
				}
				for i, at := range next {
					if !at.IsZero() && !s.now.Before(at) {
						under[s.submit(honest, takes, job.Job{Expect: uint32(takes.Milliseconds())})] = i
						next[i] = time.Time{}
					}
				}
			}, func(t *task) {
				if t.c.client == honest {
					out = append(out, s.now.Sub(t.queued))
					next[under[t]] = s.now.Add(200 * time.Millisecond)
					delete(under, t)
				}
			})
		}
		slices.Sort(out)
		return out
	}
	for name, flood := range floods {
		alone := latencies(2, 2, nil) // its share of four cores
		beside := latencies(4, 2, flood)
		p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }
		t.Logf("%s: p50 %v, p99 %v, most %v; alone on its share %v, %v", name, beside[len(beside)/2], p99(beside), beside[len(beside)-1], alone[len(alone)/2], p99(alone))
		if p99(beside) > 2*p99(alone) {
			t.Errorf("%s: 99 in 100 jobs end within %v, want at most twice %v", name, p99(beside), p99(alone))
		}
	}
}

// TestMemoryLies: what a client says of its jobs' memory counts as far as its earlier
// ones have borne it out.
func TestMemoryLies(t *testing.T) {
	s := newSite(Options{Jobs: 8})
	honest, liar, mute := s.add("a", &client{weight: 1}), s.add("b", &client{weight: 1}), s.add("c", &client{weight: 1})
	for range 20 {
		honest.tenant.learnLocked(time.Second, 500<<20, 490<<20)
		liar.tenant.learnLocked(time.Second, 1<<20, 500<<20)
		mute.tenant.learnLocked(time.Second, 0, 500<<20)
	}
	mib := func(cl *client, said uint64) uint64 {
		return s.memoryLocked(&task{c: &conn{client: cl}, m: &job.Job{Memory: said << 20}}) >> 20
	}
	if n := mib(honest, 300); n != 300 {
		t.Errorf("of the honest one's 300 MiB %d are expected", n)
	}
	if n := mib(liar, 1); n < 400 {
		t.Errorf("of the liar's 1 MiB %d are expected, where they took 500", n)
	}
	if n := mib(mute, 0); n < 400 {
		t.Errorf("of nothing said %d MiB are expected, where they took 500", n)
	}
	stranger := s.add("d", &client{weight: 1})
	s.meanRSS = 200 << 20
	if n := mib(stranger, 0); n != 200 {
		t.Errorf("of a stranger's %d MiB are expected, where all others' took 200", n)
	}
}

// TestNothingStartsUnderPressure: beside a job that runs none starts while the host is
// short of memory, whatever is said of it; alone one does.
func TestNothingStartsUnderPressure(t *testing.T) {
	for name, h := range map[string]hostLoad{
		"pressure":       {memoryFree: 8 << 30, pressure: job.Pressure{Memory: tightMemory + 1}},
		"nothing free":   {memoryFree: memoryFloor / 2, pressure: job.Pressure{Memory: job.NoPressure}},
		"pressure alone": {pressure: job.Pressure{Memory: tightMemory + 1}},
	} {
		s := newSite(Options{Jobs: 4})
		s.memory = s.now // it has been looked at
		s.host.Store(&h)
		cl := s.add("a", &client{weight: 1})
		first, second := s.submit(cl, time.Second, job.Job{}), s.submit(cl, time.Second, job.Job{})
		if got := s.nextTaskLocked(s.now); got != first || got.no != nil {
			t.Errorf("%s: the first job does not start: %+v", name, got)
		}
		if got := s.nextTaskLocked(s.now); got != nil {
			t.Errorf("%s: a second job starts", name)
		}
		s.memory = s.now.Add(memoryWait)
		if got := s.nextTaskLocked(s.now.Add(memoryWait)); got != second || got.no == nil || got.no.Cause != job.CauseMemory {
			t.Errorf("%s: the second job is not sent elsewhere in time: %+v", name, got)
		}
	}
}

// TestClientLimits: limits.client-running and limits.client-queued are a tenant's, however
// many managers it comes as.
func TestClientLimits(t *testing.T) {
	s := newSite(Options{Jobs: 8, ClientRunning: 3, ClientQueued: 5})
	a, b, other := s.add("a", &client{weight: 1}), s.add("a", &client{weight: 1}), s.add("b", &client{weight: 1})
	conns := map[*client]*conn{}
	for _, cl := range []*client{a, b, other} {
		c := &conn{s: s.Server, client: cl, tenant: cl.tenant, tasks: make(map[uint64]*task)}
		cl.conns, conns[cl] = []*conn{c}, c
	}
	refused := 0
	for i := range 20 {
		cl := []*client{a, b}[i%2]
		c := conns[cl]
		c.tasks[uint64(i)] = &task{}
		if s.admissibleLocked(cl.tenant) != nil {
			refused++
			delete(c.tasks, uint64(i))
			continue
		}
		s.submit(cl, time.Second, job.Job{})
		for s.nextTaskLocked(s.now) != nil {
		}
	}
	if a.tenant.runs != 3 || a.tenant.queued != 5 || refused != 12 {
		t.Errorf("%d run, %d wait, %d were refused; want 3, 5, 12", a.tenant.runs, a.tenant.queued, refused)
	}
	s.submit(other, time.Second, job.Job{})
	if x := s.nextTaskLocked(s.now); x == nil || x.c.client != other {
		t.Error("another client's job does not run")
	}
}

// named gives connections the names that TLS would, by the address that they come from.
type named struct{ net.Listener }

type namedConn struct{ net.Conn }

func (l named) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

func (c namedConn) PeerName() string { return "tls:" + hostOf(c.RemoteAddr()) }

// startNamed is startServer for peers of several tenants; it returns the address for them.
func startNamed(t *testing.T, change func(*Options)) (*testServer, string) {
	t.Helper()
	dev, err := iwarp.Open(iwarp.Config{Listen: func(ctx context.Context, addr string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return named{l}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	ts := startServer(t, func(o *Options) {
		o.Device = dev
		if change != nil {
			change(o)
		}
	})
	l, err := dev.Listen(context.Background(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ts.Serve(l)
	return ts, l.Addr().String()
}

// from dials from an address of this machine.
func from(ip string) iwarp.Config {
	return iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext(ctx, "tcp", addr)
	}}
}

// dialFrom connects from there, as a manager of that boot number.
func dialFrom(t testing.TB, ip, addr string, boot byte, hello *job.Hello) *testClient {
	t.Helper()
	g := job.Greeting{Version: job.Version, Boot: [16]byte{boot}}
	return dialOn(t, from(ip), addr, hello, &iwarp.ConnParam{ORD: 8, IRD: 8, PrivateData: g.Append(nil)})
}

// TestTenantsShareCredits: a tenant with many managers of great weight and demand gets as
// many spare credits as one with a single one, and divides them among them.
func TestTenantsShareCredits(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Clients = 4, 16 }) // 8 spare ones
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	honest.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	honest.wait("all credits", func() bool { return len(honest.credits) == 9 })
	var hostile []*testClient
	for i := range byte(4) {
		c := dialFrom(t, "127.0.0.3", addr, 10+i, &job.Hello{Weight: maxWeight})
		c.send(&job.Demand{Seq: 1, Jobs: 60000, Builds: 60000})
		hostile = append(hostile, c)
	}
	until(t, "equal shares", func() bool {
		n := 0
		for _, c := range hostile {
			n += c.count()
		}
		return honest.count() == 5 && n == 8
	})
	until(t, "one each", func() bool {
		for _, c := range hostile {
			if c.count() != 2 {
				return false
			}
		}
		return true
	})
	if n := ts.Status().Tenants; n != 2 {
		t.Errorf("%d tenants, want 2", n)
	}
}

// TestConnectionsOfATenant: one peer gets half of the connections, whatever boot numbers
// it comes with; others still come in.
func TestConnectionsOfATenant(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Clients = 6 })
	var hostile []*testClient
	for i := range byte(3) {
		hostile = append(hostile, dialFrom(t, "127.0.0.3", addr, 10+i, nil))
	}
	until(t, "three connections", func() bool { return len(ts.Status().Clients) == 3 })
	g := job.Greeting{Version: job.Version, Boot: [16]byte{99}}
	if j := rejectionOn(t, from("127.0.0.3"), addr, g.Append(nil)); j.Cause != job.CauseFull {
		t.Errorf("a fourth connection: %+v", j)
	}
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	if r := honest.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
	// A place that is given up is free again.
	hostile[0].qp.Abort()
	until(t, "two connections", func() bool { return len(ts.Status().Clients) == 3 })
	dialFrom(t, "127.0.0.3", addr, 50, &job.Hello{})
}

// TestRefusedJobsWearOut: a loop of jobs that are refused is slowed down, and only that
// tenant's; later it goes on.
func TestRefusedJobsWearOut(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs = 2 })
	id := ts.tool("gcc")
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	hostile := dialFrom(t, "127.0.0.3", addr, 2, &job.Hello{})
	ts.mu.Lock()
	tn := ts.tenantLocked("tls:127.0.0.3")
	tn.patience, tn.lapse = 5, time.Now().Add(time.Hour) // and nothing is forgiven for so long
	ts.mu.Unlock()
	bad := request{body: compileBody("cpp-output", "a.c", "-fplugin=x"), text: hello}
	n := 0
	for range 20 {
		hostile.mu.Lock()
		left := len(hostile.credits)
		hostile.mu.Unlock()
		if left == 0 {
			break
		}
		if r := hostile.do(id, bad); r.Status != job.StatusRefused {
			t.Fatalf("%+v", r.Result)
		}
		n++
	}
	if n >= 20 {
		t.Error("20 refused jobs, and there are credits still")
	}
	if r := honest.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
	ts.mu.Lock()
	tn.patience = lapses
	ts.mu.Unlock()
	if r := hostile.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// TestLargeMemoryOfATenant: who keeps large memory leaves others their part of it.
func TestLargeMemoryOfATenant(t *testing.T) {
	m, err := newLargeMemory(64<<20, 16<<20, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	s := newSite(Options{Jobs: 1, Large: 64 << 20, Source: 16 << 20, Result: 16 << 20})
	hostile, honest := s.tenantLocked("a"), s.tenantLocked("b")
	var held []*large
	for {
		l, err := m.tryGet(hostile, 16<<20, job.CauseFull)
		if err != nil {
			break
		}
		held = append(held, l)
	}
	if len(held) != 2 {
		t.Errorf("one tenant got %d times 16 MiB of 64", len(held))
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { _, err := m.get(ctx, hostile, 16<<20); waits <- err }()
	l, err := m.tryGet(honest, 16<<20, job.CauseFull)
	if err != nil {
		t.Fatalf("another one gets nothing: %v", err)
	}
	l.free()
	cancel()
	if <-waits == nil {
		t.Error("the first one got more in the end")
	}
	for _, l := range held {
		l.free()
	}
	if n := m.used.Load(); n != 0 {
		t.Errorf("%d bytes are counted still", n)
	}
	all, err := m.tryGet(hostile, 16<<20, job.CauseFull)
	if err != nil {
		t.Errorf("nothing is left after all was given back: %v", err)
	}
	all.free()
}
