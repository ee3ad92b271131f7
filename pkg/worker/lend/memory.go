package lend

import (
	"fmt"
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

const (
	// MemoryFloor is how much memory a host keeps for itself, in bytes.
	MemoryFloor = 64 << 20
	// memoryWait is how long a job waits for memory before it is refused, so that another host can try.
	memoryWait = 5 * time.Second
	// growTime is how long a compile of unknown length takes to reach its full memory.
	growTime = 2 * time.Second
	// freshMemory is how old the figure of free memory may be when it decides about a job.
	freshMemory = 50 * time.Millisecond
	// tightMemory is a pressure in hundredths of a percent: some process waited for memory for a fifth of the
	// last ten seconds.
	tightMemory = 2000
)

// memory is what is known about the host's memory.
type memory struct {
	free     uint64 // bytes; 0: not known
	pressure uint16 // see job.Pressure
	at       time.Time
	meanRSS  float64 // of compiles, in bytes: a moving average

	// droppable is how many bytes of contents can be dropped at most, as of droppableAt.
	droppable   int64
	droppableAt time.Time
}

// noMemory is the memory of a host about which nothing is known yet.
var noMemory = memory{pressure: job.NoPressure}

// Tight reports whether programs wait for memory at that pressure (job.Pressure).
func Tight(pressure uint16) bool { return pressure != job.NoPressure && pressure > tightMemory }

// SetMemory sets the host's free memory in bytes, 0 = not known, and its memory pressure in hundredths of a
// percent (job.Pressure).
func (l *Ledger) SetMemory(free uint64, pressure uint16) {
	l.memory.free, l.memory.pressure = free, pressure
}

// Looked answers Look, and Drop if that made room. free is the free memory in bytes, 0 = not known.
func (l *Ledger) Looked(free uint64, now time.Time) { l.memory.free, l.memory.at = free, now }

// Kept answers Drop if that made no room: at most that many bytes can be dropped.
func (l *Ledger) Kept(bytes int64, now time.Time) {
	l.memory.droppable, l.memory.droppableAt = bytes, now
}

// roomFor returns why there is no memory for j in addition to the running jobs, which may still grow to what
// they are expected to take; nil means that there is memory. What a job will take is a guess at best, and
// what its client says may be a lie. So while the host is short of memory, no job starts next to others,
// whatever is expected of it. If first is not Idle, the caller has to do that before it is known.
func (l *Ledger) roomFor(j *Job, now time.Time) (no *job.Refusal, first Turn) {
	m := &l.memory
	if now.Sub(m.at) > freshMemory {
		return nil, Turn{Act: Look}
	}
	if len(l.running) > 0 && Tight(m.pressure) {
		return noRoom("the host is short of memory beside %d jobs", len(l.running)), Turn{}
	}
	if m.free == 0 {
		return nil, Turn{} // this system does not tell
	}
	need := l.expected(j)
	if need == 0 && len(l.running) == 0 {
		return nil, Turn{}
	}
	short := int64(math.Ceil(float64(need) + l.growth(now) + MemoryFloor - float64(m.free)))
	if short <= 0 {
		return nil, Turn{}
	}
	// Other tenants need the contents too: what a client says causes none to be dropped, unless its tenant's
	// earlier jobs have borne it out.
	if borneOut := float64(need) <= 2*j.client.tenant.meanRSS; borneOut && (short <= m.droppable || !m.droppableAt.Equal(now)) {
		return nil, Turn{Act: Drop, Bytes: short}
	}
	return noRoom("%d bytes of memory expected, %d free beside %d jobs", need, m.free, len(l.running)), Turn{}
}

// noRoom returns a refusal for want of memory.
func noRoom(format string, args ...any) *job.Refusal {
	return &job.Refusal{Cause: job.CauseMemory, Detail: fmt.Sprintf(format, args...)}
}

// growth returns how many more bytes the running jobs are expected to take.
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

// expected returns how many bytes a job is expected to take. What the client says counts as far as earlier
// jobs of its tenant have borne it out. If it says nothing, expected returns the average of the tenant's
// jobs, or of all jobs if the tenant has had none, or 0 if nothing is known.
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

// Learn records what a job that has run took. rss is in bytes, 0 if not known.
func (l *Ledger) Learn(j *Job, took time.Duration, rss uint64) {
	j.client.tenant.learn(took, j.Memory, rss)
	if rss > 0 {
		l.memory.meanRSS += (float64(rss) - l.memory.meanRSS) / 8
	}
}

// learn records what a compile of the tenant took. rss, 0 if not known, and said, what its client had said or
// 0, are in bytes.
func (t *Tenant) learn(took time.Duration, said, rss uint64) {
	t.meanWall += (took - t.meanWall) / 8
	if rss == 0 {
		return
	}
	by := 8.0
	if float64(rss) > t.meanRSS {
		by = 2 // larger values count sooner
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
