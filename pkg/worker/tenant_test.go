package worker

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

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

// startNamed is startServer for peers of several tenants. It also returns the address for them.
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

// TestTenantsShareCredits: a tenant with many managers of great weight and demand gets as many spare credits
// as one with a single manager, and they are divided among its managers.
func TestTenantsShareCredits(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Clients = 4, 16 }) // 8 spare ones
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	honest.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	honest.wait("all credits", func() bool { return len(honest.credits) == 9 })
	var hostile []*testClient
	for i := range byte(4) {
		c := dialFrom(t, "127.0.0.3", addr, 10+i, &job.Hello{Weight: lend.MaxWeight})
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

// TestConnectionsOfATenant: one peer gets half of the connections, whatever boot numbers it uses; others
// still get in.
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

// TestRefusedJobsWearOut: a loop of refused jobs is slowed down, for that tenant only, and goes on later.
func TestRefusedJobsWearOut(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs = 2 })
	id := ts.tool("gcc")
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	hostile := dialFrom(t, "127.0.0.3", addr, 2, &job.Hello{})
	lapsed := func(at time.Time) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for c := range ts.conns {
			if tn := c.lent.Tenant(); tn.Name() == "tls:127.0.0.3" {
				tn.Lapsed(at)
			}
		}
	}
	lapsed(time.Now().Add(time.Hour)) // nothing is forgiven for so long
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
	lapsed(time.Now().Add(2 * time.Hour)) // in which all is forgiven
	if r := hostile.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// TestLargeMemoryOfATenant: a tenant that holds large memory leaves others their part of it.
func TestLargeMemoryOfATenant(t *testing.T) {
	m, err := large.New(64<<20, 16<<20, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := &Options{Large: 64 << 20, Source: 16 << 20, Result: 16 << 20}
	hostile, honest := m.Join("a", o.largePart()), m.Join("b", o.largePart())
	var held []*large.Part
	for {
		l, err := m.TryGet(hostile, 16<<20, job.CauseFull)
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
	go func() { _, err := m.Get(ctx, hostile, 16<<20); waits <- err }()
	l, err := m.TryGet(honest, 16<<20, job.CauseFull)
	if err != nil {
		t.Fatalf("another one gets nothing: %v", err)
	}
	l.Free()
	cancel()
	if <-waits == nil {
		t.Error("the first one got more in the end")
	}
	for _, l := range held {
		l.Free()
	}
	if n := m.Used(); n != 0 {
		t.Errorf("%d bytes are counted still", n)
	}
	all, err := m.TryGet(hostile, 16<<20, job.CauseFull)
	if err != nil {
		t.Errorf("nothing is left after all was given back: %v", err)
	}
	all.Free()
}
