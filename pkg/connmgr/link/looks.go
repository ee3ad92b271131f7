package link

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// lookPause is the least time between the beginnings of two looks at the shelf that somebody waits for. One look
// serves all that wait.
const lookPause = 10 * time.Millisecond

// sharedTime is for how long a daemon counts as one where other managers have jobs too, after the last sign of them.
const sharedTime = 5 * time.Second

// moreMarks is how many more places of the table of marks are read than were in use at the last look.
const moreMarks = 4

// looks are those at the head of a daemon's shelf, guarded by Link.mu. While there are marks of other managers, a look
// reads the marks as well.
type looks struct {
	others time.Time     // when marks of other managers were last seen
	now    chan struct{} // closed at the end of the look that is under way; nil: nobody waits for it
	next   chan struct{} // the same for the one after that
	alarm  bool          // a timer will begin that
}

// lookLocked begins a look at the head, the marks, and the records that are new. None may be under way.
func (l *Link) lookLocked(now time.Time) {
	s := &l.shelf
	s.busy, s.asked = true, now
	s.looks.now, s.looks.next = s.looks.next, nil
	places := uint64(0)
	if now.Sub(s.looks.others) < sharedTime {
		places = min(s.index.Head().Marks+moreMarks, shelf.MaxMarks)
	}
	l.readHeadLocked(places, true)
}

// readHeadLocked reads the head with the first places of the table of marks. If there are more marks that matter, it
// reads them as well if again is set.
func (l *Link) readHeadLocked(places uint64, again bool) {
	l.startShelfLocked(l.readShelfLocked(0, shelf.HeadLen+places*shelf.MarkLen, nil, func(b []byte, err error) {
		if err != nil || !l.headLocked(b[:shelf.HeadLen]) {
			l.lookedLocked()
			return
		}
		s := &l.shelf
		h, now := s.index.Head(), time.Now()
		if h.Makers.Others(shelf.MakerOf(l.c.Boot)) {
			s.looks.others = now
			if again && h.Marks > places {
				l.readHeadLocked(min(h.Marks+moreMarks, shelf.MaxMarks), false)
				return
			}
		}
		s.index.LearnMarks(b[shelf.HeadLen:], now)
		l.recordsLocked()
	}))
}

// lookedLocked ends a look.
func (l *Link) lookedLocked() {
	s := &l.shelf
	s.busy = false
	l.shelvesKnownLocked()
	if s.looks.now != nil {
		close(s.looks.now)
		s.looks.now = nil
	}
	l.nextLookLocked(time.Now())
}

// nextLookLocked begins a look that somebody waits for, or has it begun in a while.
func (l *Link) nextLookLocked(now time.Time) {
	s := &l.shelf
	if s.looks.next == nil || s.busy || s.looks.alarm || !l.hasShelfLocked() {
		return
	}
	left := lookPause - now.Sub(s.asked)
	if left <= 0 {
		l.lookLocked(now)
		return
	}
	s.looks.alarm = true
	time.AfterFunc(left, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.looks.alarm = false
		l.nextLookLocked(time.Now())
	})
}

// Look returns a channel that is closed when what is known of the daemon's shelf is no older than the call. It takes a
// round trip, or more if others have looked just before. If the link ends, the channel may never be closed.
func (l *Link) Look(now time.Time) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.shelf
	if s.looks.next == nil {
		s.looks.next = make(chan struct{})
	}
	next := s.looks.next
	l.nextLookLocked(now)
	return next
}

// Shared reports whether other managers have had jobs on the daemon lately, whose results it keeps for us too.
func (l *Link) Shared(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready && l.hasShelfLocked() && now.Sub(l.shelf.looks.others) < sharedTime
}

// UnderWay returns the mark of a job of another manager on the daemon whose result will be that of key, as far as is
// known without asking it.
func (l *Link) UnderWay(key resultcache.Key) (u shelf.UnderWay, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready || !l.hasShelfLocked() {
		return u, false
	}
	u, ok = l.shelf.index.UnderWay(key)
	return u, ok && u.Maker != shelf.MakerOf(l.c.Boot)
}
