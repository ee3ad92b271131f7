package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
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
