package connmgr

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// hostState is where a host's connection stands.
type hostState uint8

const (
	hostConnecting hostState = iota // an attempt is under way
	hostStarting                    // the same: something took the connection, and has not said yet what it can do
	hostUp                          // takes jobs
	hostDraining                    // finishes what it has
	hostDown                        // the last attempt failed; another one follows
	numHostStates
)

var hostStateWords = [numHostStates]string{"connecting", "starting", "up", "draining", "down"}

func (s hostState) String() string { return hostStateWords[s] }

// A host that no job has asked for during wantedFor is dialled less often: once
// in unwantedPause, until a job asks again.
const (
	wantedFor     = 2 * time.Minute
	unwantedPause = 15 * time.Second

	// forgetAfter is when a host that is down and that no job names any more is
	// dropped: lists change, and each host has a goroutine.
	forgetAfter = time.Hour
)

// host is one address that some host list named. Its goroutine dials it again and
// again, at the scheduler's pace, and keeps what connection there is.
type host struct {
	f    *farm
	addr string
	grow chan struct{} // capacity 1: one more link is wanted; serve takes it
	kick chan struct{} // capacity 1: a job does not want to wait for the next attempt

	reached netip.Addr // where it was connected last; owned by run

	holds holdings.Ledger // which of our contents it has

	// guarded by f.mu
	state    hostState
	link     *conn   // while up or draining: the one that speaks for the host
	links    []*conn // and all
	growing  bool    // one more is asked for or dialled
	nextGrow time.Time
	served   *conn // the link that spoke for it when a job was placed last
	lastErr  error // of the last attempt or loss
	lastWant time.Time
	lostAt   time.Time
	answered time.Time // when something took the connection first, of attempts on which nothing has been said
	retry    time.Time // after a loss: when to dial again
	jobs     hostCounts
	refused  string // why it refused the last job; empty: it did not
}

// hostCounts are a host's jobs since the manager started.
type hostCounts struct {
	ok, failed uint64
	out, in    uint64 // bytes of sources and results
}

// wantLocked notes that a job may need the host. eager: see want.
func (h *host) wantLocked(now time.Time, eager *time.Duration) {
	slow := now.Sub(h.lastWant) > wantedFor && now.After(h.retry)
	h.lastWant = now
	if h.state == hostDown && (slow || eager != nil && !now.Before(h.lostAt.Add(*eager))) {
		h.kickLocked()
	}
}

// run keeps h connected until ctx ends, or nobody has wanted it for long.
func (h *host) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.f.mu.Lock()
		if time.Since(h.lastWant) > forgetAfter {
			delete(h.f.hosts, h.addr)
			h.f.sched.Forget(h.addr)
			h.f.mu.Unlock()
			return
		}
		h.state = hostConnecting
		select {
		case <-h.kick: // this is it
		default:
		}
		h.f.sched.Connecting(time.Now(), h.addr)
		h.f.mu.Unlock()
		dials := h.f.dialling.first
		if h.reached.IsValid() {
			dials = h.f.dialling.again
		}
		if dials.Acquire(ctx, 1) != nil {
			return // ctx has ended
		}
		l, err := h.dial(ctx)
		dials.Release(1)
		if err == nil {
			h.serve(ctx, l)
		} else if ctx.Err() == nil {
			h.f.mu.Lock()
			if !h.startsLocked(err) {
				h.downLocked(err)
				h.f.dispatchLocked()
			}
			h.f.mu.Unlock()
		}
		h.pause(ctx)
	}
}

// startPause is between two attempts to connect a host that is starting.
const startPause = 100 * time.Millisecond

// startsLocked says of an attempt that has failed that the host may yet come up: something
// takes connections there and says nothing, for less than the patience of jobs that wait
// for that. Such a host is not lost, and there is no back-off.
func (h *host) startsLocked(err error) bool {
	now := time.Now()
	if h.state != hostStarting || !errors.Is(err, errSilent) || now.Sub(h.answered) >= h.f.pace.Patience {
		return false
	}
	h.retry = now.Add(startPause)
	return true
}

// errSilent ends an attempt to connect in which something took the connection and said
// nothing in time.
var errSilent = errors.New("takes connections and does not answer")

