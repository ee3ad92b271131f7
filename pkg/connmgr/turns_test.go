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

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestShortSourceOvertakesALongOne: on a slow line, a short job that comes while a long source is being
// written waits for a Write or two, not for all of it.
func TestShortSourceOvertakesALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.SlotSize, d.Jobs = 4<<20, 4 })
		s.net.Slow[d.Addr] = 1 << 20
		if _, no := s.run(context.Background(), leaseOf(d.Addr), strings.Repeat("w", 1<<20)); no != nil {
			t.Fatalf("answer %+v", no)
		}
		var all sync.WaitGroup
		began := time.Now()
		var long, short time.Duration
		all.Go(func() {
			if _, no := s.run(context.Background(), leaseOf(d.Addr), strings.Repeat("x", 3<<20)); no != nil {
				t.Errorf("answer %+v", no)
			}
			long = time.Since(began)
		})
		time.Sleep(time.Second)
		asked := time.Now()
		if _, no := s.run(context.Background(), leaseOf(d.Addr), strings.Repeat("y", 50<<10)); no != nil {
			t.Errorf("answer %+v", no)
		}
		short = time.Since(asked)
		all.Wait()
		// 50 KiB take 50 ms, and each Write before them takes 64 ms.
		if short > 250*time.Millisecond {
			t.Errorf("the short one took %v", short)
		}
		if long < 3*time.Second || long > 3300*time.Millisecond {
			t.Errorf("the long one took %v, want its 3 s and the short one's time", long)
		}
	})
}

// TestPathWithoutAWord: if the transport does not measure the rate, it is measured with the Writes.
func TestPathWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
		s.net.Slow[d.Addr] = 2 << 20
		if _, no := s.run(context.Background(), leaseOf(d.Addr), strings.Repeat("w", 1<<20)); no != nil {
			t.Fatalf("answer %+v", no)
		}
		if _, rate := s.m.farm.Link(d.Addr).Path(); rate < 1.8e6 || rate > 2.2e6 {
			t.Errorf("rate %g of a line of 2 MiB/s", rate)
		}
	})
}

// TestFrozenHostOnASlowLine: the machine of a frozen daemon still receives a long source. That does not count
// as a sign of life for long.
func TestFrozenHostOnASlowLine(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	r := newRig(t, func(o *Options) { o.Heartbeat, o.HeartbeatDead = 200*time.Millisecond, 2*time.Second })
	frozen := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	const rate = 400 << 10 // bytes per second
	var stop atomic.Bool
	var swallowed atomic.Int64
	go func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetReadBuffer(32 << 10) // bounds what is acknowledged unread
			far, err := net.Dial("tcp", frozen.Addr)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, far)
				c.Close()
			}()
			go func() {
				defer far.Close()
				b, came := make([]byte, 4<<10), 0
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if stop.Load() {
						came += n
					}
					// It freezes within the source. If it froze earlier, a busy machine might give it up
					// before there is a job.
					if came <= 64<<10 {
						_, _ = far.Write(b[:n])
						continue
					}
					swallowed.Add(int64(n))
					time.Sleep(time.Duration(n) * time.Second / rate)
				}
			}()
		}
	}()
	good := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
	addr := front.Addr().String()
	r.warm(addr + " " + good.Addr)
	stop.Store(true)
	const length = 7 << 19
	if res := r.remote(addr+" "+good.Addr, strings.Repeat("x", length)); res.Host != good.Addr || res.Attempts != 2 {
		t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
	}
	if n := swallowed.Load(); n == 0 || n > length*3/4 {
		t.Errorf("the frozen host was given up after %d bytes of %d", n, length)
	}
	r.idle()
}
