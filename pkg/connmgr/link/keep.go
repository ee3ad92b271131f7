package link

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Copy is a result that a daemon is asked to keep.
type Copy struct {
	Key   resultcache.Key
	Entry []byte // as hosts keep it; must not change before Done is called
	// Done is called once, with the link's lock held. sent reports whether the daemon was asked.
	Done func(sent bool)
}

// Bounds of the copies of one link. They are of no use to anybody who waits now, so they give way.
const (
	maxCopies = 16              // that wait for the one under way
	copyAge   = 5 * time.Second // how long one waits before it is given up
)

// copies are a link's requests to keep results, guarded by Link.mu. One of them is under way at a time.
type copies struct {
	seq, acked uint32
	now        Copy     // under way, if seq is not acked
	mr         iwarp.MR // of it
	waiting    []waitingCopy
}

type waitingCopy struct {
	Copy
	since time.Time
}

// TakesCopy reports whether the daemon can be asked to keep the result of key, and does not have it, as far as is
// known.
func (l *Link) TakesCopy(key resultcache.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.shelf.index.Find(key)
	return !has && l.takesCopiesLocked()
}

// TakesCopies reports whether the daemon can be asked to keep results. It takes none for the shelf of a group, whose
// results it has compiled itself.
func (l *Link) TakesCopies() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takesCopiesLocked()
}

func (l *Link) takesCopiesLocked() bool {
	return l.ready && !l.draining && l.peerReads && l.hasShelfLocked() && l.welcome.Group == ""
}

// Keep asks the daemon to keep a result. It does not wait for that. It reports whether the daemon is asked, or will be
// if nothing comes in between: then Done is called. Otherwise too much waits, or the link has better to do.
func (l *Link) Keep(now time.Time, x Copy) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.cause != nil || len(x.Entry) > job.MaxKeep || len(l.copies.waiting) >= maxCopies || l.turns.backlog() > busyBytes {
		return false
	}
	l.copies.waiting = append(l.copies.waiting, waitingCopy{x, now})
	l.copyLocked(now)
	return true
}

// copyLocked asks for the next copy, if none is under way.
func (l *Link) copyLocked(now time.Time) {
	c := &l.copies
	for c.seq == c.acked && len(c.waiting) > 0 {
		x := c.waiting[0]
		c.waiting[0] = waitingCopy{}
		c.waiting = c.waiting[1:]
		if now.Sub(x.since) > copyAge || l.draining {
			x.Done(false)
			continue
		}
		mr, err := l.c.PD.RegMR(x.Entry, iwarp.RemoteRead, &iwarp.MROptions{QP: l.qp})
		if err != nil {
			l.c.Log.Debug("register a result for a copy", "host", l.addr, "err", err)
			x.Done(false)
			continue
		}
		c.seq++
		c.now, c.mr = x.Copy, mr
		l.sendLocked(&job.Keep{Seq: c.seq, Key: x.Key, Window: job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(len(x.Entry))}}, 0)
	}
}

// copiedLocked handles the daemon's Ack of a Keep: it does not read the result any more.
func (l *Link) copiedLocked(seq uint32) error {
	c := &l.copies
	if c.seq == c.acked || seq != c.seq {
		return fmt.Errorf("daemon acknowledged request %d to keep a result, which was not sent", seq)
	}
	c.acked = seq
	l.dropCopyLocked(true)
	l.copyLocked(time.Now())
	return nil
}

// dropCopyLocked ends the daemon's access to the copy that is under way.
func (l *Link) dropCopyLocked(sent bool) {
	c := &l.copies
	if err := c.mr.Dereg(); err != nil {
		l.c.Log.Warn("free a result that was to be copied", "host", l.addr, "err", err)
	}
	done := c.now.Done
	c.now, c.mr = Copy{}, nil
	done(sent)
}

// endCopiesLocked gives up what has not been asked for or acknowledged, once the QP has ended.
func (l *Link) endCopiesLocked() {
	c := &l.copies
	if c.mr != nil {
		l.dropCopyLocked(false)
	}
	for _, x := range c.waiting {
		x.Done(false)
	}
	c.waiting = nil
}
