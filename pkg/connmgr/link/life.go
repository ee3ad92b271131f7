package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// tickTime returns the interval at which a link is checked. It is half a heartbeat, because a silence is
// measured in whole intervals.
func (c *Config) tickTime() time.Duration { return max(c.Heartbeat/2, 1) }

// ticksBegan is when all links would have ticked first.
var ticksBegan = time.Now()

// tick sends heartbeats, and ends a link whose daemon is silent or does not answer a Cancel. It returns when
// the link has ended.
func (l *Link) tick() {
	every := l.c.tickTime()
	t := time.NewTicker(max(every-time.Since(ticksBegan)%every, 1)) // all links tick at the same time: the manager wakes once for them
	defer t.Stop()
	aligned := false
	for {
		select {
		case <-l.dead:
			return
		case now := <-t.C:
			if !aligned {
				t.Reset(every)
				aligned = true
			}
			l.ticked(now)
		}
	}
}

// A link that nothing has asked for during restAfter heartbeats rests: it asks for a sign of life, and reads what the daemon
// keeps of results, once per restBeats and restLooks heartbeats. To be silent, it then takes the daemon that much longer.
const (
	restAfter = 10
	restBeats = 4
	restLooks = 10
)

// restLocked works out whether the link rests. A link that stops resting gets its full time to be heard from.
func (l *Link) restLocked(now time.Time, wanted bool) {
	if len(l.flights) > 0 || l.offers > 0 {
		l.used = now
	}
	after := restAfter * l.c.Heartbeat
	rests := !wanted && now.Sub(l.used) > after && now.Sub(l.shelf.sought) > after
	if l.rests && !rests {
		l.silent = 0
	}
	l.rests = rests
}

// ticked does the work of one tick. It counts intervals rather than compare times: a manager that was itself
// stopped must not mistake that for the daemon's silence.
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
	// The daemon's RDMA stack answers a Read of the board by itself, so the answer is no sign of life.
	heard := int64(s.FPDUsReceived+s.SendsReceived) - int64(l.board.reads)
	quiet := l.shelfQuietLocked(&s) || heard <= l.heard
	if quiet && !l.movesLocked(&s) {
		l.silent += l.c.tickTime()
	} else {
		l.silent = 0
	}
	l.heard, l.sent, l.unacked, l.acked = max(heard, l.heard), s.FPDUsSent, s.Unacked, s.Path.Acked
	l.restLocked(now, wanted)
	beat, dead, look := l.c.Heartbeat*3/4, l.c.HeartbeatDead, l.c.Heartbeat*3/4
	if l.rests {
		beat += (restBeats - 1) * l.c.Heartbeat
		dead += (restBeats - 1) * l.c.Heartbeat
		look += (restLooks - 1) * l.c.Heartbeat
	}
	if wanted {
		l.refreshLocked(now, l.c.Heartbeat*3/4) // less than a whole one: the last read began a little after a tick
	}
	if l.hasShelfLocked() && now.Sub(l.shelf.asked) > look { // so that the first look after a pause finds what others had compiled
		l.refreshShelfLocked(now)
	}
	switch {
	case l.silent >= dead:
		l.failLocked(fmt.Errorf("silent for %v", l.silent))
	case quiet && l.ready && l.beatSeq == l.beatAcked && now.Sub(l.beatAt) > beat && (!l.rests || l.silent > beat):
		l.beatSeq++
		l.beatAt = now
		l.beatMark = s.Path.Acked + s.Unacked + l.turns.posted
		l.sendLocked(&job.Heartbeat{Seq: l.beatSeq}, 0)
	}
}

// movesLocked reports whether a silent daemon may still be receiving what we send. On a slow network, a long
// source takes its time while nothing comes back, and the kernel keeps sending what it has buffered after the
// Writes have completed. Once a heartbeat behind all that has reached the daemon's machine, only an answer
// counts: the kernel of a frozen daemon's machine still accepts megabytes.
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
		if f.leg.Writes() > 0 || f.leg.Sent() && f.Length == 0 {
			return true
		}
	}
	return false
}

var errClosedByPeer = errors.New("connection closed by the daemon")

// end gives every flight its error; the link does not use their memory afterwards. First it tells the owner,
// which stops giving out credits of this link: what waits for a flight will ask for another credit.
func (l *Link) end() {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = errClosedByPeer
		if err := l.qp.Err(); err != nil {
			l.cause = dialError(err) // the host is named by whatever shows the error
		}
	}
	why := l.cause
	l.lost = true
	l.mu.Unlock()
	l.owner.Lost(l, why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true // a flight started from now on ends at once
	l.puller.End(why)
	l.endCopiesLocked()
	for _, f := range l.flights {
		f.end(why)
	}
	clear(l.flights)
	close(l.dead)
}

// Dead returns a channel that is closed when the link and all its flights have ended. The owner hears nothing
// afterwards.
func (l *Link) Dead() <-chan struct{} { return l.dead }

// Err returns why the link ended, once Dead is closed.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Ended returns why the link has ended. It returns nil if it has not: Owner.Lost is still to come.
func (l *Link) Ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost {
		return nil
	}
	return l.cause
}

// Idle returns how long the link has had nothing to do.
func (l *Link) Idle(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights) > 0 || l.offers > 0 {
		l.used = now
	}
	return now.Sub(l.used)
}

// Retire ends a link that is no longer needed, for the reason why, and makes Run return. It must be called at
// most once, when no job is under way on the link and all its credits have been returned.
func (l *Link) Retire(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = why
	}
	close(l.retire)
}

// Run waits until the link has ended and then frees it. The link ends by itself, because it was retired, or
// because ctx has ended, whose cause is then the reason. The caller of Dial calls Run, once.
func (l *Link) Run(ctx context.Context) {
	select {
	case <-l.dead:
	case <-l.retire:
		l.close(nil) // Retire has set the cause
	case <-ctx.Done():
		l.close(context.Cause(ctx))
	}
	l.destroy()
}

// close ends the link: gracefully when no job is under way on it, otherwise at once, which ends the jobs on
// the host as well.
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

// destroy frees what the device holds for the link, which has ended or never came up.
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
