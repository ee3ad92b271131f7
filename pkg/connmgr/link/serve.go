package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Kinds of work requests, in the top byte of their IDs.
const (
	wrRecv  = uint64(1) << 56 // plus the index of the buffer
	wrWrite = uint64(2) << 56 // plus the flight's ID
	wrOther = uint64(3) << 56
	wrRead  = uint64(4) << 56
	wrKind  = uint64(0xff) << 56
)

// serve handles completions until the QP has ended and been flushed.
func (l *Link) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	go func() { // ends when the QP does, at the latest when the link is destroyed
		defer close(stop)
		<-l.qp.Done()
		cancel()
	}()
	var wcs [32]iwarp.WC
	for {
		n := l.cq.Poll(wcs[:])
		if n == 0 {
			if ctx.Err() != nil {
				break // the QP is done and nothing is left
			}
			_ = l.cq.Wait(ctx) // if it fails, ctx has ended or there is something to poll
			continue
		}
		for i := range wcs[:n] {
			l.completed(&wcs[i])
		}
		if !asks(l.landed) {
			l.owner.Settled()
		}
		for _, f := range l.landed {
			f.end(nil)
		}
		clear(l.landed)
		l.landed = l.landed[:0]
	}
	<-stop
	l.end()
}

// asks reports whether the end of one of these flights will at once make the owner look for the next job. A
// flight whose result is in a window does not: the result is fetched first.
func asks(landed []*Flight) bool {
	return slices.ContainsFunc(landed, func(f *Flight) bool { return f.Result.Window.STag == 0 })
}

// completed handles one completion.
func (l *Link) completed(wc *iwarp.WC) {
	switch wc.ID & wrKind {
	case wrRecv:
		if wc.Status == iwarp.StatusSuccess {
			l.received(wc)
		}
	case wrWrite:
		l.mu.Lock()
		moved := uint64(0)
		if f := l.flights[wc.ID&^wrKind]; f != nil {
			moved = l.wroteLocked(f, wc.Status == iwarp.StatusSuccess)
		}
		l.mu.Unlock()
		if moved > 0 {
			l.owner.Moved(moved, 0)
		}
	case wrRead:
		l.mu.Lock()
		if err := l.puller.Completed(wc); err != nil {
			l.failLocked(err)
		}
		news := l.board.news
		l.board.news = nil
		l.mu.Unlock()
		for _, what := range news {
			l.owner.Learned(l, what)
		}
	}
	// A completion in error ends the QP by itself; Done follows.
}

// received handles one message from the daemon.
func (l *Link) received(wc *iwarp.WC) {
	i := int(wc.ID &^ wrKind)
	msg, err := job.Parse(l.recvMem[i*job.MaxMessage:][:wc.ByteLen])
	if err != nil {
		l.Fail(fmt.Errorf("daemon sent a %w", err))
		return
	}
	if wc.Inv != (msg.Kind() == job.KindResult) {
		l.Fail(errors.New("daemon sent a message with the wrong invalidation"))
		return
	}
	if r, ok := msg.(*job.Result); ok { // its receive was posted for the job
		l.result(i, r, wc.InvSTag)
		return
	}
	l.mu.Lock()
	l.spare = append(l.spare, i)
	l.mu.Unlock()
	switch msg := msg.(type) {
	case *job.Welcome: // its receive was the one besides job.Spare, and is not posted again
		l.welcomedBy(msg)
		return
	case *job.Toolchains:
		l.toolchains(msg)
	case *job.Compilers:
		l.mu.Lock()
		l.names = msg.Names
		l.mu.Unlock()
		l.ack(job.KindCompilers, msg.Seq)
	case *job.Grant:
		l.owner.Granted(l, msg.Credits)
		l.ack(job.KindGrant, msg.Seq)
	case *job.Recall:
		l.owner.Recalled(l, int(msg.Count))
		l.ack(job.KindRecall, msg.Seq) // sent behind the Returns, so the daemon knows that there are no more
	case *job.Heartbeat:
		l.ack(job.KindHeartbeat, msg.Seq)
	case *job.Drain:
		l.mu.Lock()
		l.draining = true
		l.mu.Unlock()
		l.owner.Learned(l, DrainBegun)
		l.ack(job.KindDrain, msg.Seq) // sent behind the Returns, as above
	case *job.Ack:
		if !l.acknowledged(msg) {
			return
		}
	default:
		l.Fail(errors.New("daemon sent a message that only a manager sends"))
		return
	}
	// A QP that the daemon has closed accepts no receive, and ends by itself. That is no error: what came
	// before the end counts.
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.postRecvLocked(); err != nil && !errors.Is(err, iwarp.ErrState) {
		l.failLocked(err)
	}
}

