package connmgr

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// copying is a manager with hosts that keep what they are asked to.
type copying struct {
	*rig
	hosts []*host
	list  []scheduler.Host
	sent  atomic.Int32 // as Copies counts
	no    atomic.Int32
}

// copies starts a manager and n connected hosts. onKeep, if not nil, is asked before a host keeps something.
func copies(t *testing.T, n int, onKeep func(host int, m *job.Keep, b []byte) (keep, ack bool)) *copying {
	t.Helper()
	var c copying
	next := 0
	c.rig, c.hosts = shelves(t, n, nil, func(d *daemontest.Daemon) {
		i := next
		next++
		d.OnKeep = func(m *job.Keep, b []byte) bool {
			keep, ack := true, true
			if onKeep != nil {
				keep, ack = onKeep(i, m, b)
			}
			if keep {
				c.hosts[i].Put(m.Key, b)
			}
			return ack
		}
	})
	c.connect(c.hosts...)
	for _, h := range c.hosts {
		c.list = append(c.list, scheduler.Host{Addr: h.Addr})
	}
	return &c
}

// of returns Copies for so many hosts.
func (c *copying) of(hosts int) *shelved.Copies {
	return shelved.NewCopies(c.m.farm, hosts, func(sent bool) {
		if sent {
			c.sent.Add(1)
		} else {
			c.no.Add(1)
		}
	})
}

// entryOf returns a result with its key.
func entryOf(t *testing.T, n byte, length int) (resultcache.Key, []byte) {
	t.Helper()
	key := resultcache.Key{n, 2}
	r := resultcache.Raw{Key: key, Files: []resultcache.RawFile{{Len: uint32(length)}}, Outputs: bytes.Repeat([]byte{n}, length)}
	front, err := r.AppendFront(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key, append(front, r.Outputs...)
}

// TestCopies: a result is kept by as many hosts as it should be, and by the same ones whoever asks. The host that has
// compiled it is not asked, and neither is one that has it. When it is gone, the others have it.
func TestCopies(t *testing.T) {
	c := copies(t, 4, nil)
	who := make(map[string]bool)
	for n := range byte(8) {
		key, entry := entryOf(t, n, 3000)
		for range 2 { // the second time, nobody is asked
			c.of(3).Make(c.list, key, entry, c.hosts[0].Addr)
			eventually(t, "two copies", func() bool { return c.sent.Load() == 2*int32(n+1) })
			eventually(t, "the manager to know", func() bool {
				c.look(resultcache.Key{200}, c.hosts...)
				have := 0
				for _, h := range c.hosts {
					if !c.link(h.Addr).TakesCopy(key) {
						have++
					}
				}
				return have == 2
			})
		}
		name := ""
		for i, h := range c.hosts {
			if e := c.look(key, h); e != nil {
				name += fmt.Sprint(i)
			}
		}
		if len(name) != 2 || name[0] == '0' {
			t.Errorf("kept by %s", name)
		}
		who[name] = true
	}
	if len(who) < 2 {
		t.Errorf("all are kept by %v", who)
	}
	if c.sent.Load() != 16 || c.no.Load() != 0 {
		t.Errorf("%d sent, %d not", c.sent.Load(), c.no.Load())
	}
	// One host in all, and hosts that do not exist: nobody is asked.
	key, entry := entryOf(t, 100, 10)
	c.of(1).Make(c.list, key, entry, c.hosts[0].Addr)
	c.of(3).Make([]scheduler.Host{{Addr: "nowhere:1"}}, key, entry, c.hosts[0].Addr)
	c.of(2).Make(c.list[:1], key, entry, c.hosts[0].Addr)
	c.idle()
	if c.sent.Load() != 16 || c.no.Load() != 0 {
		t.Errorf("%d sent, %d not", c.sent.Load(), c.no.Load())
	}
}

// TestNoCopiesForGroups: a host is not asked to keep a result on the shelf of a group, which takes none.
func TestNoCopiesForGroups(t *testing.T) {
	for group, want := range map[string]bool{"": true, "team": false} {
		r, hosts := shelves(t, 1, nil, func(d *daemontest.Daemon) { d.Group = group })
		r.connect(hosts...)
		if got := r.link(hosts[0].Addr).TakesCopies(); got != want {
			t.Errorf("group %q: %v", group, got)
		}
	}
}

// TestCopiesAreBounded: a host that does not answer holds a bounded number of results, and delays no job. When its
// connection ends, all memory is free, and a host that acknowledges what it was not asked loses its connection.
func TestCopiesAreBounded(t *testing.T) {
	c := copies(t, 2, func(int, *job.Keep, []byte) (keep, ack bool) { return true, false })
	x := c.of(2)
	for n := range byte(60) {
		key, entry := entryOf(t, n, 1<<20)
		x.Make(c.list, key, entry, c.hosts[0].Addr)
	}
	if n := c.no.Load(); n < 60-32-1 || n > 60-1 {
		t.Errorf("%d of 60 are not copied", n)
	}
	if c.sent.Load() != 0 {
		t.Errorf("%d copied", c.sent.Load())
	}
	c.remote(c.hosts[1].Addr, "int y;")
	key, long := entryOf(t, 99, job.MaxKeep)
	x.Make(c.list, key, long, c.hosts[0].Addr)
	c.hosts[1].Stop()
	eventually(t, "all to be given up", func() bool { return c.no.Load() == 61 })

	c = copies(t, 1, nil)
	l := c.link(c.hosts[0].Addr)
	c.hosts[0].Mu.Lock()
	conn := c.hosts[0].Conns[0]
	c.hosts[0].Mu.Unlock()
	conn.Send(&job.Ack{Of: job.KindKeep, Seq: 1}, 0)
	select {
	case <-l.Dead():
	case <-time.After(time.Minute):
		t.Error("an Ack of nothing is taken")
	}
}

// TestCopyEndsWithItsAck: after it has acknowledged a Keep, a host cannot read the result any more.
func TestCopyEndsWithItsAck(t *testing.T) {
	var window job.Window
	c := copies(t, 2, func(_ int, m *job.Keep, _ []byte) (keep, ack bool) { window = m.Window; return true, true })
	key, entry := entryOf(t, 1, 1000)
	c.of(2).Make(c.list, key, entry, c.hosts[0].Addr)
	eventually(t, "the copy", func() bool { return c.sent.Load() == 1 })
	h := c.hosts[1]
	h.Mu.Lock()
	conn := h.Conns[0]
	h.Mu.Unlock()
	l := c.link(h.Addr)
	conn.Reach(readOf(window), make([]byte, 10))
	<-l.Dead()
}

// readOf is a Read of a window.
func readOf(w job.Window) iwarp.SendWR {
	return iwarp.SendWR{Op: iwarp.OpRead, STag: iwarp.STag(w.STag), TO: w.TO}
}
