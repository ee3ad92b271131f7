package lend

import (
	"fmt"
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

const (
	// MemoryFloor is what a host keeps for itself, in bytes.
	MemoryFloor = 64 << 20
	// memoryWait is how long a job waits for memory before another host is to try.
	memoryWait = 5 * time.Second
	// growTime is how long a compile of unknown length takes to have its memory.
	growTime = 2 * time.Second
	// freshMemory is how old a look at the memory may be that decides about a job.
	freshMemory = 50 * time.Millisecond
	// tightMemory: some process waited for memory for a fifth of the last ten seconds.
	tightMemory = 2000
)

// memory is what is known of the host's.
type memory struct {
	free     uint64 // bytes; 0: not known
	pressure uint16 // as of job.Pressure
	at       time.Time
	meanRSS  float64 // of compiles, in bytes: an average in which the last ones count most

	// droppable is how many bytes of contents could be dropped when it was last asked for.
	droppable   int64
	droppableAt time.Time
}

// noMemory is what is known of a host that has told nothing.
var noMemory = memory{pressure: job.NoPressure}

// Tight reports whether programs wait for memory at that pressure (job.Pressure).
func Tight(pressure uint16) bool { return pressure != job.NoPressure && pressure > tightMemory }

// SetMemory tells what the host has: free bytes, 0 = not known, and its pressure in hundredths of
// a percent (job.Pressure).
func (l *Ledger) SetMemory(free uint64, pressure uint16) {
	l.memory.free, l.memory.pressure = free, pressure
}

// Looked is the answer to Look, and to Drop where that made room: free bytes, 0 = not known.
func (l *Ledger) Looked(free uint64, now time.Time) { l.memory.free, l.memory.at = free, now }

// Kept is the answer to Drop where it made none: no more than so many bytes can be dropped.
func (l *Ledger) Kept(bytes int64, now time.Time) {
	l.memory.droppable, l.memory.droppableAt = bytes, now
}

// roomFor returns why there is no memory for j beside what runs, which may still
// have to grow to what is expected of it; nil: there is. What a job takes is at best a guess, and its
// client's word on it may be a lie: so beside others none starts while the host is short
// of memory, whatever is expected. Unless first is Idle it has to be done before that is known.
func (l *Ledger) roomFor(j *Job, now time.Time) (no *job.Refusal, first Turn) {
	m := &l.memory
	if now.Sub(m.at) > freshMemory {
		return nil, Turn{Act: Look}
	}
	if len(l.running) > 0 && Tight(m.pressure) {
		return noRoom("the host is short of memory beside %d jobs", len(l.running)), Turn{}
	}
	if m.free == 0 {
		return nil, Turn{} // not known here
	}
	need := l.expected(j)
	if need == 0 && len(l.running) == 0 {
		return nil, Turn{}
	}
	short := int64(math.Ceil(float64(need) + l.growth(now) + MemoryFloor - float64(m.free)))
	if short <= 0 {
		return nil, Turn{}
	}
	// Contents are others' as well: the word of a client that was never borne out moves none.
	if borneOut := float64(need) <= 2*j.client.tenant.meanRSS; borneOut && (short <= m.droppable || !m.droppableAt.Equal(now)) {
		return nil, Turn{Act: Drop, Bytes: short}
	}
	return noRoom("%d bytes of memory expected, %d free beside %d jobs", need, m.free, len(l.running)), Turn{}
}

func noRoom(format string, args ...any) *job.Refusal {
	return &job.Refusal{Cause: job.CauseMemory, Detail: fmt.Sprintf(format, args...)}
}

// growth returns how many bytes the jobs that run are still going to take.
func (l *Ledger) growth(now time.Time) (bytes float64) {
	for _, r := range l.running {
		takes := growTime
		if r.Expect > 0 {
			takes = r.Expect
		}
		bytes += float64(l.expected(r)) * max(0, 1-now.Sub(r.started).Seconds()/takes.Seconds())
	}
	return bytes
}

// expected returns how many bytes a job is expected to take. The client's word counts as
// far as earlier jobs of its tenant have borne it out; without a word it is what they
// took, or anybody's where it has had none. 0: nothing is known.
func (l *Ledger) expected(j *Job) uint64 {
	t, said := j.client.tenant, float64(j.Memory)
	usual := t.meanRSS
	if usual == 0 {
		usual = l.memory.meanRSS
	}
	if said == 0 {
		return uint64(usual)
	}
	return uint64(max(said, min(said*t.excess, 2*usual, math.MaxInt64)))
}

// Learn takes what a job took that has run: rss in bytes, or 0 if not known.
func (l *Ledger) Learn(j *Job, took time.Duration, rss uint64) {
	j.client.tenant.learn(took, j.Memory, rss)
	if rss > 0 {
		l.memory.meanRSS += (float64(rss) - l.memory.meanRSS) / 8
	}
}

// learn takes what a compile of the tenant's took, and what its client had said: bytes, 0: nothing.
func (t *Tenant) learn(took time.Duration, said, rss uint64) {
	t.meanWall += (took - t.meanWall) / 8
	if rss == 0 {
		return
	}
	by := 8.0
	if float64(rss) > t.meanRSS {
		by = 2 // what is large counts at once
	}
	t.meanRSS += (float64(rss) - t.meanRSS) / by
	if said > 0 {
		x := max(1, float64(rss)/float64(said))
		if by = 8.0; x > t.excess {
			by = 2
		}
		t.excess += (x - t.excess) / by
	}
}
