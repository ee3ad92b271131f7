package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/az"
	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// Modes: what a Write does with the application's memory.
const (
	buffered = "buffered" // BSDP: it copies
	zeroCopy = "zerocopy" // ZSDP: it sends from there, and returns when that is done
	azHuge   = "az-2MiB"  // AZ: it sends from there and returns at once; pages of 2 MiB
	azSmall  = "az-4KiB"  // the same with pages of 4 KiB
	azChosen = "az"       // pages of 2 MiB, and copies where it has measured that these cost less
)

// sends is what a program sends.
type sends struct {
	mode    string
	size    int           // bytes of a message
	buffers int           // that it fills in turn
	touch   int           // percents of pages that it writes to right after a Write
	later   bool          // it does so when the message has had time to leave
	compute time.Duration // after each Write
}

// program sends messages as an application does: it fills a buffer, writes it, and goes on with the next one.
type program struct {
	sends
	conn    *stream.Conn
	az      *az.Conn
	bufs    [][]byte
	next    int
	n       int           // messages
	calls   time.Duration // inside of Write
	waits   time.Duration // inside of Reclaim
	working time.Duration // computing
}

// arenas are memory for AZ, by what they have. They are kept, as a program keeps them.
type arenas map[string]*az.Arena

func (all arenas) get(mode string, n, size int) (*az.Arena, error) {
	pages := az.Huge
	if mode == azSmall {
		pages = az.Small
	}
	key := fmt.Sprint(pages, n, size)
	if a := all[key]; a != nil {
		return a, nil
	}
	a, err := az.NewArena(n, size, pages)
	if errors.Is(err, az.ErrNoHugePages) {
		return nil, &exp.Untold{Reason: err.Error()}
	}
	if err == nil {
		all[key] = a
	}
	return a, err
}

func (all arenas) close() (err error) {
	for _, a := range all {
		err = errors.Join(err, a.Close())
	}
	return err
}

// senders are a side that sends by any mode.
type senders struct {
	*sides
	arenas arenas
	d      time.Duration
}

func prepareSenders(_ context.Context, s *exp.Setting) (*senders, error) {
	both, err := start(loopback, s.CPU)
	return &senders{both, make(arenas), exp.Pick(s.Size, 2*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)}, err
}

// Close ends both sides.
func (s *senders) Close() error { return errors.Join(s.sides.Close(), s.arenas.close()) }

// most is how many bytes of receives there are, and of the messages that warm a connection up.
const most = 16 << 20

// open connects a program, and warms its connection up. slot tells programs apart that run at the same time.
func (s *senders) open(ctx context.Context, x sends, slot int) (p *program, err error) {
	many := max(4, min(32, most/x.size))
	h := hello{Size: x.size, Recvs: many, Warm: many}
	mode := stream.Buffered
	if x.mode == zeroCopy {
		mode = stream.ZeroCopy
	}
	p = &program{sends: x}
	if p.conn, err = s.dial(ctx, &h, stream.Config{Mode: mode, ZeroCopyMin: 1}); err != nil {
		return nil, err
	}
	conn := p.conn
	defer func() {
		if err != nil {
			end(conn)
		}
	}()
	if err := s.memory(p, slot); err != nil {
		return nil, err
	}
	warm := *p
	warm.compute = 0
	if err := errors.Join(warm.run(ctx, h.Warm, 0), answer(p.conn)); err != nil {
		return nil, err
	}
	return p, nil
}

// memory gives a program its buffers.
func (s *senders) memory(p *program, slot int) error {
	if p.mode == buffered || p.mode == zeroCopy {
		for range p.buffers {
			p.bufs = append(p.bufs, filled(p.size))
		}
		return nil
	}
	a, err := s.arenas.get(p.mode, p.buffers*(slot+1), p.size)
	if err != nil {
		return err
	}
	o := az.Options{Min: 1, Always: true}
	if p.mode == azChosen {
		o = az.Options{}
	}
	if p.az, err = az.New(p.conn, a, o); err != nil {
		return err
	}
	for i := range p.buffers {
		p.bufs = append(p.bufs, a.Buffer(slot*p.buffers + i)[:p.size])
	}
	return nil
}

// run sends n messages, or for a time, until all have left the program's memory.
func (p *program) run(ctx context.Context, n int, d time.Duration) error {
	for begin, k := time.Now(), 0; k < n || time.Since(begin) < d; k++ {
		if err := errors.Join(p.send(), ctx.Err()); err != nil {
			return err
		}
	}
	if p.az != nil {
		return p.az.Flush()
	}
	return nil
}

