package connmgr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// tickTime is how often a link is looked at: twice a heartbeat, as a silence ends with
// the interval in which it has lasted long enough.
func (o *Options) tickTime() time.Duration { return max(o.Heartbeat/2, 1) }

// tick sends heartbeats, and ends a link whose daemon is silent or does not
// answer a Cancel. It ends with the link.
func (l *link) tick() {
	t := time.NewTicker(l.m.o.tickTime())
	defer t.Stop()
	for {
		select {
		case <-l.dead:
			return
		case now := <-t.C:
			l.m.mu.Lock()
			l.tickLocked(now)
			l.m.mu.Unlock()
		}
	}
}

// tickLocked counts intervals rather than looking at the clock: a manager that
// was stopped itself must not take that for the daemon's silence.
func (l *link) tickLocked(now time.Time) {
	s := l.qp.Stats()
	l.pathLocked(now, s.Path)
	l.m.demandsLocked(now)
	l.h.growLocked(now)
	l.retireLocked(now)
	for _, f := range l.flights {
		if !f.cancelled.IsZero() && now.Sub(f.cancelled) > l.m.o.CancelTimeout {
			l.failLocked(errors.New("no answer to a cancelled job"))
			return
		}
	}
	if !l.checkPullsLocked() {
		return
	}
	// The stack answers a Read of the board by itself: that says nothing of the daemon.
	heard := int64(s.FPDUsReceived+s.SendsReceived) - int64(l.board.reads)
	quiet := heard <= l.heard
	if quiet && !l.movesLocked(&s) {
		l.silent += l.m.o.tickTime()
	} else {
		l.silent = 0
	}
	l.heard, l.sent, l.unacked, l.acked = max(heard, l.heard), s.FPDUsSent, s.Unacked, s.Path.Acked
	if now.Sub(l.h.lastWant) < wantedFor {
		l.refreshLocked(now, l.m.o.Heartbeat*3/4) // less than one: the last was asked for a little after a tick
	}
	switch {
	case l.silent >= l.m.o.HeartbeatDead:
		l.failLocked(fmt.Errorf("silent for %v", l.silent))
	case quiet && l.ready && l.beatSeq == l.beatAcked && now.Sub(l.beatAt) > l.m.o.Heartbeat*3/4:
		l.beatSeq++
		l.beatAt = now
		l.beatMark = s.Path.Acked + s.Unacked + l.turns.posted
		l.sendLocked(&job.Heartbeat{Seq: l.beatSeq}, 0)
	}
}

// movesLocked says whether a daemon of which nothing is heard may well be busy with
// what we send: a slow network takes in a long source with nothing coming back, and
// what the kernel has buffered goes on when the Writes have completed. Once a
// heartbeat has reached the daemon's machine, behind all that, it is the daemon's
// turn: a frozen one's kernel takes megabytes in.
func (l *link) movesLocked(s *iwarp.QPStats) bool {
	if l.path.told {
		return s.Path.Acked != l.acked && (l.beatSeq == l.beatAcked || s.Path.Acked <= l.beatMark)
	}
	if s.Unacked != 0 && s.Unacked != l.unacked {
		return true
	}
	if s.FPDUsSent == l.sent {
		return false
	}
	for _, f := range l.flights {
		if f.writes > 0 || f.sent && f.length == 0 {
			return true
		}
	}
	return false
}

// failLocked ends the link for a reason of ours; the first one counts.
func (l *link) failLocked(err error) {
	if l.cause == nil {
		l.cause = err
	}
	l.qp.Abort()
}

// endLocked gives every flight its error, after which no memory of theirs is used.
func (l *link) endLocked() {
	if l.cause == nil {
		l.cause = errClosedByPeer
		if err := l.qp.Err(); err != nil {
			l.cause = dialError(err) // who resets a connection is said beside it
		}
	}
	l.credits = nil
	l.puller.End(l.cause)
	for id, f := range l.flights {
		delete(l.flights, id)
		f.endLocked(nil, l.cause)
	}
	l.h.lostLocked(l)
	l.ended = true
	close(l.dead)
}

// err says why the link ended, once dead is closed.
func (l *link) err() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.cause
}

// close ends the link when the manager does: in order when nothing runs on it,
// otherwise at once, which ends the jobs on the host as well.
func (l *link) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.m.o.CancelTimeout)
	defer cancel()
	l.m.mu.Lock()
	if l.cause == nil {
		l.cause = errShutdown
	}
	busy := len(l.flights) > 0 || l.offers > 0
	l.m.mu.Unlock()
	if busy || l.qp.Disconnect(ctx) != nil {
		l.qp.Abort()
	}
	<-l.dead
}

// destroy frees what the device holds for the link.
func (l *link) destroy() {
	var err error
	if l.qp != nil {
		err = errors.Join(err, l.qp.Destroy())
	}
	for _, mr := range []iwarp.MR{l.recvMR, l.board.mr} {
		if mr != nil {
			err = errors.Join(err, mr.Dereg())
		}
	}
	if l.cq != nil {
		err = errors.Join(err, l.cq.Close())
	}
	if err != nil {
		l.m.o.Log.Warn("free a connection", "host", l.h.addr, "err", err)
	}
}
