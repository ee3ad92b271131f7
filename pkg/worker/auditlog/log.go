// Package auditlog writes down who had what compiled on a host: a JSON object a line for each
// job that was answered and each connection that came, was refused or went (docs/usage.md lists
// the fields). It has no text of sources, no command line and no environment.
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
// It never holds a job up: lines are written by a goroutine of its own, and lost where
// that cannot keep up or the disk is full, which Lost counts and the ordinary log says
// once each time it begins. A nil *Log writes nothing. It is safe for concurrent use.
type Log struct {
	path string
	log  *slog.Logger // of lines
	tell *slog.Logger // of trouble

	lines chan []byte
	ended chan struct{}

	mu     sync.Mutex
	f      *os.File // guarded by mu
	torn   bool     // the last line was not written whole; guarded by mu
	lost   uint64   // guarded by mu
	silent bool     // lines are being lost, and that was said; guarded by mu
	closed bool     // guarded by mu
}

// most is how many lines may wait to be written: some seconds of a busy host.
const most = 4096

// Open opens the log, a regular file for its owner alone, and appends to it. tell is where
// trouble with it is said. Close ends it.
func Open(path string, tell *slog.Logger) (*Log, error) {
	a := &Log{path: path, tell: tell, lines: make(chan []byte, most), ended: make(chan struct{})}
	if err := a.Reopen(); err != nil {
		return nil, err
	}
	a.log = slog.New(slog.NewJSONHandler(queue{a}, nil))
	go a.write() // until Close
	return a, nil
}

// Reopen opens the file anew, after somebody has moved it away. On an error the old one
// stays in use.
func (a *Log) Reopen() error {
	if a == nil {
		return nil
	}
	// Not through a link, and not waiting for a reader of a pipe.
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	st, err := f.Stat()
	switch {
	case err == nil && !st.Mode().IsRegular():
		err = errors.New("no regular file")
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

// Close writes what waits and closes the file.
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

// Lost is how many lines could not be written.
func (a *Log) Lost() uint64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost
}

// queue is where the handler's lines go, each with one Write.
type queue struct{ a *Log }

func (q queue) Write(p []byte) (int, error) {
	a := q.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		select {
		case a.lines <- append([]byte(nil), p...):
		default:
			a.loseLocked(errors.New("it is written too slowly"))
		}
	}
	return len(p), nil
}

func (a *Log) loseLocked(err error) {
	a.lost++
	if !a.silent {
		a.silent = true
		a.tell.Error("audit log: lines are lost", "file", a.path, "err", err)
	}
}

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
		} else if f == a.f { // else it was exchanged meanwhile
			a.torn = torn || n > 0
			a.loseLocked(err)
		}
		a.mu.Unlock()
	}
}
