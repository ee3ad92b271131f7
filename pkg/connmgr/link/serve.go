package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Kinds of work requests, in the top byte of their ids.
const (
	wrRecv  = uint64(1) << 56 // and the index of the buffer
	wrWrite = uint64(2) << 56 // and the flight's id
	wrOther = uint64(3) << 56
	wrRead  = uint64(4) << 56
	wrKind  = uint64(0xff) << 56
)

// serve handles completions until the QP has ended and been flushed.
func (l *Link) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	go func() { // ends with the QP, at the latest when the link is destroyed
		defer close(stop)
		<-l.qp.Done()
		cancel()
	}()
	var wcs [32]iwarp.WC
	for {
		n := l.cq.Poll(wcs[:])
		if n == 0 {
			if ctx.Err() != nil {
				break // Done and nothing left
			}
			_ = l.cq.Wait(ctx) // its errors show in ctx, or there is something to poll
			continue
		}
		l.c.Mu.Lock()
		for i := range wcs[:n] {
			l.completedLocked(&wcs[i])
		}
		if !l.landed { // who waits for a result says next what became of the job, and then asks
			l.owner.SettledLocked()
		}
		l.landed = false
		l.c.Mu.Unlock()
	}
	<-stop
	l.c.Mu.Lock()
	l.endLocked()
	l.c.Mu.Unlock()
}

// completedLocked handles one completion.
func (l *Link) completedLocked(wc *iwarp.WC) {
	switch wc.ID & wrKind {
	case wrRecv:
		if wc.Status == iwarp.StatusSuccess {
			l.receivedLocked(wc)
		}
	case wrWrite:
		if f := l.flights[wc.ID&^wrKind]; f != nil {
			l.wroteLocked(f, wc.Status == iwarp.StatusSuccess)
		}
	case wrRead:
		if err := l.puller.Completed(wc); err != nil {
			l.FailLocked(err)
		}
	}
	// A completion in error ends the QP by itself; Done follows.
}

// receivedLocked handles one message of the daemon's.
func (l *Link) receivedLocked(wc *iwarp.WC) {
	i := int(wc.ID &^ wrKind)
	msg, err := job.Parse(l.recvMem[i*job.MaxMessage:][:wc.ByteLen])
	l.spare = append(l.spare, i)
	if err != nil {
		l.FailLocked(fmt.Errorf("daemon sent a %w", err))
		return
	}
	if wc.Inv != (msg.Kind() == job.KindResult) {
		l.FailLocked(errors.New("daemon sent a message with the wrong invalidation"))
		return
	}
	switch msg := msg.(type) {
	case *job.Result: // its receive was posted for the job
		l.resultLocked(msg, wc.InvSTag)
		return
	case *job.Welcome: // its receive was one above Spare
		if l.welcome != nil {
			l.FailLocked(errors.New("daemon sent a second Welcome"))
			return
		}
		l.welcome, l.more = msg, msg.Identifying
		if err := l.openBoardLocked(); err != nil {
			l.FailLocked(err)
			return
		}
		l.setViewLocked(msg.Load, FromWelcome)
		l.checkReadyLocked()
		return
	case *job.Toolchains:
		l.toolchainsLocked(msg)
	case *job.Compilers:
		l.names = msg.Names
		l.ackLocked(job.KindCompilers, msg.Seq)
	case *job.Grant:
		for _, c := range msg.Credits {
			l.AddCreditLocked(c)
		}
		l.ackLocked(job.KindGrant, msg.Seq)
	case *job.Recall:
		l.ReturnLocked(int(msg.Count))
		l.ackLocked(job.KindRecall, msg.Seq) // behind the Returns: the daemon knows that those were all
	case *job.Heartbeat:
		l.ackLocked(job.KindHeartbeat, msg.Seq)
	case *job.Drain:
		l.draining = true
		l.owner.LearnedLocked(l, DrainBegun)
		l.ReturnLocked(len(l.credits))
		l.ackLocked(job.KindDrain, msg.Seq)
	case *job.Ack:
		l.setViewLocked(msg.Load, FromHeartbeat)
		switch msg.Of {
		case job.KindHeartbeat:
			if msg.Seq == l.beatSeq && l.beatAcked != msg.Seq {
				l.path.echoed(time.Since(l.beatAt))
			}
			l.beatAcked = msg.Seq
		case job.KindDemand:
			l.demand.acked = msg.Seq
			l.owner.LearnedLocked(l, DemandHeard)
		case job.KindCancel:
			l.cancelAcked = msg.Seq
			l.sendCancelLocked()
		default:
			l.FailLocked(errors.New("daemon acknowledged what was not sent"))
			return
		}
	default:
		l.FailLocked(errors.New("daemon sent a message that only a manager sends"))
		return
	}
	// One that the daemon has closed takes none, and ends by itself: what came before
	// its end counts.
	if err := l.postRecvLocked(); err != nil && !errors.Is(err, iwarp.ErrState) {
		l.FailLocked(err)
	}
}

// toolchainsLocked takes one part of the daemon's list. A list that starts again
// at 0 replaces the one before.
func (l *Link) toolchainsLocked(msg *job.Toolchains) {
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
	l.ackLocked(job.KindToolchains, msg.Seq)
	l.checkReadyLocked()
	l.owner.LearnedLocked(l, ToolchainsChanged)
}

// checkReadyLocked opens the link for jobs once all that must be known is.
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

func (l *Link) ackLocked(of job.Kind, seq uint32) { l.sendLocked(&job.Ack{Of: of, Seq: seq}, 0) }

// sendLocked posts one message; inv, if not zero, is the daemon's slot to
// invalidate. What goes wrong ends the link.
func (l *Link) sendLocked(m job.Message, inv uint32) {
	var buf [job.MaxMessage]byte
	wr := iwarp.SendWR{ID: wrOther, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(buf[:0], m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	if err := l.qp.PostSend(&wr); err != nil {
		l.FailLocked(fmt.Errorf("post a message: %w", err))
	}
}

// postRecvLocked posts one receive.
func (l *Link) postRecvLocked() error {
	n := len(l.spare)
	if n == 0 {
		return errors.New("daemon answered more than it was asked")
	}
	i := l.spare[n-1]
	l.spare = l.spare[:n-1]
	err := l.qp.PostRecv(&iwarp.RecvWR{
		ID:  wrRecv | uint64(i),
		SGL: []iwarp.SGE{{Addr: l.recvMR.Base() + uint64(i)*job.MaxMessage, Length: job.MaxMessage, LKey: l.recvMR.STag()}},
	})
	if err != nil {
		return fmt.Errorf("post a receive: %w", err)
	}
	return nil
}
