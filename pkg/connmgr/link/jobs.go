package link

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Start sends the job f. Its Done channel is closed in any case, at the latest when the link has ended.
func (l *Link) Start(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Began, f.done = time.Now(), make(chan struct{})
	if l.ended { // after the scheduler chose the host
		f.end(l.cause)
		return
	}
	l.flights[f.ID] = f
	if f.Length == 0 {
		l.jobLocked(f)
		return
	}
	l.turns.again(f)
	l.postLocked()
}

// jobLocked posts f's Job, behind its last Write if it has any.
func (l *Link) jobLocked(f *Flight) {
	if err := l.postRecvLocked(); err != nil { // for the Result, before anything can cause it
		l.failLocked(err)
		return
	}
	f.leg.Send()
	// Unsignaled: its place on the SQ is known to be free when a later Write has completed.
	wr := iwarp.SendWR{ID: wrOther, Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: f.Msg}
	if f.Eager { // then it counts as the flight's only Write
		wr = iwarp.SendWR{ID: wrWrite | f.ID, Op: iwarp.OpSend,
			SGL: []iwarp.SGE{{Addr: f.At, Length: uint32(len(f.Msg)), LKey: f.Source.STag()}}}
		l.wroteOutLocked(f, f.Length)
	}
	if inv := l.ends(&f.Credit); inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	if err := l.qp.PostSend(&wr); err != nil {
		l.failLocked(fmt.Errorf("post a job: %w", err))
	}
	if f.Posted != nil {
		f.Posted()
	}
}

// unspentLocked ends f, which was cancelled before its Job was sent. Nothing ran, so it returns f's credit.
func (l *Link) unspentLocked(f *Flight) {
	l.sendLocked(&job.Return{Credit: f.Credit.ID}, l.ends(&f.Credit))
	delete(l.flights, f.ID)
	f.end(ErrCancelled)
}

// result handles the answer to a job, which came in receive buffer i. It must have invalidated that job's
// sink; anything else ends the link.
func (l *Link) result(i int, r *job.Result, inv iwarp.STag) {
	l.mu.Lock()
	l.spare = append(l.spare, i)
	f := l.flights[r.ID]
	if f == nil || !f.leg.Due() || inv != f.Sink.STag() {
		l.failLocked(fmt.Errorf("daemon answered job %d, which it was not asked", r.ID))
		l.mu.Unlock()
		return
	}
	if w := r.Window; w.STag != 0 {
		if r.Status != job.StatusRan || w.Len == 0 || w.Len > f.Fetch {
			l.failLocked(fmt.Errorf("daemon offers a window of %d bytes for job %d, which does not want it", w.Len, r.ID))
			l.mu.Unlock()
			return
		}
		l.offers++
	}
	f.Result = r
	f.Answered = time.Now()
	l.setViewLocked(r.Load, FromResult)
	l.goOnLocked(f, f.leg.Answer())
	l.mu.Unlock()
	out := uint64(0)
	if f.Length == 0 { // the daemon fetched it
		out = f.Total
	}
	l.owner.Answered(l, r.Load, out, r.Next)
}

// goOnLocked does what f's leg says.
func (l *Link) goOnLocked(f *Flight, then purse.Then) {
	switch then {
	case purse.Nothing:
	case purse.Ask:
		l.cancels.Add(f.ID)
		l.sendCancelLocked()
	case purse.Hold:
		l.turns.drop(f)
	case purse.GiveBack:
		l.turns.drop(f)
		l.unspentLocked(f)
	case purse.Land: // serve closes its Done, once the owner has been told all that came with the answer
		delete(l.flights, f.ID)
		l.landed = append(l.landed, f)
	}
}

// Cancel asks the daemon to end f. The caller still waits for Done: a Result comes unless the Job was not
// sent yet or the link ends. f may have ended already.
func (l *Link) Cancel(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights[f.ID] != f {
		return
	}
	if f.cancelled.IsZero() {
		f.cancelled = time.Now()
	}
	l.goOnLocked(f, f.leg.Cancel())
}

// sendCancelLocked sends the waiting cancellations if the last Cancel has been acknowledged.
func (l *Link) sendCancelLocked() {
	if m := l.cancels.Next(); m != nil {
		l.sendLocked(m, 0)
	}
}
