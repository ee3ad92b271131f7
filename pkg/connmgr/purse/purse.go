// Package purse is the manager's end of the credits of one connection: which of them are unspent (Purse), whether the
// credit of a job that is under way is spent, and what becomes of it when the job is cancelled (Leg, Cancels).
//
// It does no I/O, starts no goroutine and reads no clock, so that internal/test/suite/credits can explore every order of
// events between it and a daemon's pkg/worker/lend. It has no lock: package farm guards its purses, and package link its
// legs.
package purse

import "github.com/rdistcc/rdistcc/internal/job"

// Purse holds the unspent credits of one connection.
type Purse struct{ credits []job.Credit } // the last one is used next

// Len returns how many credits there are.
func (p *Purse) Len() int { return len(p.credits) }

// Put adds a credit that was granted, or was taken and not spent.
func (p *Purse) Put(k job.Credit) { p.credits = append(p.credits, k) }

// Take removes and returns the next credit; there must be one.
func (p *Purse) Take() job.Credit {
	last := len(p.credits) - 1
	k := p.credits[last]
	p.credits = p.credits[:last]
	return k
}

// Leg is where a job stands on its way over one connection: its source is written, its Job sent, its Result received.
// The zero Leg is a job that has just begun, with a credit taken from the connection's Purse.
type Leg struct {
	writes    int  // Writes posted and not completed
	sent      bool // the Job is posted: the credit is spent, and a Result is due
	answered  bool
	cancelled bool
}

// Then is what a Leg's owner has to do next.
type Then uint8

// Thens.
const (
	Nothing  Then = iota
	Ask           // ask the daemon to end the job; a Result comes all the same
	Hold          // write no more of the source: once the posted Writes have completed, its credit goes back
	GiveBack      // return the credit, which was not spent: the job is over
	Land          // the job is over, with its Result
)

// Writes returns how many Writes are posted and not completed.
func (g *Leg) Writes() int { return g.writes }

// Sent reports whether the Job is posted.
func (g *Leg) Sent() bool { return g.sent }

// Write records that a Write is posted.
func (g *Leg) Write() { g.writes++ }

// Send records that the Job is posted, which spends the credit.
func (g *Leg) Send() { g.sent = true }

// Written records that a Write has completed. The completion may be polled after the answer to what it carried.
func (g *Leg) Written() Then {
	g.writes--
	switch {
	case g.writes > 0:
	case g.cancelled && !g.sent:
		return GiveBack
	case g.answered:
		return Land
	}
	return Nothing
}

// Due reports whether a Result is due: the daemon was sent the job, and has not answered it.
func (g *Leg) Due() bool { return g.sent && !g.answered }

// Answer records the Result, which must be due.
func (g *Leg) Answer() Then {
	g.answered = true
	if g.writes > 0 {
		return Nothing // the source is still being read
	}
	return Land
}

// Cancel records that the job is no longer wanted. Only the first call has an effect.
func (g *Leg) Cancel() Then {
	first := !g.cancelled
	g.cancelled = true
	switch {
	case !first:
		return Nothing
	case g.sent:
		return Ask
	case g.writes > 0:
		return Hold
	}
	return GiveBack
}

// Cancels are the jobs that a daemon is to be asked to end. One Cancel may be under way at a time.
type Cancels struct {
	jobs       []uint64 // wait for the Ack of the last Cancel
	seq, acked uint32
}

// Add adds a job.
func (c *Cancels) Add(id uint64) { c.jobs = append(c.jobs, id) }

// Acked records that the daemon has acknowledged a Cancel.
func (c *Cancels) Acked(seq uint32) { c.acked = seq }

// Next returns the next Cancel, or nil if none is due.
func (c *Cancels) Next() *job.Cancel {
	n := min(len(c.jobs), job.MaxCancels)
	if n == 0 || c.seq != c.acked {
		return nil
	}
	c.seq++
	m := &job.Cancel{Seq: c.seq, Jobs: append([]uint64(nil), c.jobs[:n]...)}
	c.jobs = append(c.jobs[:0], c.jobs[n:]...)
	return m
}
