package farm

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// device is one on real sockets.
func device(t testing.TB) iwarp.Device {
	t.Helper()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// eventually polls for what no event tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 24000 { // two minutes, and more beside other work
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// warm connects the hosts of a list.
func (r *rig) warm(hosts []scheduler.Host) {
	r.t.Helper()
	r.f.Want(hosts, nil)
	eventually(r.t, "connections", func() bool {
		for _, h := range r.f.Status(hosts) {
			if h.State != "up" || h.Credits == 0 {
				return false
			}
		}
		return true
	})
}

// counted is a connection that tells when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestDialsAreBounded: of a long list of hosts that take a connection and say nothing,
// some are dialled at a time, and each of them in the end.
func TestDialsAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Skip(err)
	}
	defer ln.Close()
	const dials, hosts = 3, 12
	go func() { // ends with ln
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close() // the other side has
			}()
		}
	}()
	var mu sync.Mutex
	open, most := 0, 0
	seen := make(map[string]bool) // addresses of the hosts
	near, err := iwarp.Open(iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		open++
		most = max(most, open)
		seen[addr] = true
		return &counted{Conn: c, closed: sync.OnceFunc(func() { mu.Lock(); open--; mu.Unlock() })}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, near, device(t), func(o *Options) { o.Dials, o.DialTimeout = dials, 100*time.Millisecond })
	var addrs []string
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for i := range hosts {
		addrs = append(addrs, fmt.Sprintf("127.0.0.%d:%s", i+1, port))
	}
	r.f.Want(list(addrs...), nil)
	eventually(t, "a dial of every host", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == hosts
	})
	// A connection that is given up may be closed a moment after the next one has begun.
	if mu.Lock(); most > 2*dials {
		t.Errorf("%d hosts were dialled at a time, want %d", most, dials)
	}
	mu.Unlock()
}

// TestKnownHostsDoNotWaitForTheDead: a host that was connected is dialled again though
// every dial that may be under way is one of hosts that do not answer.
func TestKnownHostsDoNotWaitForTheDead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := newRig(t, device(t), device(t), func(o *Options) { o.Dials, o.DialTimeout = 1, time.Hour })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	hosts := list(d.Addr)
	r.warm(hosts)
	r.f.Want(list(ln.Addr().String()), nil)
	silent, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := r.f.Link(d.Addr)
	d.Kill()
	<-l.Dead()
	r.warm(hosts)
}
