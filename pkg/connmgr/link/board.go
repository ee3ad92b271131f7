package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// boardPause is the least time between two reads of a daemon's load board. The board is read when the owner
// asks for it, because a host is about to be chosen, and once per heartbeat while jobs want the host. A read
// does not involve the daemon's program.
const boardPause = 100 * time.Millisecond

// The sources of a View.
const (
	FromWelcome   = "welcome"
	FromResult    = "result"
	FromHeartbeat = "heartbeat"
	FromBoard     = "board"
)

// setViewLocked records the load that a host reports about itself. The caller must tell the owner.
func (l *Link) setViewLocked(load job.Load, from string) {
	l.view.Load, l.view.From, l.view.At = load, from, time.Now()
}

// openBoardLocked registers the memory for reading the board that the Welcome names, if it names one and
// RDMA Reads are possible.
func (l *Link) openBoardLocked() error {
	if !l.puller.Can() || l.welcome.Board.STag == 0 {
		return nil
	}
	if n := l.welcome.Board.Len; n != job.BoardLen {
		return fmt.Errorf("daemon names a load board of %d bytes, not %d", n, job.BoardLen)
	}
	var err error
	if l.board.mr, err = l.c.PD.RegMR(l.board.mem[:], iwarp.LocalWrite, &iwarp.MROptions{QP: l.qp}); err != nil {
		return fmt.Errorf("register memory for the load board: %w", err)
	}
	return nil
}

// Refresh starts a read of the load board if the view is at least as old as most. It does not wait for it.
func (l *Link) Refresh(now time.Time, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(now, most)
}

func (l *Link) refreshLocked(now time.Time, most time.Duration) {
	b := &l.board
	if l.ended || !l.ready || b.mr == nil || b.busy || now.Sub(l.view.At) < most || now.Sub(b.asked) < boardPause {
		return
	}
	b.busy, b.asked = true, now
	w := l.welcome.Board
	err := l.puller.Start(&rdmaread.Pull{Sink: b.mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: job.BoardLen, Done: l.boardLocked})
	if err != nil {
		l.failLocked(err)
	}
}

// boardLocked handles the end of a read of the board.
func (l *Link) boardLocked(err error) {
	b := &l.board
	b.busy = false
	if err != nil {
		return // the link ends
	}
	b.reads++
	x, err := job.ParseBoard(b.mem[:])
	switch {
	case errors.Is(err, job.ErrTorn): // the daemon was changing it; the next read will do
		b.news = append(b.news, BoardTorn)
	case err != nil:
		l.failLocked(fmt.Errorf("daemon's load board is a %w", err))
	default:
		l.view.Pressure = &x.Pressure
		l.setViewLocked(x.Load, FromBoard)
		b.news = append(b.news, BoardRead, LoadChanged)
	}
}
