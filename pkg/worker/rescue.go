package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/rdistcc/rdistcc/internal/job"
)

// errPanic ends what a fault of ours has hit.
var errPanic = errors.New("a fault of the daemon's: see its log")

// rescue is deferred by goroutines: a panic is a bug, and costs the one connection or
// job that met it, not those of all others. It is logged and counted; then, if not nil,
// is called.
func (s *Server) rescue(log *slog.Logger, then func()) {
	v := recover()
	if v == nil {
		return
	}
	s.o.Metrics.panicked()
	log.Error("panic: a bug, please report it", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if then != nil {
		then()
	}
}

// safely gives f's error, or errPanic.
func (c *conn) safely(f func() error) (err error) {
	defer c.s.rescue(c.log, func() { err = errPanic })
	return f()
}

// runSafely is run, or the answer of a job that met a fault of ours.
func (r *runner) runSafely(t *task) (res *job.Result, n int) {
	defer r.s.rescue(t.c.log, func() {
		t.proc.stop(job.CauseInternal)
		if err := r.stand.close(); err != nil { // whatever state it is in
			r.s.o.Log.Error("end private tree", "err", err)
		}
		r.used = false
		res, n = failed(errPanic), 0
	})
	if t.no != nil {
		return refused(t.no), 0
	}
	return r.run(t)
}
