// Package memory has the experiments about registered memory.
package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Ways to make data sendable.
const (
	useOnce  = "use-once" // new memory, registered for this transfer, and unmapped after it
	register = "register" // memory that is used again, registered for this transfer
	cached   = "cache-"   // memory that is used again, with a pin-down cache; the number is its rate of hits in percent
	intoPool = "copy"     // copied into memory that is registered already
)

// Devices.
const (
	software = "software" // ours: to register is to note where the memory is
	pinning  = "pinning"  // a model of an adapter: the pages are locked as well, by mlock
)

// largest is the most that a transfer has, in bytes.
const largest = 64 << 20

// Registration is E3: the hidden cost of registering memory.
var Registration = &exp.Experiment{
	ID: "E3", Name: "registration",
	Question: "What does it take to make data sendable: to register it each time, to keep registrations, or to copy it into registered memory?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "device", Levels: []string{software, pinning}},
			{Name: "way", Levels: []string{useOnce, register, cached + "0", cached + "50", cached + "90", cached + "100", intoPool}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(4096, 65536), exp.Numbers(4096, 65536, 262144, 1<<20, 4<<20, 16<<20, largest),
				exp.Numbers(4096, 16384, 65536, 262144, 1<<20, 2<<20, 4<<20, 16<<20, largest))},
		}
	},
	// A copy needs no registration: it is the same with both.
	Keep:    func(c exp.Cell) bool { return c["way"] != intoPool || c["device"] == software },
	Rounds:  func(z exp.Size) int { return exp.Pick(z, 1, 7, 25) },
	Metrics: []exp.Metric{{Name: "took", Unit: "us", What: "time for a transfer, without the transfer itself"}},
	Prepare: prepare,
	Views: []exp.View{
		{Title: "Software device", Metric: "took", X: "size", Lines: []string{"way"}, Where: exp.Cell{"device": software}},
		{Title: "A model of an adapter, which pins pages", Metric: "took", X: "size", Lines: []string{"way"}, Where: exp.Cell{"device": pinning}},
	},
	Claims: []exp.Predicate{
		{Claim: "copying into a pool beats memory that is used once at every size up to 1 MiB, even with a device that pins nothing", Says: "ICDCS'09 [A], as \"hidden cost\"", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<20, func(s string) exp.Verdict {
				return r.Less(way(software, intoPool, s), way(software, useOnce, s), "took", 1)
			})
		}},
		{Claim: "where pages are pinned, copying into a pool beats registering used memory anew at every size up to 1 MiB", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<20, func(s string) exp.Verdict {
				return r.Less(way(software, intoPool, s), way(pinning, register, s), "took", 1)
			})
		}},
		{Claim: "where pages are pinned, use once is the worst at every size", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict {
				return exp.All(r.Less(way(pinning, register, s), way(pinning, useOnce, s), "took", 1), r.Less(way(software, intoPool, s), way(pinning, useOnce, s), "took", 1))
			})
		}},
		{Claim: "a cache that always hits beats a copy from 64 KiB on", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 65536, 1<<30, func(s string) exp.Verdict {
				return r.Less(way(pinning, cached+"100", s), way(software, intoPool, s), "took", 1)
			})
		}},
		{Claim: "where pages are pinned, a cache that hits half of the time is slower than a copy up to 256 KiB", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 256<<10, func(s string) exp.Verdict {
				return r.Less(way(software, intoPool, s), way(pinning, cached+"50", s), "took", 1)
			})
		}},
		{Claim: "a cache that never hits costs less than a quarter more than none", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 65536, 1<<20, func(s string) exp.Verdict {
				return r.Less(way(pinning, cached+"0", s), way(pinning, register, s), "took", 1.25)
			})
		}},
		{Claim: "on the software device the lines of copying and registering used memory cross between 4 KiB and 1 MiB", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Cross("size", exp.Cell{"device": software, "way": intoPool}, exp.Cell{"device": software, "way": register}, "took", 4096, 1<<20)
		}},
	},
	Defaults: []exp.Default{
		{What: "sources and results lie in slots and sinks, whose memory is recycled", Where: "internal/shm/shm.go"},
		{What: "`buffers.slots`: 64 jobs in flight share the pool", Where: "deploy/config.yaml"},
		{What: "a credit's slot is registered anew for each job, so that its STag dies with the job", Where: "pkg/worker/slot.go"},
	},
}

// way returns a cell of Registration.
func way(device, way, size string) exp.Cell {
	return exp.Cell{"device": device, "way": way, "size": size}
}

const (
	// perRate is after how many transfers every rate of hits has had its share of misses.
	perRate = 10

	buffers = 3 // that a program uses in turn
	kept    = 2 // registrations in the cache: fewer, so that it can miss
)

type registration struct {
	dev  iwarp.Device
	pd   iwarp.PD
	bufs [buffers][]byte // of the largest size
	pool []byte
	d    time.Duration
	next int // buffer
	miss int // percents of a miss that have gathered
}

