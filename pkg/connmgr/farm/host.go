package farm

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// upLocked opens h for jobs.
func (h *Host) upLocked(l *conn) {
	now := time.Now()
	h.link, h.links, h.lastErr, h.state = l, []*conn{l}, nil, Up
	h.answered, h.hangsUp, h.refused = time.Time{}, time.Time{}, ""
	can := l.Welcome()
	ids, listed := l.Toolchains()
	h.f.sched.Up(now, h.Addr, scheduler.Capacity{
		Jobs: int(can.Jobs), MaxBody: max(can.MaxBody, l.MaxSource()), Toolchains: listed, Tree: can.Tree, Equipped: h.f.o.Equips && takesCompilers(can),
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
	h.lostAt = time.Now()
	denied := h.hungUpLocked(h.lostAt, err) || link.Hopeless(err)
	h.link, h.links, h.lastErr, h.state = nil, nil, err, Down
	h.answered = time.Time{}
	h.retry = h.f.sched.Lost(h.lostAt, h.Addr, err.Error(), denied)
}

// toolchainsLocked tells the scheduler which compilers h has.
func (h *Host) toolchainsLocked() {
	if h.link == nil {
		return
	}
	ids, _ := h.link.Toolchains()
	for _, id := range ids {
		h.f.sched.Toolchains(h.Addr, id)
		if own, ok := h.f.aliases[id]; ok {
			h.f.sched.Toolchains(h.Addr, own)
		}
	}
	for _, own := range h.f.aliases { // what a host was sent, it may drop
		if !slices.Contains(ids, own) && !h.f.aliases.sent(own, h.link.Has) {
			h.f.sched.Lacks(h.Addr, own)
		}
	}
	h.f.sched.Identifying(h.Addr, h.link.Identifying())
}

// loadLocked tells the scheduler the load of h.
func (h *Host) loadLocked(load job.Load) {
	if h.link != nil {
		h.f.sched.Load(time.Now(), h.Addr, scheduler.Load{
			Running: int(load.Running), Queued: int(load.Queued),
			Average: float64(load.LoadAvg) / 100, MemoryFree: load.MemoryFree,
		})
	}
}

// moved counts payload to and from h, in bytes.
func (h *Host) moved(out, in uint64) {
	h.jobs.out.Add(out)
	h.jobs.in.Add(in)
	h.f.o.Moved(h.Addr, out, in)
}
