package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Flight is one job on one link, from its first Write until the daemon can touch
// neither its source nor its sink any more. Then Done is closed and whoever started it
// may end both registrations.
type Flight struct {
	// set before Start, and not changed from then on
	ID           uint64
	Credit       job.Credit
	Source, Sink iwarp.MR
	Msg          []byte // the encoded Job
	Total        uint64 // bytes of the source
	Length       uint64 // of these, to be written: all, or none as the daemon fetches them
	Build        uint64 // whose job it is, as Job.Build of the scheduler's
	Fetch        uint64 // bytes of a result that it may offer
	Posted       func() // called with the link's lock held once the Job is posted; nil: nothing is

	// What it came to: set once Done is closed. Result is nil if the link ended first,
	// for Err, or if it was cancelled before its Job was sent (ErrCancelled).
	Result                 *job.Result
	Err                    error
	Began, Wrote, Answered time.Time // put on its way; all of it written; answered

	done chan struct{}

	// guarded by Link.mu until done is closed
	off       uint64               // bytes posted
	writes    int                  // Writes posted and not completed
	sizes     [chunksPosted]uint64 // of these, in bytes
	sent      bool                 // the Job is posted: a Result is due
	cancelled time.Time
}

// ErrCancelled is why a flight came to nothing that was cancelled before its Job was sent.
var ErrCancelled = errors.New("cancelled")

// Done is closed when the flight has ended; nil before Start.
func (f *Flight) Done() <-chan struct{} { return f.done }

// Start puts f on its way. Its Done is closed without fail, at the latest when the link has
// ended.
func (l *Link) Start(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Began, f.done = time.Now(), make(chan struct{})
	if l.ended { // between the scheduler's word and now
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
	f.sent = true
	// Unsignaled: its place on the SQ is known to be free when a later Write is done.
	err := l.qp.PostSend(&iwarp.SendWR{
		ID: wrOther, Op: iwarp.OpSendInv, Flags: iwarp.Inline | iwarp.Unsignaled,
		Data: f.Msg, InvSTag: iwarp.STag(f.Credit.Slot.STag),
	})
	if err != nil {
		l.failLocked(fmt.Errorf("post a job: %w", err))
	}
	if f.Posted != nil {
		f.Posted()
	}
}

// unspentLocked ends f, which was cancelled before its Job was sent, once the Writes
// that were posted are done: nothing ran, and its credit goes back.
func (l *Link) unspentLocked(f *Flight) {
	if f.writes > 0 {
		return
	}
	l.sendLocked(&job.Return{Credit: f.Credit.ID}, f.Credit.Slot.STag)
	delete(l.flights, f.ID)
	f.end(ErrCancelled)
}

// result takes a job's answer, which came in receive buffer i and must have shut the job's own sink.
func (l *Link) result(i int, r *job.Result, inv iwarp.STag) {
	l.mu.Lock()
	l.spare = append(l.spare, i)
	f := l.flights[r.ID]
	if f == nil || !f.sent || f.Result != nil || inv != f.Sink.STag() {
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
	l.landLocked(f)
	l.mu.Unlock()
	out := uint64(0)
	if f.Length == 0 { // no Write of ours has brought it
		out = f.Total
	}
	l.owner.Answered(l, r.Load, out, r.Next)
}

// landLocked ends f when it is answered and its source is not read any more: the
// completion of a Write may be polled after the answer to what it carried. Whoever waits
// for it is told by serve, once the owner has been told all that came with it.
func (l *Link) landLocked(f *Flight) {
	if f.Result == nil || f.writes > 0 {
		return
	}
	delete(l.flights, f.ID)
	l.landed = append(l.landed, f)
}

// end tells whoever waits for f: err says why there is no Result, if there is none.
func (f *Flight) end(err error) {
	if f.Err = err; err != nil {
		f.Result = nil
	}
	close(f.done)
}

// Cancel asks for the end of f, which is still to be waited for: its Result is due, except
// when nothing was started yet, or the link ends. It may have ended already.
func (l *Link) Cancel(f *Flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights[f.ID] != f || !f.cancelled.IsZero() {
		return
	}
	f.cancelled = time.Now()
	if !f.sent {
		l.turns.drop(f)
		l.unspentLocked(f)
		return
	}
	l.cancels = append(l.cancels, f.ID)
	l.sendCancelLocked()
}

// sendCancelLocked sends the waiting cancellations once the last were acknowledged.
func (l *Link) sendCancelLocked() {
	if l.cancelSeq != l.cancelAcked || len(l.cancels) == 0 {
		return
	}
	n := min(len(l.cancels), job.MaxCancels)
	l.cancelSeq++
	l.sendLocked(&job.Cancel{Seq: l.cancelSeq, Jobs: l.cancels[:n]}, 0)
	l.cancels = append(l.cancels[:0], l.cancels[n:]...)
}
