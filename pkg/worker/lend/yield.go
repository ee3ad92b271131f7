package lend

import "time"

// A core is assigned for one job, and a compile can take long: a tenant that filled all cores with endless
// compiles while no other tenant was building would keep them for that long. So a tenant that has less than
// its part of the cores, and has waited for twice as long as its jobs take, gets a core of a tenant that has
// more. Of that tenant's jobs, the one that has run for the shortest time, and so loses least, is ended and
// answered as refused, so that its client runs it elsewhere. That tenant then gets no more than its part
// while others build, and for a while after that, because builds have pauses.

const (
	// yieldLeast and yieldMost bound the wait. It is short enough that an honest client's build makes
	// progress, and long enough that short jobs free their cores in the normal way.
	yieldLeast, yieldMost = 2 * time.Second, 20 * time.Second
	// heldTime is how long a tenant that had to yield is limited to its part after the others have stopped
	// building.
	heldTime = 30 * time.Second
)

// yieldAfter returns how long a job of the tenant waits before a job of another tenant yields.
func (t *Tenant) yieldAfter() time.Duration {
	return min(max(2*t.meanWall, yieldLeast), yieldMost)
}

// Yields returns the jobs that are to be ended: for each tenant that has less than its part and has waited
// too long, one job of a tenant that has more. It is to be called after each Tick. The jobs keep their cores
// until Ended is called for them.
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
		return nil // a core is free: jobs wait for another reason
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

// widest returns the tenant other than t that has the most cores beyond the fair part, or nil.
func (l *Ledger) widest(t *Tenant, fair int) (most *Tenant) {
	for _, o := range l.tenants {
		if o != t && o.runs-o.yielding > fair && (most == nil || o.runs-o.yielding > most.runs-most.yielding) {
			most = o
		}
	}
	return most
}

// lastOf returns the tenant's running job that started last and does not yield yet, or nil.
func (l *Ledger) lastOf(t *Tenant) (last *Job) {
	for _, r := range l.running {
		if r.client.tenant == t && !r.yields && (last == nil || r.started.After(last.started)) {
			last = r
		}
	}
	return last
}

// waits reports whether a job of the tenant has waited for so long that a job of another tenant has to yield.
func (t *Tenant) waits(now time.Time) bool {
	for _, cl := range t.clients {
		if len(cl.queue) > 0 && now.Sub(cl.queue[0].Arrived) > t.yieldAfter() {
			return true
		}
	}
	return false
}
