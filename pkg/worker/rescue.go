package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errPanic ends a job or connection that has met a bug of ours.
var errPanic = errors.New("a fault of the daemon's: see its log")

// rescue is deferred by goroutines and recovers from a panic. A panic is a bug; it costs the one connection
// or job that met it, not all others. rescue logs and counts it, and calls then if that is not nil.
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

// safely calls f and returns its error, or errPanic if it panics.
func (c *conn) safely(f func() error) (err error) {
	defer c.s.rescue(c.log, func() { err = errPanic })
	return f()
}
