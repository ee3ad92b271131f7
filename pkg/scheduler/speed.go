package scheduler

import (
	"math"
	"time"
)

// mean of a positive quantity: of its logarithms, so that half and double weigh
// the same. Newer samples count for more.
type mean struct {
	log, weight float64
}

// add counts v with weight w, against at most limit of what came before.
func (m *mean) add(v, w, limit float64) {
	m.weight = min(m.weight, limit) + w
	m.log += (math.Log(v) - m.log) * w / m.weight
}

// value is the mean together with a prior that weighs as much as said.
func (m *mean) value(prior, weight float64) float64 {
	switch {
	case m.weight == 0:
		return prior
	case weight == 0:
		return math.Exp(m.log)
	}
	return math.Exp((m.log*m.weight + math.Log(prior)*weight) / (m.weight + weight))
}

// What is learned of a host from the jobs that it ran.
type learned struct {
	speed  mean               // beside a core of speed 1
	speeds map[[16]byte]*mean // the same, of one toolchain
	time   mean               // of a compile there, seconds
	bytes  mean               // moved for one
}

// What is learned of jobs, for those that nobody can tell anything of.
type typical struct {
	time mean // of a core of speed 1, seconds
	rate mean // bytes of source in such a second
}

// Samples that a mean remembers, and what a prior weighs beside them.
const (
	memory   = 30
	doubtful = 0.2 // weight of a sample of a job whose time was guessed
	priorOf  = 0.5
)

// aJob is what a job takes that nobody can tell anything of.
const aJob = time.Second

// learn takes what a job reported that has ended well. Contention is left out: CPU
// time tells of the machine, wall time of its neighbours too.
func (s *Scheduler) learn(h *host, x *run, r Report) {
	if r.CPU <= 0 || r.Failed {
		return
	}
	j := x.job
	w := 1.0
	if !j.Cost.Known {
		w = doubtful
	}
	v := float64(s.time(j)) / float64(r.CPU)
	v = min(max(v, 1./64), 64) // the prediction may be of another source
	h.learned.speed.add(v, w, memory)
	t := h.speeds[j.Toolchain]
	if t == nil {
		if h.speeds == nil {
			h.speeds = make(map[[16]byte]*mean)
		}
		t = new(mean)
		h.speeds[j.Toolchain] = t
	}
	t.add(v, w, memory)
	h.time.add(max(r.Wall, r.CPU).Seconds(), 1, memory)
	if n := max(r.Bytes, j.Bytes); n > 0 {
		h.bytes.add(float64(n), 1, memory)
	}
	one := r.CPU.Seconds() * h.speedWith(j.Toolchain)
	s.typical.time.add(one, 1, memory)
	if j.Size > 0 {
		s.typical.rate.add(float64(j.Size)/one, 1, memory)
	}
}

// time that a core of speed 1 takes for j: as predicted, else by its size and what
// jobs took so far.
func (s *Scheduler) time(j *Job) time.Duration {
	switch {
	case j.Cost.Time > 0:
		return j.Cost.Time
	case j.Size > 0 && s.typical.rate.weight > 0:
		return seconds(float64(j.Size) / s.typical.rate.value(1, 0))
	case s.typical.time.weight > 0:
		return seconds(s.typical.time.value(1, 0))
	}
	return aJob
}

// speedWith is how fast h is with a toolchain: what its jobs took, with what it
// says of itself, or what is known of it with any toolchain, as a prior.
func (h *host) speedWith(toolchain [16]byte) float64 {
	prior := h.learned.speed.value(1, priorOf)
	if v := h.capacity.Speed[toolchain]; v > 0 {
		prior = v
	}
	if t := h.speeds[toolchain]; t != nil {
		return t.value(prior, priorOf)
	}
	return prior
}

// Speed of addr with a toolchain, beside a core of speed 1: by this, what is
// measured there becomes what history keeps. 1 while nothing is known.
func (s *Scheduler) Speed(addr string, toolchain [16]byte) float64 {
	h := s.host(addr)
	if h == nil {
		return 1
	}
	return h.speedWith(toolchain)
}

// known is the learned speed with any toolchain, 0 = none.
func (h *host) known() float64 { return h.learned.speed.value(0, 0) }

// way is how long it takes until n bytes are at h and the host's answer is back.
func (h *host) way(n uint64) time.Duration {
	d := h.link.RTT
	if h.link.Rate > 0 {
		d += seconds(float64(n) / h.link.Rate)
	}
	return d
}

func seconds(x float64) time.Duration {
	return time.Duration(min(x, 1e6) * float64(time.Second))
}

// Depth is how many jobs to have at addr, or on the way there, beyond those that
// its cores run, so that a core whose job has ended finds the next one: as many as
// end while one travels, at most as many as there are cores; none where the way is
// short.
func (s *Scheduler) Depth(addr string) int {
	h := s.hosts[addr]
	if h == nil {
		return 0
	}
	return h.depth()
}

// shortWay is the part of a compile's time that a core may idle between two.
const shortWay = 0.02

func (h *host) depth() int {
	part := h.way(uint64(h.bytes.value(0, 0))).Seconds() / max(h.time.value(aJob.Seconds(), 0), 1e-3)
	if part < shortWay {
		return 0
	}
	cores := float64(max(h.capacity.Jobs, 1))
	return int(math.Ceil(cores * min(part, 1)))
}
