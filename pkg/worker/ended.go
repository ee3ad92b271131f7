package worker

import (
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Outcomes of jobs, in the words of rdistccd_jobs_total. A job that failed on the host has its cause instead.
const (
	OutcomeOK      = resultOK
	OutcomeRefused = resultRefused
	OutcomeSignal  = resultSignal
	OutcomeFailed  = resultFailed
	OutcomeJoined  = resultJoined
)

// EndedJob is a job that the server has answered.
type EndedJob struct {
	N       uint64 // counts answered jobs, from 1
	Client  string // the name that its manager gives itself
	Source  string // the end of its name; empty: it was not read
	Place   int    // that it ran in, from 1; 0: it had none
	Queued  time.Time
	Started time.Time // zero: it had no place
	Ended   time.Time
	Outcome string // OutcomeOK and so on
	Exit    uint8
	Detail  string // of a job that was refused or failed on the host
}

// Bounds of what is remembered of ended jobs.
const (
	maxEnded  = 1024
	maxSource = 120 // bytes
)

// endedJobs remembers the last jobs. It always does, so that a page shows what was before it was opened; this costs a job
// some hundred nanoseconds (BenchmarkEnded) and has no goroutine. It is safe for concurrent use.
type endedJobs struct {
	mu   sync.Mutex
	n    uint64
	ring []EndedJob // at most maxEnded; job n is at (n-1) % maxEnded
}

// add remembers a task with its answer. Strings are copied: those of a task lie in all that it has brought.
func (e *endedJobs) add(t *task, r *job.Result) {
	source := t.source[max(0, len(t.source)-maxSource):]
	j := EndedJob{Client: t.c.name, Source: strings.Clone(source), Queued: t.queued, Ended: time.Now(), Outcome: outcome(r), Exit: r.Exit}
	if j.Started = t.started; !t.started.IsZero() {
		j.Place = t.place // its runner or a goroutine after it calls this
	}
	if r.Status != job.StatusRan {
		j.Detail = strings.Clone(job.Clip(r.Detail, maxSource))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	if j.N = e.n; len(e.ring) < maxEnded {
		e.ring = append(e.ring, j)
	} else {
		e.ring[(e.n-1)%maxEnded] = j
	}
}

// EachEnded calls see for each job that was answered after the first from ones, as far as the server remembers them, in
// order, and returns what continues where it ends. see must be quick and must not keep the pointer.
func (s *Server) EachEnded(from uint64, see func(*EndedJob)) (next uint64) {
	e := &s.ended
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := max(from, e.n-uint64(len(e.ring))); i < e.n; i++ {
		see(&e.ring[i%maxEnded])
	}
	return e.n
}
