package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// tickTime is how often a link is looked at: twice a heartbeat, as a silence ends with
// the interval in which it has lasted long enough.
func (c *Config) tickTime() time.Duration { return max(c.Heartbeat/2, 1) }

// tick sends heartbeats, and ends a link whose daemon is silent or does not
// answer a Cancel. It ends with the link.
func (l *Link) tick() {
	t := time.NewTicker(l.c.tickTime())
	defer t.Stop()
	for {
		select {
		case <-l.dead:
			return
		case now := <-t.C:
			l.ticked(now)
		}
	}
}

// ticked counts intervals rather than looking at the clock: a manager that
// was stopped itself must not take that for the daemon's silence.
func (l *Link) ticked(now time.Time) {
	s := l.qp.Stats()
	l.mu.Lock()
	l.path.tell(s.Path)
	l.mu.Unlock()
	wanted := l.owner.Tick(l, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		if !f.cancelled.IsZero() && now.Sub(f.cancelled) > l.c.CancelTimeout {
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
		l.silent += l.c.tickTime()
	} else {
		l.silent = 0
	}
	l.heard, l.sent, l.unacked, l.acked = max(heard, l.heard), s.FPDUsSent, s.Unacked, s.Path.Acked
	if wanted {
		l.refreshLocked(now, l.c.Heartbeat*3/4) // less than one: the last was asked for a little after a tick
	}
	switch {
	case l.silent >= l.c.HeartbeatDead:
		l.failLocked(fmt.Errorf("silent for %v", l.silent))
	case quiet && l.ready && l.beatSeq == l.beatAcked && now.Sub(l.beatAt) > l.c.Heartbeat*3/4:
		l.beatSeq++
		l.beatAt = now
		l.beatMark = s.Path.Acked + s.Unacked + l.turns.posted
		l.sendLocked(&job.Heartbeat{Seq: l.beatSeq}, 0)
	}
}

// movesLocked reports whether a daemon of which nothing is heard may well be busy with
// what we send: a slow network takes in a long source with nothing coming back, and
// what the kernel has buffered goes on when the Writes have completed. Once a
// heartbeat has reached the daemon's machine, behind all that, it is the daemon's
// turn: a frozen one's kernel takes megabytes in.
func (l *Link) movesLocked(s *iwarp.QPStats) bool {
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
		if f.writes > 0 || f.sent && f.Length == 0 {
			return true
		}
	}
	return false
}

var errClosedByPeer = errors.New("connection closed by the daemon")

// end gives every flight its error, after which no memory of theirs is used. First it tells
// the owner, which gives out no more credits of this link then: whoever waits for a flight
// will look for another one.
func (l *Link) end() {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = errClosedByPeer
		if err := l.qp.Err(); err != nil {
			l.cause = dialError(err) // who resets a connection is said beside it
		}
	}
	why := l.cause
	l.lost = true
	l.mu.Unlock()
	l.owner.Lost(l, why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true // what is started from now on ends at once
	l.puller.End(why)
	for _, f := range l.flights {
		f.end(why)
	}
	clear(l.flights)
	close(l.dead)
}

// Dead is closed when the link has ended: all flights have, and nothing follows.
func (l *Link) Dead() <-chan struct{} { return l.dead }

// Err returns why the link ended, once Dead is closed.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Ended returns why the link has ended; nil: it has not, and Owner.Lost is still to come.
func (l *Link) Ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost {
		return nil
	}
	return l.cause
}

// Idle returns for how long there has been nothing to do.
func (l *Link) Idle(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights) > 0 || l.offers > 0 {
		l.used = now
	}
	return now.Sub(l.used)
}

// Retire ends the link as it is not needed any more, for the reason why: Run returns. It is
// for a link on which nothing runs and whose credits went back, and called once.
func (l *Link) Retire(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = why
	}
	close(l.retire)
}

// Run waits until the link has ended and frees it: by itself, because it was retired, or
// because ctx has ended, whose cause is the reason then. Who has dialled it calls it, once.
func (l *Link) Run(ctx context.Context) {
	select {
	case <-l.dead:
	case <-l.retire:
		l.close(nil) // it has a reason
	case <-ctx.Done():
		l.close(context.Cause(ctx))
	}
	l.destroy()
}

// close ends the link: in order when nothing runs on it, otherwise at once, which ends
// the jobs on the host as well.
func (l *Link) close(why error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.c.CancelTimeout)
	defer cancel()
	l.mu.Lock()
	if l.cause == nil {
		l.cause = why
	}
	busy := len(l.flights) > 0 || l.offers > 0
	l.mu.Unlock()
	if busy || l.qp.Disconnect(ctx) != nil {
		l.qp.Abort()
	}
	<-l.dead
}

// destroy frees what the device holds for the link, which has ended or was never up.
func (l *Link) destroy() {
	l.running.Wait()
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
		l.c.Log.Warn("free a connection", "host", l.addr, "err", err)
	}
}
