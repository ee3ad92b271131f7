package connmgr

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// flight is one job on one link, from its first Write until the daemon can touch
// neither its source nor its sink any more. Then done is closed and the owner
// may end both registrations.
type flight struct {
	// set once before startLocked
	id        uint64
	credit    job.Credit
	src, sink iwarp.MR
	msg       []byte // the encoded Job
	total     uint64 // bytes of the source
	length    uint64 // of these, to be written: all, or none as the daemon fetches them
	build     uint64 // whose job it is, as Job.Build of the scheduler's
	fetch     uint64 // bytes of a result that it may offer
	done      chan struct{}

	// guarded by Manager.mu until done is closed
	off       uint64               // bytes posted
	writes    int                  // Writes posted and not completed
	sizes     [chunksPosted]uint64 // of these, in bytes
	sent      bool                 // the Job is posted: a Result is due
	cancelled time.Time
	result    *job.Result // set by its arrival
	err       error       // set when the link ended first

	began, wrote, answered time.Time
	fetched                time.Time // a result that was offered; the owner's
}

// startLocked puts f on its way.
func (l *link) startLocked(f *flight) {
	f.began = time.Now()
	if l.ended { // between the scheduler's word and now
		f.endLocked(nil, l.cause)
		return
	}
	l.flights[f.id] = f
	if f.length == 0 {
		l.jobLocked(f)
		return
	}
	l.turns.again(f)
	l.postLocked()
	l.h.growLocked(f.began)
}

// jobLocked posts f's Job, behind its last Write if it has any.
func (l *link) jobLocked(f *flight) {
	if err := l.postRecvLocked(); err != nil { // for the Result, before anything can cause it
		l.failLocked(err)
		return
	}
	f.sent = true
	// Unsignaled: its place on the SQ is known to be free when a later Write is done.
	err := l.qp.PostSend(&iwarp.SendWR{
		ID: wrOther, Op: iwarp.OpSendInv, Flags: iwarp.Inline | iwarp.Unsignaled,
		Data: f.msg, InvSTag: iwarp.STag(f.credit.Slot.STag),
	})
	if err != nil {
		l.failLocked(fmt.Errorf("post a job: %w", err))
	}
}

// unspentLocked ends f, which was cancelled before its Job was sent, once the Writes
// that were posted are done: nothing ran, and its credit goes back.
func (l *link) unspentLocked(f *flight) {
	if f.writes > 0 {
		return
	}
	l.sendLocked(&job.Return{Credit: f.credit.ID}, f.credit.Slot.STag)
	delete(l.flights, f.id)
	f.endLocked(nil, errCancelled)
}

// resultLocked takes a job's answer, which must have shut the job's own sink.
func (l *link) resultLocked(r *job.Result, inv iwarp.STag) {
	f := l.flights[r.ID]
	if f == nil || !f.sent || f.result != nil || inv != f.sink.STag() {
		l.failLocked(fmt.Errorf("daemon answered job %d, which it was not asked", r.ID))
		return
	}
	if w := r.Window; w.STag != 0 {
		if r.Status != job.StatusRan || w.Len == 0 || w.Len > f.fetch {
			l.failLocked(fmt.Errorf("daemon offers a window of %d bytes for job %d, which does not want it", w.Len, r.ID))
			return
		}
		l.offers++
	}
	f.result = r
	f.answered = time.Now()
	if f.length == 0 {
		l.h.bytesLocked(f.total, 0)
	}
	l.setViewLocked(r.Load, fromResult)
	l.landLocked(f)
	if r.Next != nil {
		l.addCreditLocked(*r.Next)
	}
}

// landLocked ends f when it is answered and its source is not read any more: the
// completion of a Write may be polled after the answer to what it carried.
func (l *link) landLocked(f *flight) {
	if f.result == nil || f.writes > 0 {
		return
	}
	delete(l.flights, f.id)
	l.landed = l.landed || f.result.Window.STag == 0
	f.endLocked(f.result, nil)
}

func (f *flight) endLocked(r *job.Result, err error) {
	f.result, f.err = r, err
	close(f.done)
}

// cancelLocked asks for the end of f. Its Result is still due, except when
// nothing was started yet.
func (l *link) cancelLocked(f *flight) {
	if l.flights[f.id] != f || !f.cancelled.IsZero() {
		return
	}
	f.cancelled = time.Now()
	if !f.sent {
		l.turns.drop(f)
		l.unspentLocked(f)
		return
	}
	l.cancels = append(l.cancels, f.id)
	l.sendCancelLocked()
}

// sendCancelLocked sends the waiting cancellations once the last were acknowledged.
func (l *link) sendCancelLocked() {
	if l.cancelSeq != l.cancelAcked || len(l.cancels) == 0 {
		return
	}
	n := min(len(l.cancels), job.MaxCancels)
	l.cancelSeq++
	l.sendLocked(&job.Cancel{Seq: l.cancelSeq, Jobs: l.cancels[:n]}, 0)
	l.cancels = append(l.cancels[:0], l.cancels[n:]...)
}
