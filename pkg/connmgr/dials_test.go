package connmgr

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/daemontest"
)

// TestDialsAreBounded: of a long list of hosts that take a connection and say nothing,
// some are dialled at a time, and each of them in the end.
func TestDialsAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Skip(err)
	}
	defer ln.Close()
	const dials, hosts = 3, 12
	var mu sync.Mutex
	open, most := 0, 0
	seen := make(map[string]bool) // addresses of the hosts
	go func() {                   // ends with ln
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open++
			most = max(most, open)
			seen[c.LocalAddr().String()] = true
			mu.Unlock()
			go func() { // ends with the connection
				var b [512]byte
				for err := error(nil); err == nil; {
					_, err = c.Read(b[:])
				}
				mu.Lock()
				open--
				mu.Unlock()
				_ = c.Close() // the other side has
			}()
		}
	}()
	r := newRig(t, func(o *Options) { o.Dials, o.DialTimeout = dials, 100*time.Millisecond })
	var list []string
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for i := range hosts {
		list = append(list, fmt.Sprintf("127.0.0.%d:%s", i+1, port))
	}
	w := r.dial()
	w.send(leaseOf(strings.Join(list, " ")))
	eventually(t, "a dial of every host", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == hosts
	})
	w.close()
	// A connection that one side has given up can be seen by the other beside the next one.
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
	r := newRig(t, func(o *Options) { o.Dials, o.DialTimeout = 1, time.Hour })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.warm(d.Addr)
	r.m.farm.Want(r.m.lists.Of(ln.Addr().String()).Sched, nil)
	silent, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := r.link(d.Addr)
	d.Kill()
	<-l.Dead()
	r.warm(d.Addr)
}
