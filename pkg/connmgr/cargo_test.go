package connmgr

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestResultThatChanged: a result that does not match its host's digest never reaches the wrapper; another
// host compiles the job.
func TestResultThatChanged(t *testing.T) {
	for _, window := range []bool{false, true} {
		t.Run(fmt.Sprintf("window=%t", window), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Large, o.Result = 16<<20, 8<<20 })
			bad := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				d.Fetches = 1 << 20
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					a := daemontest.Compiled(j)
					a.Offered = window
					a.Change = func(r *job.Result) { r.Digest[3] ^= 0x40 }
					c.Finish(j, a)
				}
			})
			good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			r.warm(bad.Addr + " " + good.Addr)
			res := r.remote(bad.Addr+" "+good.Addr, "int x;")
			if res.Host != good.Addr || res.Attempts != 2 {
				t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
			}
			if n := counter(t, r.m, "rdistcc_cm_digest_errors_total", "result"); n != 1 {
				t.Errorf("%v digest errors counted, want 1", n)
			}
			r.idle()
		})
	}
}

// TestSourceThatChanged: a host that received another source than was sent says so, and another host gets the
// job.
func TestSourceThatChanged(t *testing.T) {
	r := newRig(t, nil)
	bad := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseDigest}})
		}
	})
	good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.warm(bad.Addr + " " + good.Addr)
	if res := r.remote(bad.Addr+" "+good.Addr, "int x;"); res.Host != good.Addr || res.Attempts != 2 {
		t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
	}
	if n := counter(t, r.m, "rdistcc_cm_digest_errors_total", "source"); n != 1 {
		t.Errorf("%v digest errors counted, want 1", n)
	}
	r.idle()
}

// TestHostOptionsDecide: zstd and plain in a host list decide about packing, whatever the network is like.
// The object is the same.
func TestHostOptionsDecide(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Large, o.Source, o.Result = 64<<20, 16<<20, 16<<20 })
	moved := make(chan *daemontest.Job, 1)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Zstd, d.SlotSize, d.Fetches = true, 1<<20, 16<<20
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			moved <- j
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	for _, x := range []struct {
		option string
		length int
		source bool // packed
		window bool
	}{
		{"", 500 << 10, false, false},
		{",plain", 500 << 10, false, false},
		{",zstd", 500 << 10, true, false},
		{",zstd", 100, false, false},
		{",zstd", 6 << 20, true, false}, // longer than slot and sink, unpacked
		{"", 6 << 20, false, true},
	} {
		r.remote(d.Addr+x.option, strings.Repeat("int x;", x.length/6))
		j := <-moved
		if (j.Packed != 0) != x.source || j.Zstd != (x.option == ",zstd") || (j.Source.STag != 0) != x.window {
			t.Errorf("%d bytes with option %q: packed %d, zstd %t, window %d", x.length, x.option, j.Packed, j.Zstd, j.Source.Len)
		}
	}
	if n := counter(t, r.m, "rdistcc_cm_packed_bytes_total", "plain"); n < 6<<20 {
		t.Errorf("%v bytes of results were unpacked", n)
	}
	r.idle()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if all := r.m.memory.Scratch.Take(ctx, 64<<20); all == nil {
		t.Error("scratch memory is lent to nobody")
	} else {
		all.Give()
	}
}

// TestNoiseIsNotPacked: a source that packing does not make smaller travels unpacked.
func TestNoiseIsNotPacked(t *testing.T) {
	r := newRig(t, nil)
	packed := make(chan uint64, 1)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Zstd = true
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			packed <- j.Packed
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	b := make([]byte, 200<<10)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	r.remote(d.Addr+",zstd", string(b))
	if n := <-packed; n != 0 {
		t.Errorf("noise was packed into %d bytes", n)
	}
}

// TestSlowNetworkIsPackedFor: without an option, the measured rate decides about packing.
func TestSlowNetworkIsPackedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		var jobs []*daemontest.Job
		far := func(d *daemontest.Daemon) {
			d.Zstd = true
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				jobs = append(jobs, j)
				c.Finish(j, daemontest.Compiled(j))
			}
		}
		slow, fast := daemontest.Start(t, s.far, "10.0.0.1:7632", far), daemontest.Start(t, s.far, "10.0.0.2:7632", far)
		s.net.Slow[slow.Addr] = 1 << 20
		s.net.Slow[fast.Addr] = 2 << 30
		text := strings.Repeat("int x;", 100<<10)
		for _, addr := range []string{slow.Addr, slow.Addr, fast.Addr, fast.Addr} {
			if _, no := s.run(context.Background(), leaseOf(addr), text); no != nil {
				t.Fatalf("answer %+v", no)
			}
		}
		for i, want := range []bool{false, true, false, false} {
			if got := jobs[i].Packed != 0; got != want || jobs[i].Zstd != want {
				t.Errorf("job %d: packed %t, result %t, want %t", i, got, jobs[i].Zstd, want)
			}
		}
	})
}

// TestPackedResultsThatLie: packed results that are not valid frames, or that unpack to something else.
func TestPackedResultsThatLie(t *testing.T) {
	text := strings.Repeat("int x;", 20<<10)
	for name, change := range map[string]func(r *job.Result){
		"outside the sink":       func(r *job.Result) { r.Packed = 1 << 40 },
		"cut":                    func(r *job.Result) { r.Packed-- },
		"shorter than its parts": func(r *job.Result) { r.Files[0].Len += 1000 },
		"outside every sink":     func(r *job.Result) { r.Files[0].Len = 1 << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			bad := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				d.Zstd = true
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					a := daemontest.Compiled(j)
					a.Change = change
					c.Finish(j, a)
				}
			})
			good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			list := bad.Addr + ",zstd " + good.Addr
			r.warm(list)
			if res := r.remote(list, text); res.Host != good.Addr || res.Attempts != 2 {
				t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
			}
			r.idle()
		})
	}
}
