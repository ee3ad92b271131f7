package link

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Flight is one job on one link, from its first Write until the daemon can access neither its source nor its
// sink any more. Then Done is closed, and the caller of Start may end both registrations.
type Flight struct {
	// set before Start and not changed afterwards
	ID           uint64
	Credit       job.Credit
	Source, Sink iwarp.MR
	Msg          []byte // the encoded Job
	Total        uint64 // bytes of the source
	Length       uint64 // of these, bytes to send: all, or 0 if the daemon fetches the source
	Eager        bool   // Msg carries the source, and lies at At of Source
	At           uint64
	Build        uint64 // the build it belongs to, as in scheduler.Job.Build
	Fetch        uint64 // the longest result that the daemon may offer in a window, in bytes
	Posted       func() // called with the link's lock held once the Job is posted; may be nil

	// The outcome, valid once Done is closed. Result is nil if the link ended first, with the cause in Err, or
	// if the flight was cancelled before its Job was sent (ErrCancelled).
	Result                 *job.Result
	Err                    error
	Began, Wrote, Answered time.Time // when it was started; all written; answered

	done chan struct{}

	// guarded by Link.mu until done is closed
	off       uint64 // bytes posted
	leg       purse.Leg
	sizes     [chunksPosted]uint64 // of the Writes posted and not completed, in bytes
	cancelled time.Time
}

// ErrCancelled is the error of a flight that was cancelled before its Job was sent.
var ErrCancelled = errors.New("cancelled")

// Done returns a channel that is closed when the flight has ended; nil before Start.
func (f *Flight) Done() <-chan struct{} { return f.done }

// end closes Done. A non-nil err is the reason for a missing Result.
func (f *Flight) end(err error) {
	if f.Err = err; err != nil {
		f.Result = nil
	}
	close(f.done)
}
