package lend

import "time"

// A build has pauses that are shorter than any of its compiles: between the end of one job and the next, the
// client writes the object and make starts another command. A core that another tenant gets in such a pause
// is gone for as long as that tenant's job takes, which may be far longer than the build's own jobs. So a
// tenant's part of the cores is kept for it over a pause, as far as it has used it lately.
const (
	// pauseLeast and pauseMost bound how long cores are kept. Within them, it is as long as the tenant's jobs
	// take, so that no more than half of its part is idle.
	pauseLeast, pauseMost = 20 * time.Millisecond, 200 * time.Millisecond
	// heldPause is how long a tenant's pause may be while it still counts as building against a tenant that had
	// to yield.
	heldPause = 2 * time.Second
)

// pause returns for how long after its last job cores are kept for the tenant.
func (t *Tenant) pause() time.Duration { return min(max(t.meanWall, pauseLeast), pauseMost) }

// pauses reports whether the tenant's last job has ended so recently that the next one is likely to come
// soon: within its pause, or least if that is longer.
func (t *Tenant) pauses(now time.Time, least time.Duration) bool {
	return now.Sub(t.ended) < max(least, t.pause())
}

// kept returns how many cores are kept for the tenant, in addition to those that run its jobs.
func (t *Tenant) kept(fair int, now time.Time) int {
	if !t.pauses(now, 0) {
		return 0
	}
	return max(0, min(fair, max(t.width, t.widthLast))-t.runs)
}

// settleWidths is called once a tick, so that each tenant's width covers the last one or two ticks.
func (l *Ledger) settleWidths() {
	for _, t := range l.tenants {
		t.widthLast, t.width = t.width, t.queued+t.runs
	}
}

// parts says how the cores are divided now.
type parts struct {
	fair int // cores for each tenant while all tenants that build want more
	held int // cores for a tenant that had to yield
	kept int // cores that are kept for tenants in a pause
}

// parts returns how the cores are divided at the time now.
func (l *Ledger) parts(now time.Time) (p parts) {
	build, pause := 0, 0
	for _, t := range l.tenants {
		switch {
		case t.queued+t.runs > 0 || t.pauses(now, 0):
			build++
		case t.pauses(now, heldPause):
			pause++
		}
	}
	p.fair = max(1, l.o.Cores/max(1, build))
	p.held = max(1, l.o.Cores/max(1, build+pause))
	for _, t := range l.tenants {
		p.kept += t.kept(p.fair, now)
	}
	return p
}

// mayRun reports whether another job of the tenant may start.
func (l *Ledger) mayRun(t *Tenant, p parts, now time.Time) bool {
	switch {
	case l.o.Running > 0 && t.runs >= l.o.Running:
		return false
	case now.Before(t.held):
		return t.runs < p.held
	}
	return t.runs < p.fair || l.o.Cores-len(l.running) > p.kept-t.kept(p.fair, now)
}

// PauseLeft returns how long it takes until the first pause ends for which cores are kept idle. Then Next may
// have something for them. It returns 0 if there is no such pause.
func (l *Ledger) PauseLeft(now time.Time) time.Duration {
	if len(l.running) >= l.o.Cores {
		return 0
	}
	first := pauseMost + 1
	for _, t := range l.tenants {
		if left := t.pause() - now.Sub(t.ended); left > 0 {
			first = min(first, left)
		}
	}
	if first > pauseMost {
		return 0
	}
	return first + time.Millisecond
}
