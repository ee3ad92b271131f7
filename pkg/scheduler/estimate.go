package scheduler

import (
	"math"
	"slices"
	"time"
)

// clock returns the time since the Scheduler's first moment, on which all estimates are based.
func (s *Scheduler) clock(now time.Time) time.Duration {
	if s.began.IsZero() {
		s.began = now
	}
	return now.Sub(s.began)
}

// time returns how long j takes on a core of speed 1: as predicted, else by its size and by
// what jobs took so far.
func (s *Scheduler) time(j *Job) time.Duration {
	switch {
	case j.Cost.Time > 0:
		return j.Cost.Time
	case j.Size > 0 && s.typical.rate.weight > 0:
		return seconds(float64(j.Size) / s.typical.rate.exp)
	case s.typical.time.weight > 0:
		return seconds(s.typical.time.exp)
	}
	return aJob
}

// blind reports whether there is nothing to estimate j's time from.
func (s *Scheduler) blind(j *Job) bool { return j.Cost.Time == 0 && s.typical.time.weight == 0 }

// length returns how long a job takes on h if it takes one on a core of speed 1.
func (s *Scheduler) length(h *host, t, one time.Duration, toolchain [16]byte) time.Duration {
	return time.Duration(float64(one) / s.speed(h, toolchain) * h.slow(t))
}

// slow returns the ratio of a compile's wall time to its CPU time on h, 1 or more. It comes
// from the latest compiles there, which age quickly, else from the load that other
// processes cause. It is higher where jobs got stuck.
func (h *host) slow(t time.Duration) float64 {
	v := 1.0
	if age := t - h.loadAt; h.foreign > 0 && age < viewOld {
		f := h.foreign * (1 - age.Seconds()/viewOld.Seconds())
		v = max(1, (f+float64(len(h.runs)+1))/float64(h.cores()))
	}
	if h.stretchAt > 0 {
		v += (h.stretch - v) * h.plan.recent
	}
	return v * max(h.plan.lag, 1+h.stalls)
}

func (h *host) cores() int { return max(h.capacity.Jobs, 1) }

// moves returns how long n bytes occupy the link to h.
func (h *host) moves(n uint64) time.Duration {
	if h.link.Rate <= 0 {
		return 0
	}
	return seconds(float64(n) / h.link.Rate)
}

// bytes returns how many bytes of j have to be moved to h.
func (j *Job) bytes(h *host) uint64 { return j.Bytes - min(j.Bytes, j.Held[h.addr]) }

// arrive returns when n bytes sent at t reach h, behind what was sent before them.
func (h *host) arrive(t time.Duration, n uint64) time.Duration {
	return max(t, h.sent) + h.moves(n) + h.link.RTT/2
}

// back returns how long an ordinary result takes to come from h.
func (s *Scheduler) back(h *host) time.Duration {
	return h.link.RTT/2 + h.moves(uint64(s.typical.result.or(0)))
}

// othersAt returns how many jobs other managers have at h: what its view says, shifting to
// what is usual there as the view ages.
func (h *host) othersAt(t time.Duration) int {
	if !h.viewed {
		return 0
	}
	old := min((t-h.loadAt).Seconds()/viewOld.Seconds(), 1)
	return int(math.Round(float64(h.others)*(1-old) + h.usual*old))
}

// plan holds the times at which the cores of a host are expected to become free, as a heap.
// It is the start of list scheduling (R. L. Graham, 1969), where each job takes the core that
// is free first.
type plan struct {
	free   []time.Duration
	stale  time.Duration // when it must be made again
	ok     bool
	round  uint64          // the round to which held belongs
	ours   time.Duration   // when the first of our jobs ends
	lag    float64         // how much longer than expected the jobs running now take, as a factor
	recent float64         // weight that the contention of the latest jobs still has
	held   []time.Duration // lengths of the jobs that wait for this host in this round
}

