// Package auditlog records what a host has compiled for which peer: one JSON object per line, for each job
// that was answered and each connection that was made, refused or closed (docs/usage.md lists the fields). It
// records no source text, no command line and no environment.
package auditlog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// Log is an audit log in a file.
//
// It never delays a job: a goroutine of its own writes the lines. Lines are lost if that cannot keep up or
// the disk is full. Lost counts them, and the ordinary log has one message each time this begins. A nil *Log
// writes nothing. A Log is safe for concurrent use.
type Log struct {
	path string
	log  *slog.Logger // the audit log's lines
	tell *slog.Logger // the ordinary log

	lines chan []byte
	ended chan struct{}

	mu     sync.Mutex
	f      *os.File // guarded by mu
	torn   bool     // the last line was written only in part; guarded by mu
	lost   uint64   // guarded by mu
	silent bool     // lines are being lost, which has been reported; guarded by mu
	closed bool     // guarded by mu
}

// most is how many lines may wait to be written: a few seconds' worth on a busy host.
const most = 4096

// Open opens the log for appending. It creates the file if necessary, readable by its owner only; one that
// others can write to, or that is not regular, is an error. tell gets messages about trouble with the log.
// Close ends it.
func Open(path string, tell *slog.Logger) (*Log, error) {
	a := &Log{path: path, tell: tell, lines: make(chan []byte, most), ended: make(chan struct{})}
	if err := a.Reopen(); err != nil {
		return nil, err
	}
	a.log = slog.New(slog.NewJSONHandler(queue{a}, nil))
	go a.write() // until Close
	return a, nil
}

// Reopen opens the file again, after it was moved away by log rotation. After an error the old file stays in
// use.
func (a *Log) Reopen() error {
	if a == nil {
		return nil
	}
	// Do not follow a link, and do not wait for a reader of a FIFO.
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	st, err := f.Stat()
	switch {
	case err == nil && !st.Mode().IsRegular():
		err = errors.New("not a regular file")
	case err == nil && st.Mode().Perm()&0o022 != 0:
		err = errors.New("others can write to it (chmod go-w)")
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("audit log %s: %w", a.path, err)
	}
	a.mu.Lock()
	old := a.f
	a.f, a.torn = f, false
	a.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

// Close writes the lines that are waiting and closes the file.
func (a *Log) Close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	was := a.closed
	a.closed = true
	a.mu.Unlock()
	if was {
		return nil
	}
	close(a.lines)
	<-a.ended
	return a.f.Close()
}

// Lost returns how many lines could not be written.
func (a *Log) Lost() uint64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost
}

// queue takes the handler's lines, each in one Write.
type queue struct{ a *Log }

// Write queues a line, or counts it as lost. It never blocks or fails.
func (q queue) Write(p []byte) (int, error) {
	a := q.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		select {
		case a.lines <- append([]byte(nil), p...):
		default:
			a.loseLocked(errors.New("the file is written too slowly"))
		}
	}
	return len(p), nil
}

// loseLocked counts a line that is lost because of err, and reports the first one.
func (a *Log) loseLocked(err error) {
	a.lost++
	if !a.silent {
		a.silent = true
		a.tell.Error("audit log: lines are lost", "file", a.path, "err", err)
	}
}

// write writes queued lines until Close.
func (a *Log) write() {
	defer close(a.ended)
	for line := range a.lines {
		a.mu.Lock()
		f, torn := a.f, a.torn
		a.mu.Unlock()
		if torn {
			line = append([]byte{'\n'}, line...)
		}
		n, err := f.Write(line)
		a.mu.Lock()
		if err == nil {
			if a.torn = false; a.silent {
				a.silent = false
				a.tell.Warn("audit log: written again", "file", a.path, "lost", a.lost)
			}
		} else if f == a.f { // otherwise Reopen has replaced it
			a.torn = torn || n > 0
			a.loseLocked(err)
		}
		a.mu.Unlock()
	}
}