// welcomedBy handles the Welcome, the daemon's first message. A second one ends the link.
func (l *Link) welcomedBy(msg *job.Welcome) {
	l.mu.Lock()
	if l.welcome != nil {
		l.failLocked(errors.New("daemon sent a second Welcome"))
		l.mu.Unlock()
		return
	}
	l.welcome, l.more = msg, msg.Identifying
	if err := l.openBoardLocked(); err != nil {
		l.failLocked(err)
		l.mu.Unlock()
		return
	}
	l.setViewLocked(msg.Load, FromWelcome)
	l.openShelfLocked()
	l.checkReadyLocked()
	l.mu.Unlock()
	l.owner.Learned(l, LoadChanged)
}

// acknowledged handles the daemon's answer to a message of ours. It reports whether there was such a message;
// otherwise it ends the link.
func (l *Link) acknowledged(msg *job.Ack) bool {
	l.mu.Lock()
	l.setViewLocked(msg.Load, FromHeartbeat)
	known := true
	switch msg.Of {
	case job.KindHeartbeat:
		if msg.Seq == l.beatSeq && l.beatAcked != msg.Seq {
			l.path.echoed(time.Since(l.beatAt))
		}
		l.beatAcked = msg.Seq
	case job.KindDemand:
		l.demand.acked = msg.Seq
	case job.KindKeep:
		if err := l.copiedLocked(msg.Seq); err != nil {
			l.failLocked(err)
			known = false
		}
	case job.KindCancel:
		l.cancels.Acked(msg.Seq)
		l.sendCancelLocked()
	default:
		l.failLocked(errors.New("daemon acknowledged what was not sent"))
		known = false
	}
	l.mu.Unlock()
	l.owner.Learned(l, LoadChanged)
	if msg.Of == job.KindDemand {
		l.owner.Learned(l, DemandHeard)
	}
	return known
}

// toolchains handles one part of the daemon's list. A list that starts again at 0 replaces the one before.
func (l *Link) toolchains(msg *job.Toolchains) {
	l.mu.Lock()
	if msg.First == 0 {
		l.relisted = l.relisted || l.idsSeen > 0
		clear(l.ids)
		l.idsSeen = 0
	}
	l.idsSeen += len(msg.IDs)
	if int(msg.First)+len(msg.IDs) == int(msg.Total) {
		l.listed, l.more = true, msg.More
	}
	for _, id := range msg.IDs {
		l.ids[id] = true
	}
	l.sendLocked(&job.Ack{Of: job.KindToolchains, Seq: msg.Seq}, 0)
	l.checkReadyLocked()
	l.mu.Unlock()
	l.owner.Learned(l, ToolchainsChanged)
}

// checkReadyLocked opens the link for jobs once the Welcome and all toolchains have come.
func (l *Link) checkReadyLocked() {
	if l.ready || l.welcome == nil {
		return
	}
	if want := int(l.welcome.Toolchains); want > 0 && (!l.listed || l.idsSeen < want && !l.relisted) {
		return
	}
	l.ready, l.used = true, time.Now()
	close(l.up)
}