func prepare(_ context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &registration{d: exp.Pick(s.Size, time.Millisecond, 15*time.Millisecond, 60*time.Millisecond)}
	if err := b.open(exp.Pick(s.Size, 65536, largest, largest)); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

func (b *registration) open(most int) (err error) {
	if b.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		return err
	}
	if b.pd, err = b.dev.AllocPD(); err != nil {
		return err
	}
	for i := range b.bufs {
		if b.bufs[i], err = mapped(most); err != nil {
			return err
		}
	}
	b.pool, err = mapped(most)
	return err
}

func (b *registration) Close() (err error) {
	for _, m := range append(b.bufs[:], b.pool) {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	if b.dev != nil {
		err = errors.Join(err, b.dev.Close())
	}
	return err
}

// mapped returns n bytes whose pages are there.
func mapped(n int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return m, nil
}

func (b *registration) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	n := c.Number("size")
	pd := b.pd
	if c["device"] == pinning {
		if err := lockable(n * (kept + 1)); err != nil {
			return nil, err
		}
		pd = &pinningPD{b.pd, unix.Mlock, unix.Munlock}
	}
	step, end, err := b.step(c["way"], n, pd)
	if err != nil {
		return nil, err
	}
	var us []float64
	for start := time.Now(); err == nil && (time.Since(start) < b.d || len(us)%perRate != 0 || len(us) == 0) && ctx.Err() == nil; {
		var took time.Duration
		took, err = step()
		us = append(us, float64(took.Nanoseconds())/1e3)
	}
	if err = errors.Join(err, end()); err != nil {
		return nil, err
	}
	if n := len(us) / 2 / perRate * perRate; n > 0 { // the first ones warm the caches
		us = us[n:]
	}
	// The mean, as a cache's misses count by their share.
	sum := 0.0
	for _, v := range us {
		sum += v
	}
	return exp.Values{"took": sum / float64(len(us))}, nil
}

// lockable returns an Untold if n bytes cannot be locked in memory.
func lockable(n int) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return err
	}
	if unix.Geteuid() != 0 && uint64(n) > l.Cur {
		return &exp.Untold{Reason: fmt.Sprintf("the limit of locked memory is %s", exp.Bytes(int(l.Cur)))}
	}
	return nil
}

// step returns a function that makes one transfer's data sendable and says how long that took, and one that ends this.
func (b *registration) step(name string, n int, pd iwarp.PD) (step func() (time.Duration, error), end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case name == useOnce:
		return func() (time.Duration, error) { return b.fresh(n, pd) }, nothing, nil
	case name == intoPool:
		return func() (time.Duration, error) {
			buf := b.turn()[:n]
			produce(buf)
			start := time.Now()
			copy(b.pool, buf)
			return time.Since(start), nil
		}, nothing, nil
	}
	percent, ok := strings.CutPrefix(name, cached)
	if !ok {
		do := once(pd)
		return func() (time.Duration, error) { return b.registered(n, do, 0) }, nothing, nil
	}
	hits, err := strconv.Atoi(percent)
	if err != nil {
		return nil, nil, err
	}
	c, err := newCache(pd)
	if err != nil {
		return nil, nil, err
	}
	do := through(c)
	if err := do(b.turn()[:n]); err != nil { // the first one is not counted
		return nil, nil, errors.Join(err, c.Close())
	}
	return func() (time.Duration, error) { return b.registered(n, do, hits) }, c.Close, nil
}

// fresh is one transfer with memory of its own.
func (b *registration) fresh(n int, pd iwarp.PD) (time.Duration, error) {
	start := time.Now()
	m, err := mapped(n)
	if err != nil {
		return 0, err
	}
	mr, err := pd.RegMR(m, rights, nil)
	took := time.Since(start)
	if err != nil {
		return 0, errors.Join(err, unix.Munmap(m))
	}
	produce(m)
	start = time.Now()
	err = errors.Join(mr.Dereg(), unix.Munmap(m))
	return took + time.Since(start), err
}

// registered is one transfer with memory that is used again. With a cache, the buffer is the one used last, or else the one
// that was not used for longest, which is not in the cache any more.
func (b *registration) registered(n int, do transfer, hits int) (time.Duration, error) {
	if b.miss += 100 - hits; b.miss >= 100 {
		b.miss -= 100
		b.turn()
	}
	buf := b.bufs[b.next][:n]
	produce(buf)
	start := time.Now()
	err := do(buf)
	return time.Since(start), err
}

// turn moves on to the next buffer.
func (b *registration) turn() []byte {
	b.next = (b.next + 1) % buffers
	return b.bufs[b.next]
}

// produce writes the data, as a program does that then has it sent. It is not part of what is measured.
func produce(buf []byte) {
	const page = 4096
	v := buf[0] + 1
	for i := 0; i < len(buf); i += page {
		clear(buf[i:min(i+page, len(buf))])
		buf[i] = v
	}
}
