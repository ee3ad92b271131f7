package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Intervals at which a step reports its progress.
const (
	redrawEvery = 200 * time.Millisecond // on a terminal
	lineEvery   = 10 * time.Second       // elsewhere, as in a log
)

// screen is where the demo prints.
type screen struct {
	io.Writer
	terminal bool // lines can be overwritten
}

// newScreen returns the screen on a file.
func newScreen(f *os.File) screen {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return screen{f, err == nil && os.Getenv("TERM") != "dumb"}
}

// step shows the progress of a step while it runs: on a terminal in one line, which disappears when the
// step ends, elsewhere in a line now and then.
type step struct {
	screen
	label string
	total int
	done  atomic.Int64
	began time.Time
	over  chan struct{}
	all   sync.WaitGroup
}

// begin starts the step label, with total parts. The caller ends it.
func (s screen) begin(label string, total int) *step {
	st := &step{screen: s, label: label, total: total, began: time.Now(), over: make(chan struct{})}
	st.all.Go(st.show)
	return st
}

func (s *step) show() {
	every, form := lineEvery, "  %-12s  %d of %d after %.0f s\n"
	if s.terminal {
		every, form = redrawEvery, "\r  %-12s  %d of %d after %.0f s\x1b[K"
		defer fmt.Fprint(s, "\r\x1b[K")
	}
	for tick := time.NewTicker(every); ; {
		select {
		case <-s.over:
			tick.Stop()
			return
		case <-tick.C:
			fmt.Fprintf(s, form, s.label, s.done.Load(), s.total, time.Since(s.began).Seconds())
		}
	}
}

// add reports that one more part is done. It may be called from several goroutines.
func (s *step) add() { s.done.Add(1) }

// end ends the step and returns how long it took.
func (s *step) end() time.Duration {
	took := time.Since(s.began)
	close(s.over)
	s.all.Wait()
	return took
}