// connected notes that something has taken a connection to h, and has not said a word.
func (h *host) connected() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.state != hostConnecting || errors.Is(h.lastErr, errSilent) { // this is a further link; it did not start
		return
	}
	now := time.Now()
	h.state = hostStarting
	if h.answered.IsZero() {
		h.answered = now
	}
	h.f.sched.Starting(now, h.addr)
	h.f.dispatchLocked()
}

// pause waits until the host is to be dialled again.
func (h *host) pause(ctx context.Context) {
	h.f.mu.Lock()
	wait := time.Until(h.retry)
	if time.Since(h.lastWant) > wantedFor {
		wait = max(wait, unwantedPause)
	}
	h.f.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.kick:
	case <-ctx.Done():
	}
}

// upLocked opens h for jobs.
func (h *host) upLocked(l *conn) {
	now := time.Now()
	h.link, h.links, h.lastErr, h.state = l, []*conn{l}, nil, hostUp
	h.answered, h.refused = time.Time{}, ""
	can := l.Welcome()
	ids, listed := l.Toolchains()
	h.f.sched.Up(now, h.addr, scheduler.Capacity{
		Jobs: int(can.Jobs), MaxBody: max(can.MaxBody, l.MaxSource()), Toolchains: listed, Tree: can.Tree,
	})
	h.toolchainsLocked()
	h.creditsLocked()
	h.loadLocked(l.View().Load)
	if l.Draining() {
		h.drainingLocked()
	}
	h.f.o.Log.Info("host connected", "host", h.addr, "jobs", can.Jobs, "toolchains", len(ids))
}

// drainingLocked closes h for new jobs.
func (h *host) drainingLocked() {
	if h.link != nil {
		h.state = hostDraining
		h.f.sched.Draining(time.Now(), h.addr)
	}
}

// downLocked records a failed attempt or a loss.
func (h *host) downLocked(err error) {
	if h.f.ctx.Err() == nil && (h.lastErr == nil || h.lastErr.Error() != err.Error()) {
		h.f.o.Log.Warn("host lost", "host", h.addr, "err", err)
	}
	h.link, h.links, h.lastErr, h.state = nil, nil, err, hostDown
	h.answered = time.Time{}
	h.lostAt = time.Now()
	h.retry = h.f.sched.Lost(h.lostAt, h.addr, err.Error(), link.Hopeless(err))
}

// dial makes one more connection.
func (h *host) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.f.o.DialTimeout)
	defer cancel()
	c := &conn{h: h}
	l, err := link.Dial(ctx, &h.f.dialling.Config, c, h.addr, h.dialAddr(ctx))
	if err == nil {
		h.f.mu.Lock()
		c.metLocked(l)
		h.f.mu.Unlock()
		return c, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		if h.state == hostStarting || errors.Is(h.lastErr, errSilent) {
			err = errSilent
		}
	}
	return nil, err
}

// redialLocked has the hosts dialled that the scheduler has made due.
func (f *farm) redialLocked(now time.Time) {
	due, _ := f.sched.Due(now)
	for _, addr := range due {
		if h := f.hosts[addr]; h != nil && h.state == hostDown {
			h.kickLocked()
		}
	}
}

// kickLocked ends h's pause.
func (h *host) kickLocked() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *host) toolchainsLocked() {
	if h.link == nil {
		return
	}
	ids, _ := h.link.Toolchains()
	for _, id := range ids {
		h.f.sched.Toolchains(h.addr, id)
	}
	h.f.sched.Identifying(h.addr, h.link.Identifying())
}

func (h *host) loadLocked(load job.Load) {
	if h.link != nil {
		h.f.sched.Load(time.Now(), h.addr, scheduler.Load{
			Running: int(load.Running), Queued: int(load.Queued),
			Average: float64(load.LoadAvg) / 100, MemoryFree: load.MemoryFree,
		})
	}
}

func (h *host) creditsLocked() {
	if h.link != nil {
		h.f.sched.Credits(time.Now(), h.addr, h.unspentLocked())
	}
}

// movedLocked counts payload to and from h, in bytes.
func (h *host) movedLocked(out, in uint64) {
	h.jobs.out += out
	h.jobs.in += in
	h.f.o.Moved(h.addr, out, in)
}
