package connmgr

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestShortSourceOvertakesALongOne: on a slow line a short job that comes in the
// midst of a long one's source waits for a Write or two, not for all of it.
func TestShortSourceOvertakesALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := startFake(t, s.far, "10.0.0.1:7632", func(d *fakeDaemon) { d.slotSize, d.jobs = 4<<20, 4 })
		s.slow[d.addr] = 1 << 20
		if _, no := s.run(context.Background(), leaseOf(d.addr), strings.Repeat("w", 1<<20)); no != nil {
			t.Fatalf("answer %+v", no)
		}
		var all sync.WaitGroup
		began := time.Now()
		var long, short time.Duration
		all.Go(func() {
			if _, no := s.run(context.Background(), leaseOf(d.addr), strings.Repeat("x", 3<<20)); no != nil {
				t.Errorf("answer %+v", no)
			}
			long = time.Since(began)
		})
		time.Sleep(time.Second)
		asked := time.Now()
		if _, no := s.run(context.Background(), leaseOf(d.addr), strings.Repeat("y", 50<<10)); no != nil {
			t.Errorf("answer %+v", no)
		}
		short = time.Since(asked)
		all.Wait()
		// 50 KiB take 50 ms, and each Write before them 64.
		if short > 250*time.Millisecond {
			t.Errorf("the short one took %v", short)
		}
		if long < 3*time.Second || long > 3300*time.Millisecond {
			t.Errorf("the long one took %v, want its 3 s and the short one's time", long)
		}
	})
}

// TestTurns: new ones come first, but half of the turns are for those that
// have begun.
func TestTurns(t *testing.T) {
	var q turns
	long, other := &flight{id: 1, off: 1, length: 9}, &flight{id: 2, off: 1, length: 9}
	q.again(long)
	q.again(other)
	for id := range uint64(4) {
		q.again(&flight{id: 10 + id, length: 1})
	}
	var got []uint64
	for f := q.next(); f != nil; f = q.next() {
		got = append(got, f.id)
		if f.off++; f.off < 4 && f.length > 1 {
			q.again(f)
		}
	}
	want := []uint64{10, 1, 11, 2, 12, 1, 13, 2, 1, 2}
	if len(got) != len(want) {
		t.Fatalf("turns %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("turns %v, want %v", got, want)
		}
	}
	q.again(long)
	q.again(other)
	q.drop(long)
	if f := q.next(); f != other || q.next() != nil {
		t.Errorf("next is %+v once one was dropped", f)
	}
}

// TestPath: what is made of what the transport tells.
func TestPath(t *testing.T) {
	tell := func(s ...iwarp.PathStats) (p path) {
		for i := range s {
			p.tell(s[i])
		}
		return p
	}
	const ms = time.Millisecond
	slow := tell(iwarp.PathStats{RTT: 10 * ms, Window: 1 << 20, Rate: 1e6})
	if d := slow.transfer(2e6); d != 2*time.Second {
		t.Errorf("2 MB at 1 MB/s: %v", d)
	}
	far := tell(iwarp.PathStats{RTT: 50 * ms, Window: 14 << 10, Rate: 280e3, Floor: true})
	if d := far.transfer(1 << 20); d != 300*ms { // 14, 28, 56 ... 896 KiB: the seventh window holds the rest
		t.Errorf("1 MiB through a window of 14 KiB, 50 ms: %v, want 6 round trips", d)
	}
	lan := tell(iwarp.PathStats{RTT: ms / 5, Window: 1 << 20, Rate: 1.2e9})
	gigabit := tell(iwarp.PathStats{RTT: ms / 5, Window: 1 << 20, Rate: 110e6})
	near := slow
	near.near = true
	unknown := path{}
	for _, x := range []struct {
		name string
		p    *path
		n    uint64
		want bool
	}{
		{"slow", &slow, 1 << 20, true}, {"slow", &slow, 100, false},
		{"far", &far, 1 << 20, true}, {"far", &far, 10 << 10, false},
		{"10 Gbit/s", &lan, 1 << 20, false}, {"1 Gbit/s", &gigabit, 1 << 20, true}, {"1 Gbit/s", &gigabit, 4 << 10, false},
		{"loopback", &near, 1 << 20, false}, {"not known", &unknown, 1 << 20, false},
	} {
		if got := x.p.packs(x.n, sourceLeft); got != x.want {
			t.Errorf("%s: %d bytes packed: %t, want %t", x.name, x.n, got, x.want)
		}
	}
	// A sample of a connection that had little to send lowers nothing; others do, bit by bit.
	faded := tell(iwarp.PathStats{RTT: ms, Rate: 1e8}, iwarp.PathStats{RTT: ms, Rate: 1e4, Floor: true})
	if faded.rate != 1e8 || faded.floor {
		t.Errorf("rate %g, floor %t after a sample that says nothing", faded.rate, faded.floor)
	}
	faded.tell(iwarp.PathStats{RTT: ms, Rate: 1e4})
	if faded.rate != 0.8e8 {
		t.Errorf("rate %g after a slow moment, want 0.8e8", faded.rate)
	}
}

// TestPathWithoutAWord: where the transport tells nothing, our own Writes do.
func TestPathWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := startFake(t, s.far, "10.0.0.1:7632", func(d *fakeDaemon) { d.slotSize = 4 << 20 })
		s.slow[d.addr] = 2 << 20
		if _, no := s.run(context.Background(), leaseOf(d.addr), strings.Repeat("w", 1<<20)); no != nil {
			t.Fatalf("answer %+v", no)
		}
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		if p := s.m.hosts[d.addr].link.path; p.rate < 1.8e6 || p.rate > 2.2e6 {
			t.Errorf("rate %g of a line of 2 MiB/s", p.rate)
		}
	})
}

// TestFrozenHostOnASlowLine: the machine of a daemon that has stopped goes on to
// take a long source in. That is not taken for a sign of life for long.
func TestFrozenHostOnASlowLine(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Heartbeat, o.HeartbeatDead = 50*time.Millisecond, 300*time.Millisecond })
	frozen := startFake(t, r.far, "127.0.0.1:0", func(d *fakeDaemon) { d.slotSize = 4 << 20 })
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	const rate = 400 << 10 // bytes a second
	var stop atomic.Bool
	var swallowed atomic.Int64
	go func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetReadBuffer(32 << 10) // what it takes in is what the manager sees acknowledged
			far, err := net.Dial("tcp", frozen.addr)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, far)
				c.Close()
			}()
			go func() {
				defer far.Close()
				b := make([]byte, 4<<10)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if !stop.Load() {
						_, _ = far.Write(b[:n])
						continue
					}
					swallowed.Add(int64(n))
					time.Sleep(time.Duration(n) * time.Second / rate)
				}
			}()
		}
	}()
	good := startFake(t, r.far, "127.0.0.1:0", func(d *fakeDaemon) { d.slotSize = 4 << 20 })
	addr := front.Addr().String()
	r.warm(addr + " " + good.addr)
	stop.Store(true)
	const length = 7 << 19
	if res := r.remote(addr+" "+good.addr, strings.Repeat("x", length)); res.Host != good.addr || res.Attempts != 2 {
		t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.addr)
	}
	if n := swallowed.Load(); n == 0 || n > length*3/4 {
		t.Errorf("the frozen host was given up after %d bytes of %d", n, length)
	}
	r.idle()
}
