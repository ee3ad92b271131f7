package farm

import (
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Host is one address that some host list named. Its goroutine dials it again and
// again, at the scheduler's pace, and keeps what connection there is.
type Host struct {
	f    *Farm
	Addr string        // set once
	grow chan struct{} // capacity 1: one more link is wanted; serve takes it
	kick chan struct{} // capacity 1: a job does not want to wait for the next attempt

	reached netip.Addr      // where it was connected last; owned by run
	Holds   holdings.Ledger // which of our contents it has; with a lock of its own, after all others

	// guarded by Farm.mu
	state    State
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
	jobs     counts
	refused  string // why it refused the last job; empty: it did not
}

// counts are a host's jobs since it is known.
type counts struct {
	ok, failed uint64
	out, in    uint64 // bytes of sources and results
}

// upLocked opens h for jobs.
func (h *Host) upLocked(l *conn) {
	now := time.Now()
	h.link, h.links, h.lastErr, h.state = l, []*conn{l}, nil, Up
	h.answered, h.refused = time.Time{}, ""
	can := l.Welcome()
	ids, listed := l.Toolchains()
	h.f.sched.Up(now, h.Addr, scheduler.Capacity{
		Jobs: int(can.Jobs), MaxBody: max(can.MaxBody, l.MaxSource()), Toolchains: listed, Tree: can.Tree,
	})
	h.toolchainsLocked()
	h.creditsLocked()
	h.loadLocked(l.View().Load)
	if l.Draining() {
		h.drainingLocked()
	}
	h.f.o.Log.Info("host connected", "host", h.Addr, "jobs", can.Jobs, "toolchains", len(ids))
}

// drainingLocked closes h for new jobs.
func (h *Host) drainingLocked() {
	if h.link != nil {
		h.state = Draining
		h.f.sched.Draining(time.Now(), h.Addr)
	}
}

// downLocked records a failed attempt or a loss.
func (h *Host) downLocked(err error) {
	if h.f.ctx.Err() == nil && (h.lastErr == nil || h.lastErr.Error() != err.Error()) {
		h.f.o.Log.Warn("host lost", "host", h.Addr, "err", err)
	}
	h.link, h.links, h.lastErr, h.state = nil, nil, err, Down
	h.answered = time.Time{}
	h.lostAt = time.Now()
	h.retry = h.f.sched.Lost(h.lostAt, h.Addr, err.Error(), link.Hopeless(err))
}

// toolchainsLocked tells the scheduler which compilers h has.
func (h *Host) toolchainsLocked() {
	if h.link == nil {
		return
	}
	ids, _ := h.link.Toolchains()
	for _, id := range ids {
		h.f.sched.Toolchains(h.Addr, id)
	}
	h.f.sched.Identifying(h.Addr, h.link.Identifying())
}

// loadLocked tells it what h does.
func (h *Host) loadLocked(load job.Load) {
	if h.link != nil {
		h.f.sched.Load(time.Now(), h.Addr, scheduler.Load{
			Running: int(load.Running), Queued: int(load.Queued),
			Average: float64(load.LoadAvg) / 100, MemoryFree: load.MemoryFree,
		})
	}
}

// creditsLocked tells it how many jobs h takes at once.
func (h *Host) creditsLocked() {
	if h.link != nil {
		h.f.sched.Credits(time.Now(), h.Addr, h.unspentLocked())
	}
}

// movedLocked counts payload to and from h, in bytes.
func (h *Host) movedLocked(out, in uint64) {
	h.jobs.out += out
	h.jobs.in += in
	h.f.o.Moved(h.Addr, out, in)
}