// freeAt returns when a core of h will be free for one more job.
func (s *Scheduler) freeAt(h *host, t time.Duration) time.Duration {
	p := &h.plan
	if p.round != s.round {
		p.round = s.round
		if len(p.held) > 0 {
			p.held, p.ok = p.held[:0], false
		}
	}
	if !p.ok || t >= p.stale {
		s.replan(h, t)
	}
	return p.free[0]
}

// replan makes the plan of h. Our earliest jobs run, on as many cores as the other managers
// leave or as is our share. The others' jobs follow, ending one after the other, and then what
// is queued there.
func (s *Scheduler) replan(h *host, t time.Duration) {
	p := &h.plan
	n, mine, others := h.cores(), len(h.runs), h.othersAt(t)
	p.free = slices.Grow(p.free[:0], n)[:n]
	clear(p.free)
	p.ok, p.stale, p.ours = true, t+time.Second, never
	run := min(mine, n)
	if mine+others > n {
		run = min(mine, max(n-others, (n*mine+mine+others-1)/(mine+others)))
	}
	p.recent = math.Exp2(-(t - h.stretchAt).Seconds() / stretchHalf.Seconds())
	var lags [maxLags]float64
	late, known, lateKnown := 0, 0, 0
	for i, r := range h.runs[:run] {
		if r.begin < 0 {
			r.begin = max(t, r.arrive)
			r.late = r.begin + r.p95 + s.back(h)
			s.hedgeAt = min(s.hedgeAt, r.late)
		}
		end := r.begin + r.length
		if end < t+r.length/soon {
			// Overdue. The longer such jobs have been overdue, the longer they are expected to take.
			end = max(end, t) + r.length/soon + (t-end)/2
		}
		if r.known {
			known++
		}
		if late < maxLags && t > r.begin+r.p95 {
			lags[late] = float64(t-r.begin) / float64(max(r.length, 1))
			late++
			if r.known {
				lateKnown++
			}
		}
		p.free[i] = end
		p.ours = min(p.ours, end)
		p.stale = min(p.stale, max(end, t+5*time.Millisecond))
	}
	// One late job says little about its host. If most are late, the host is to blame; if no
	// length was known in advance, only if all are.
	p.lag = 1
	if 2*lateKnown > known+1 || known == 0 && late == run && late > 2 {
		slices.Sort(lags[:late])
		p.lag = max(lags[late/2], 1)
	}
	mean := h.mean()
	other := min(others, n-run)
	for i := range other {
		p.free[run+i] = t + time.Duration((float64(i)+0.5)/float64(other)*float64(mean))
	}
	slices.Sort(p.free) // a sorted slice is a heap
	for _, r := range h.runs[run:] {
		p.add(r.arrive, r.length)
	}
	for range others - other {
		p.add(t, mean)
	}
	for _, d := range p.held {
		p.add(t, d)
	}
}

// add assigns one more job to the core that is free first.
func (p *plan) add(arrive, length time.Duration) {
	p.free[0] = max(p.free[0], arrive) + length
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(p.free) {
			return
		}
		if c+1 < len(p.free) && p.free[c+1] < p.free[c] {
			c++
		}
		if p.free[i] <= p.free[c] {
			return
		}
		p.free[i], p.free[c] = p.free[c], p.free[i]
		i = c
	}
}

// hold notes that a job waits for h, for the benefit of jobs asked for later in the same round.
func (p *plan) hold(t, length time.Duration) {
	p.held = append(p.held, length)
	p.add(t, length)
}

// mean returns the mean length of a job at h.
func (h *host) mean() time.Duration { return seconds(h.learned.time.or(aJob.Seconds())) }

const (
	maxLags     = 64 // late jobs of a host that are examined
	soon        = 10 // an overdue job is expected to take at least one part in soon of its length more
	stretchHalf = 10 * time.Second
)

func seconds(x float64) time.Duration {
	return time.Duration(min(x, 1e6) * float64(time.Second))
}
