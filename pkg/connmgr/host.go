package connmgr

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/pkg/identity"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// hostState is where a host's connection stands.
type hostState uint8

const (
	hostConnecting hostState = iota // an attempt is under way
	hostUp                          // takes jobs
	hostDraining                    // finishes what it has
	hostDown                        // the last attempt failed; another one follows
	numHostStates
)

var hostStateWords = [numHostStates]string{"connecting", "up", "draining", "down"}

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
	m    *Manager
	addr string
	grow chan struct{} // capacity 1: one more link is wanted; serve takes it
	kick chan struct{} // capacity 1: a job does not want to wait for the next attempt

	reached netip.Addr // where it was connected last; owned by run

	// guarded by m.mu
	state    hostState
	link     *link   // while up or draining: the one that speaks for the host
	links    []*link // and all
	growing  bool    // one more is asked for or dialled
	nextGrow time.Time
	served   *link // the link that spoke for it when a job was placed last
	lastErr  error // of the last attempt or loss
	lastWant time.Time
	lostAt   time.Time
	retry    time.Time // after a loss: when to dial again
	jobs     hostCounts
}

// hostCounts are a host's jobs since the manager started.
type hostCounts struct {
	ok, failed uint64
	out, in    uint64 // bytes of sources and results
}

// wantLocked notes that a job may need the host. eager: see wantHosts.
func (h *host) wantLocked(now time.Time, eager *time.Duration) {
	slow := now.Sub(h.lastWant) > wantedFor && now.After(h.retry)
	h.lastWant = now
	if h.state == hostDown && (slow || eager != nil && !now.Before(h.lostAt.Add(*eager))) {
		select {
		case h.kick <- struct{}{}:
		default:
		}
	}
}

// run keeps h connected until ctx ends, or nobody has wanted it for long.
func (h *host) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.m.mu.Lock()
		if time.Since(h.lastWant) > forgetAfter {
			delete(h.m.hosts, h.addr)
			h.m.sched.Forget(h.addr)
			h.m.mu.Unlock()
			return
		}
		h.state = hostConnecting
		h.m.sched.Connecting(time.Now(), h.addr)
		h.m.mu.Unlock()
		if h.m.dials.Acquire(ctx, 1) != nil {
			return // ctx has ended
		}
		l, err := dialLink(ctx, h.m, h)
		h.m.dials.Release(1)
		if err == nil {
			h.serve(ctx, l)
		} else if ctx.Err() == nil {
			h.m.mu.Lock()
			h.downLocked(err)
			h.m.dispatchLocked()
			h.m.mu.Unlock()
		}
		h.pause(ctx)
	}
}

// pause waits until the host is to be dialled again.
func (h *host) pause(ctx context.Context) {
	h.m.mu.Lock()
	wait := time.Until(h.retry)
	if time.Since(h.lastWant) > wantedFor {
		wait = max(wait, unwantedPause)
	}
	h.m.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.kick:
	case <-ctx.Done():
	}
}

// upLocked opens h for jobs.
func (h *host) upLocked(l *link) {
	now := time.Now()
	h.link, h.links, h.lastErr, h.state = l, []*link{l}, nil, hostUp
	h.m.sched.Up(now, h.addr, scheduler.Capacity{
		Jobs: int(l.welcome.Jobs), MaxBody: max(l.welcome.MaxBody, l.maxSource()), Toolchains: l.idsSeen, Tree: l.welcome.Tree,
	})
	h.toolchainsLocked()
	h.creditsLocked()
	h.loadLocked(l.view.load)
	if l.draining {
		h.drainingLocked()
	}
	h.m.o.Log.Info("host connected", "host", h.addr, "jobs", l.welcome.Jobs, "toolchains", len(l.ids))
}

// drainingLocked closes h for new jobs.
func (h *host) drainingLocked() {
	if h.link != nil {
		h.state = hostDraining
		h.m.sched.Draining(time.Now(), h.addr)
	}
}

// downLocked records a failed attempt or a loss.
func (h *host) downLocked(err error) {
	if h.m.ctx.Err() == nil && (h.lastErr == nil || h.lastErr.Error() != err.Error()) {
		h.m.o.Log.Warn("host lost", "host", h.addr, "err", err)
	}
	h.link, h.links, h.lastErr, h.state = nil, nil, err, hostDown
	var no *rejection
	denied := errors.As(err, &no) && (no.Cause == job.CauseDenied || no.Cause == job.CauseVersion) ||
		errors.Is(err, psk.ErrMissing) || errors.Is(err, psk.ErrWrong) || unproven(err)
	h.lostAt = time.Now()
	h.retry = h.m.sched.Lost(h.lostAt, h.addr, err.Error(), denied)
}

// unproven says that one side's certificate is not to the other's liking: that does not
// change by trying.
func unproven(err error) bool {
	if errors.Is(err, iwarp.ErrPeerTLS) {
		return true
	}
	var e *identity.Error
	return errors.As(err, &e) && e.Cause != identity.CauseClosed && e.Cause != identity.CauseTimeout && e.Cause != identity.CauseTooMany
}

// What follows passes on what the link learns while it is the host's.

func (h *host) toolchainsLocked() {
	if h.link == nil {
		return
	}
	for id := range h.link.ids {
		h.m.sched.Toolchains(h.addr, id)
	}
}

func (h *host) loadLocked(load job.Load) {
	if h.link != nil {
		h.m.sched.Load(time.Now(), h.addr, scheduler.Load{
			Running: int(load.Running), Queued: int(load.Queued),
			Average: float64(load.LoadAvg) / 100, MemoryFree: load.MemoryFree,
		})
	}
}

func (h *host) creditsLocked() {
	if h.link != nil {
		h.m.sched.Credits(time.Now(), h.addr, h.unspentLocked())
	}
}

// bytesLocked counts payload.
func (h *host) bytesLocked(out, in uint64) {
	h.jobs.out += out
	h.jobs.in += in
	h.m.metrics.bytes(h.addr, out, in)
}

// sleep waits for d; false says that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errShutdown ends what is under way when the manager stops.
var errShutdown = errors.New("connection manager stops")
