// Package inflight sends descriptors through Unix sockets when others have used up most of the room for
// that. Descriptors that were sent and not yet received count for the user, not for the process. When they
// exceed RLIMIT_NOFILE, the kernel refuses further ones with ETOOMANYREFS (unix(7)) to all of the user's
// unprivileged processes, until some are received, or are collected a moment after their socket was closed.
package inflight

import (
	"errors"
	"syscall"
	"time"
)

// Pauses between two attempts double from the first to the last one: two seconds in all.
const (
	firstPause = time.Millisecond
	lastPause  = 1024 * time.Millisecond
)

// Send calls send, which sends a message with descriptors or nothing, and repeats that while the user has
// too many in flight.
func Send(send func() error) error {
	for pause := firstPause; ; pause *= 2 {
		err := send()
		if !errors.Is(err, syscall.ETOOMANYREFS) || pause > lastPause {
			return err
		}
		time.Sleep(pause)
	}
}
