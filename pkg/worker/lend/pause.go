package lend

import "time"

// A build has pauses shorter than any of its compiles: from the end of one to the next job
// the client writes the object and make starts another command. A core that another tenant
// gets in such a pause is gone for as long as that one's job takes, which may be far longer
// than the build's own. So a tenant's part is kept for it over a pause, as far as it has
// used it lately.
const (
	// pauseLeast and pauseMost bound how long: what its jobs take, so that no more than half
	// of its own part is idle.
	pauseLeast, pauseMost = 20 * time.Millisecond, 200 * time.Millisecond
	// heldPause is how long against a tenant that had to yield.
	heldPause = 2 * time.Second
)

func (t *Tenant) pause() time.Duration { return min(max(t.meanWall, pauseLeast), pauseMost) }

// pauses reports whether the tenant is about to have the next job, as it looks.
func (t *Tenant) pauses(now time.Time, least time.Duration) bool {
	return now.Sub(t.ended) < max(least, t.pause())
}

// kept returns how many cores beside those that it has are kept for it.
func (t *Tenant) kept(fair int, now time.Time) int {
	if !t.pauses(now, 0) {
		return 0
	}
	return max(0, min(fair, max(t.width, t.widthLast))-t.runs)
}

// settleWidths is called once a tick: what counts of widths is the last one or two.
func (l *Ledger) settleWidths() {
	for _, t := range l.tenants {
		t.widthLast, t.width = t.width, t.queued+t.runs
	}
}

// parts are how the cores are divided now.
type parts struct {
	fair int // cores that each tenant has for itself while all those that build want more
	held int // the same for one that had to yield
	kept int // cores that are kept for tenants that pause
}

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

// mayRun reports whether a further job of the tenant's may start.
func (l *Ledger) mayRun(t *Tenant, p parts, now time.Time) bool {
	switch {
	case l.o.Running > 0 && t.runs >= l.o.Running:
		return false
	case now.Before(t.held):
		return t.runs < p.held
	}
	return t.runs < p.fair || l.o.Cores-len(l.running) > p.kept-t.kept(p.fair, now)
}

// PauseLeft returns how long until the first pause ends for which cores stand idle: then Next
// may have something for them. It is 0 when there is none.
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
