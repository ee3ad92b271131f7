package connmgr

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/fetch"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// A daemon's load board is read when a host is about to be chosen and the view of
// it is older than viewFresh, and once a heartbeat while jobs ask for the host;
// never more often than once in boardPause. The daemon's program notices nothing.
const (
	viewFresh  = 500 * time.Millisecond
	boardPause = 100 * time.Millisecond
)

// Where a view comes from.
const (
	fromWelcome   = "welcome"
	fromResult    = "result"
	fromHeartbeat = "heartbeat"
	fromBoard     = "board"
)

// view is what is known of a host's load.
type view struct {
	load     job.Load
	pressure *job.Pressure // of a board
	from     string
	at       time.Time
}

// boardReader is a link's reading of the daemon's board, guarded by Manager.mu.
type boardReader struct {
	mem   [job.BoardLen]byte
	mr    iwarp.MR // of mem; nil: there is no board to be read
	busy  bool
	asked time.Time
	reads uint64 // that were answered: each is a frame that no program sent
}

// setViewLocked takes a host's word about itself.
func (l *link) setViewLocked(load job.Load, from string) {
	l.view.load, l.view.from, l.view.at = load, from, time.Now()
	l.h.loadLocked(load)
}

// openBoardLocked makes ready to read the board that the Welcome names.
func (l *link) openBoardLocked() error {
	if !l.puller.Can() || l.welcome.Board.STag == 0 {
		return nil
	}
	if n := l.welcome.Board.Len; n != job.BoardLen {
		return fmt.Errorf("daemon names a load board of %d bytes, not %d", n, job.BoardLen)
	}
	var err error
	if l.board.mr, err = l.m.pd.RegMR(l.board.mem[:], iwarp.LocalWrite, &iwarp.MROptions{QP: l.qp}); err != nil {
		return fmt.Errorf("register memory for the load board: %w", err)
	}
	return nil
}

// refreshLocked reads the board if the view is older than most.
func (l *link) refreshLocked(now time.Time, most time.Duration) {
	b := &l.board
	if l.ended || !l.ready || b.mr == nil || b.busy || now.Sub(l.view.at) < most || now.Sub(b.asked) < boardPause {
		return
	}
	b.busy, b.asked = true, now
	w := l.welcome.Board
	err := l.puller.Start(&fetch.Pull{Sink: b.mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: job.BoardLen, Done: l.boardLocked})
	if err != nil {
		l.failLocked(err)
	}
}

// boardLocked takes what was read.
func (l *link) boardLocked(err error) {
	b := &l.board
	b.busy = false
	if err != nil {
		return // the link ends
	}
	b.reads++
	x, err := job.ParseBoard(b.mem[:])
	switch {
	case errors.Is(err, job.ErrTorn): // the next one is better
		l.m.metrics.boards.WithLabelValues("torn").Inc()
	case err != nil:
		l.failLocked(fmt.Errorf("daemon's load board is a %w", err))
	default:
		l.m.metrics.boards.WithLabelValues("ok").Inc()
		l.view.pressure = &x.Pressure
		l.setViewLocked(x.Load, fromBoard)
	}
}

// refreshViewsLocked has the views of a list's hosts renewed where that helps to
// choose: what is asked now is there when the preprocessor has ended.
func (m *Manager) refreshViewsLocked(now time.Time, list *parsedList) {
	if len(list.sched) < 2 {
		return
	}
	for i := range list.sched {
		if h := m.hosts[list.sched[i].Addr]; h != nil && h.link != nil {
			h.link.refreshLocked(now, viewFresh)
		}
	}
}
