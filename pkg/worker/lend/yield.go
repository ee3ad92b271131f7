package lend

import "time"

// Cores are given job by job, and a compile can take long: a tenant that
// filled all of them with endless ones while no other one built would keep them for that
// long. So a tenant that has less than its part of the cores, and has waited for twice
// as long as its jobs take, gets the core of a tenant that has more: the job there
// that has lost least is ended, and answered as refused, so that its client takes it
// elsewhere. That one then keeps to its part while others build, and for a while
// after that: a build has pauses.

const (
	// yieldLeast and yieldMost bound the wait: short enough that an honest client's build
	// goes on, long enough that cores change hands by themselves where jobs are short.
	yieldLeast, yieldMost = 2 * time.Second, 20 * time.Second
	// heldTime is how long a tenant that had to yield keeps to its part after no other one builds.
	heldTime = 30 * time.Second
)

// yieldAfter returns how long a job of the tenant's waits before another tenant's yields.
func (t *Tenant) yieldAfter() time.Duration {
	return min(max(2*t.meanWall, yieldLeast), yieldMost)
}

// Yields returns the jobs that are to be ended: one of a tenant that has more than its part, for
// each tenant with less that has waited for long. It is to be called after each Tick. Until Ended
// is called for them they have their cores.
func (l *Ledger) Yields(now time.Time) (victims []*Job) {
	busy := 0
	for _, t := range l.tenants {
		if t.queued+t.runs > 0 {
			busy++
		}
	}
	for _, t := range l.tenants {
		if busy > 1 && now.Before(t.held) {
			t.held = now.Add(heldTime)
		}
	}
	if len(l.running) < l.o.Cores {
		return nil // there is a core: what waits has another reason
	}
	p := l.parts(now)
	for _, t := range l.tenants {
		if t.queued == 0 || t.runs >= p.fair || !l.mayRun(t, p, now) || !t.waits(now) {
			continue
		}
		most := l.widest(t, p.fair)
		if most == nil {
			return victims
		}
		last := l.lastOf(most)
		if last == nil {
			continue
		}
		last.yields = true
		most.yielding++
		most.held = now.Add(heldTime)
		victims = append(victims, last)
	}
	return victims
}

// widest returns the tenant other than t that has most cores beyond the fair part.
func (l *Ledger) widest(t *Tenant, fair int) (most *Tenant) {
	for _, o := range l.tenants {
		if o != t && o.runs-o.yielding > fair && (most == nil || o.runs-o.yielding > most.runs-most.yielding) {
			most = o
		}
	}
	return most
}

// lastOf returns the tenant's job that began last of those that do not yield.
func (l *Ledger) lastOf(t *Tenant) (last *Job) {
	for _, r := range l.running {
		if r.client.tenant == t && !r.yields && (last == nil || r.started.After(last.started)) {
			last = r
		}
	}
	return last
}

// waits reports whether a job of the tenant's has waited for so long that another tenant's is
// to yield.
func (t *Tenant) waits(now time.Time) bool {
	for _, cl := range t.clients {
		if len(cl.queue) > 0 && now.Sub(cl.queue[0].Arrived) > t.yieldAfter() {
			return true
		}
	}
	return false
}