// send sends a message.
func (p *program) send() (err error) {
	buf := p.bufs[p.next]
	p.next = (p.next + 1) % len(p.bufs)
	begin := time.Now()
	if p.az != nil {
		if err := p.az.Reclaim(buf); err != nil {
			return err
		}
	}
	p.waits += time.Since(begin)
	p.n++
	produce(buf, byte(p.n))
	begin = time.Now()
	if p.az != nil {
		_, err = p.az.Write(buf)
	} else {
		_, err = p.conn.Write(buf)
	}
	p.calls += time.Since(begin)
	if p.later {
		think(500)
	}
	touch(buf, p.touch)
	if p.compute > 0 {
		begin = time.Now()
		compute(p.compute)
		p.working += time.Since(begin)
	}
	return err
}

// produce fills a message.
func produce(buf []byte, x byte) {
	for i := range min(len(buf), 64) {
		buf[i] = x
	}
	for done := 64; done < len(buf); done *= 2 {
		copy(buf[done:], buf[:done])
	}
}

// touch writes to so many percents of the pages of a message, at least one if there are any.
func touch(buf []byte, percent int) {
	const page = 4096
	pages := (len(buf) + page - 1) / page
	n := (pages*percent + 99) / 100
	for i := range n {
		buf[i*pages/n*page]++
	}
}

// compute uses the processor for a fixed amount of work, as calibrated, so that it takes longer beside others.
func compute(d time.Duration) {
	for n := int64(d) * rounds / int64(time.Millisecond); n > 0; n-- {
		mixed = mixed*6364136223846793005 + 1442695040888963407
	}
}

var (
	mixed  uint64
	rounds = calibrate() // of compute in a millisecond
)

// calibrate returns how many rounds a millisecond takes, by this thread's processor time.
func calibrate() int64 {
	const n = 1 << 18
	best := time.Duration(1 << 62)
	for range 5 {
		begin := cpuTime()
		for range n {
			mixed = mixed*6364136223846793005 + 1442695040888963407
		}
		best = min(best, cpuTime()-begin)
	}
	return n * int64(time.Millisecond) / max(int64(best), 1)
}

func cpuTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// outcome is what a program has done, and what that took.
type outcome struct {
	cost
	n       int // messages
	bytes   int64
	call    float64 // us in Write, for a message
	wait    float64 // us in Reclaim
	slowed  float64 // by what computing took longer, a factor
	touched float64 // pages for a message
	direct  float64 // percents
}

// measure runs programs side by side and returns their sum.
func (s *senders) measure(ctx context.Context, x sends, conns int) (o outcome, err error) {
	var all []*program
	defer func() {
		for _, p := range all {
			end(p.conn)
		}
	}()
	for i := range conns {
		p, err := s.open(ctx, x, i)
		if err != nil {
			return o, err
		}
		all = append(all, p)
	}
	reports := make([]report, conns)
	errs := make(chan error, conns)
	before := make([]az.Stats, conns)
	o.cost, err = s.clock(func() (err error) {
		for i, p := range all {
			p.n, p.calls, p.waits, p.working = 0, 0, 0, 0
			if p.az != nil {
				before[i] = p.az.Stats()
			}
			go func() {
				err := p.run(ctx, 0, s.d)
				if err == nil {
					reports[i], err = finish(p.conn)
				}
				errs <- err
			}()
		}
		for range all {
			err = errors.Join(err, <-errs)
		}
		return err
	})
	if err != nil {
		return o, err
	}
	var calls, waits, working time.Duration
	for i, p := range all {
		o.n += p.n
		calls, waits, working = calls+p.calls, waits+p.waits, working+p.working
		o.direct += 100 * float64(reports[i].Direct) / float64(reports[i].Bytes) / float64(conns)
		if p.az != nil {
			o.touched += float64(p.az.Stats().Touched-before[i].Touched) / 4096
		}
	}
	o.bytes = int64(o.n) * int64(x.size)
	o.call, o.wait, o.touched = us(calls)/float64(o.n), us(waits)/float64(o.n), o.touched/float64(o.n)
	if x.compute > 0 {
		o.slowed = working.Seconds() / (x.compute.Seconds() * float64(o.n))
	}
	return o, nil
}
