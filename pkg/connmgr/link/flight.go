package link

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
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

// end tells whoever waits for f: err says why there is no Result, if there is none.
func (f *Flight) end(err error) {
	if f.Err = err; err != nil {
		f.Result = nil
	}
	close(f.done)
}
