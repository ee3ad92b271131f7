package scheduler

import (
	"math"
	"time"
)

// mean is a geometric mean of a positive quantity, so that half and double weigh the same.
// Newer samples count for more.
type mean struct {
	log, weight float64
	exp         float64 // exp of the mean logarithm
	off         int     // samples in a row that were far above (far below: negative)
}

// add counts v with weight w, against at most limit of the weight before it. Several samples in
// a row that are far off on the same side discard what came before.
func (m *mean) add(v, w, limit float64) {
	switch d := math.Log(v) - m.log; {
	case w < 1: // a guess is often far off
	case m.weight > 0 && d > farOff:
		m.off = max(m.off, 0) + 1
	case m.weight > 0 && d < -farOff:
		m.off = min(m.off, 0) - 1
	default:
		m.off = 0
	}
	if m.off >= changed || m.off <= -changed {
		m.weight = min(m.weight, w)
	}
	m.weight = min(m.weight, limit) + w
	m.log += (math.Log(v) - m.log) * w / m.weight
	m.exp = math.Exp(m.log)
}

// or returns the mean, or v without any sample.
func (m *mean) or(v float64) float64 {
	if m.weight == 0 {
		return v
	}
	return m.exp
}

// with returns the mean combined with a prior of weight priorOf.
func (m *mean) with(prior float64) float64 {
	if m.weight == 0 {
		return prior
	}
	return math.Exp((m.log*m.weight + math.Log(prior)*priorOf) / (m.weight + priorOf))
}

// learned holds what is learned of a host from the jobs that it ran.
type learned struct {
	speed     mean                    // relative to a core of speed 1
	speeds    map[[16]byte]*speedWith // the same, for one toolchain
	time      mean                    // of a compile there, seconds
	bytes     mean                    // moved for one compile
	deep      int                     // the result of Depth
	stretch   float64                 // wall time over CPU time, lately
	stretchAt time.Duration
	stalls    float64 // races lost to duplicates, fading with each job that goes well
	heard     time.Duration
	probed    time.Duration
}

// speedWith is a speed with its prior.
type speedWith struct {
	mean
	now float64
}

// typical holds what is learned of jobs in general, for those of which nothing else is known.
type typical struct {
	time   mean      // on a core of speed 1, seconds
	rate   mean      // bytes of source per such second
	speed  speedWith // of hosts
	result mean      // bytes of a result
}

const (
	remembered = 30  // samples that a mean remembers
	guessed    = 0.2 // weight of a sample of a job whose time was guessed
	priorOf    = 1   // weight of a prior
	stretchOf  = 0.3 // weight of the latest stretch
	farOff     = 0.9 // in logarithms: 2.5 times
	changed    = 3   // far-off samples in a row that mean a different host
	absurd     = 64  // a prediction wrong by a larger factor was about something else

	// aJob is the assumed time of a job while nothing is known.
	aJob = time.Second
)

// learn takes in the report of a job that ended well. CPU time tells of the machine, wall time
// of its other load too.
func (s *Scheduler) learn(t time.Duration, h *host, x *run, r Report) {
	h.heard = t
	if x.job == nil || r.CPU <= 0 || r.Failed {
		return
	}
	if !x.blind {
		s.learnSpeed(h, x, r)
	}
	j := x.job
	if r.Wall > 0 {
		v := min(max(float64(r.Wall)/float64(r.CPU), 1), absurd)
		if h.stretchAt > 0 {
			v = h.stretch + (v-h.stretch)*stretchOf
		}
		h.stretch, h.stretchAt = v, max(t, 1)
	}
	h.learned.time.add(max(r.Wall, r.CPU).Seconds(), 1, remembered)
	if n := max(r.Bytes, j.Bytes); n > 0 {
		h.bytes.add(float64(n), 1, remembered)
	}
	h.deepen()
	if r.Result > 0 {
		s.typical.result.add(float64(r.Result), 1, 10*remembered)
	}
	one := r.CPU.Seconds() * s.speed(h, j.Toolchain)
	s.typical.time.add(one, 1, remembered)
	if j.Size > 0 {
		s.typical.rate.add(float64(j.Size)/one, 1, remembered)
	}
}

// learnSpeed updates h's speed from the job: not at all if the job's time was a guess from
// nothing.
func (s *Scheduler) learnSpeed(h *host, x *run, r Report) {
	j := x.job
	w := 1.0
	if !j.Cost.Known {
		w = guessed
	}
	v := float64(x.one) / float64(r.CPU)
	v = min(max(v, 1./absurd), absurd)
	h.learned.speed.add(v, w, remembered)
	s.typical.speed.add(v, w, 10*remembered)
	s.typical.speed.now = s.typical.speed.with(1)
	m := h.speeds[j.Toolchain]
	if m == nil {
		if h.speeds == nil {
			h.speeds = make(map[[16]byte]*speedWith)
		}
		m = new(speedWith)
		h.speeds[j.Toolchain] = m
	}
	m.add(v, w, remembered)
	m.now = m.with(s.prior(h, j.Toolchain))
}

// ordinary returns the time of a job that is not a long one.
func (s *Scheduler) ordinary() time.Duration { return seconds(s.typical.time.or(aJob.Seconds())) }

// speed returns the speed of h with a toolchain, from what its jobs took and a prior.
func (s *Scheduler) speed(h *host, toolchain [16]byte) float64 {
	if m := h.speeds[toolchain]; m != nil {
		return m.now
	}
	return s.prior(h, toolchain)
}

// prior returns the speed that h claims for a toolchain, else its speed with other toolchains,
// else the speed of other hosts.
func (s *Scheduler) prior(h *host, toolchain [16]byte) float64 {
	if v := h.capacity.Speed[toolchain]; v > 0 {
		return v
	}
	usual := 1.0
	if s.typical.speed.weight > 0 {
		usual = s.typical.speed.now
	}
	if h.learned.speed.weight > 0 {
		return h.learned.speed.with(usual)
	}
	return usual
}

// Speed returns the speed of addr with a toolchain, relative to a core of speed 1, or 1 while
// nothing is known. It converts times measured there into the times that history keeps.
func (s *Scheduler) Speed(addr string, toolchain [16]byte) float64 {
	h := s.host(addr)
	if h == nil {
		return 1
	}
	return s.speed(h, toolchain)
}

// shown returns the learned speed with any toolchain, for display; 0 = none. As in decisions, a
// few jobs weigh little against what is usual, so that similar hosts look similar.
func (s *Scheduler) shown(h *host) float64 {
	if h.learned.speed.weight == 0 {
		return 0
	}
	return h.learned.speed.with(s.typical.speed.with(1))
}

// Depth returns how many jobs to have at addr, or on the way there, beyond those that its cores
// run, so that a core whose job has ended finds the next one. That is as many as end while one
// travels, but no more than there are cores, and none where the path is short.
func (s *Scheduler) Depth(addr string) int {
	h := s.hosts[addr]
	if h == nil {
		return 0
	}
	return h.deep
}

// shortWay is the fraction of a compile's time that a core may idle between two compiles.
const shortWay = 0.02

// deepen recomputes deep.
func (h *host) deepen() {
	way := h.link.RTT + h.moves(uint64(h.bytes.or(0)))
	part := way.Seconds() / max(h.mean().Seconds(), 1e-3)
	h.deep = 0
	if part >= shortWay {
		h.deep = int(math.Ceil(float64(h.cores()) * min(part, 1)))
	}
}
