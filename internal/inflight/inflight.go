// Package inflight sends descriptors by Unix sockets where others leave little room for it. What was sent
// and not yet received counts for the user, not for the process: where that is more than RLIMIT_NOFILE, the kernel refuses
// further ones with ETOOMANYREFS (unix(7)) to all of the user's processes but privileged ones, until some are received,
// or collected a moment after their socket was closed.
package inflight

import (
	"errors"
	"syscall"
	"time"
)

// Pauses between two tries double from the first to the last one: two seconds in all.
const (
	firstPause = time.Millisecond
	lastPause  = 1024 * time.Millisecond
)

// Send calls send, which sends a message with descriptors or nothing, and again while the user has too many in flight.
func Send(send func() error) error {
	for pause := firstPause; ; pause *= 2 {
		err := send()
		if !errors.Is(err, syscall.ETOOMANYREFS) || pause > lastPause {
			return err
		}
		time.Sleep(pause)
	}
}
