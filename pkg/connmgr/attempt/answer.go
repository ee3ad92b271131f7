package attempt

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Answer returns the result of a successful attempt, as the wrapper gets it. n is the number of the attempt.
func (a *Attempt) Answer(n uint8) *ipc.Result {
	fl := a.fl
	r := fl.Result
	out := &ipc.Result{
		Host: a.Host.Addr, Exit: r.Exit, Signal: r.Signal,
		Stdout: ipc.Segment(r.Stdout), Stderr: ipc.Segment(r.Stderr),
		CreditUS:  microseconds(fl.Began.Sub(a.asked)),
		QueueUS:   r.Queue,
		CompileUS: r.Wall,
		BytesOut:  fl.Total,
		BytesIn:   resultBytes(r),
		SentFiles: a.sent,
		Attempts:  n,
	}
	for i := range r.Files {
		out.Files = append(out.Files, ipc.File{Index: r.Files[i].Index, Segment: ipc.Segment(r.Files[i].Segment)})
	}
	// The answer can be here before the completion of the Write that it answers.
	wrote, answered := fl.Wrote, fl.Answered
	if fl.Length == 0 {
		wrote = fl.Began // the daemon has fetched the source, which it counts as queueing
	}
	if answered.Before(wrote) {
		wrote = answered
	}
	if !a.fetched.IsZero() {
		answered = a.fetched
	}
	out.WriteUS = microseconds(wrote.Sub(fl.Began))
	out.ReturnUS = microseconds(answered.Sub(wrote) - time.Duration(r.Queue)*time.Microsecond - time.Duration(r.Wall)*time.Microsecond)
	return out
}

func milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
