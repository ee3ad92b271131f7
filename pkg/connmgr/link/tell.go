package link

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func (l *Link) failLocked(err error) {
	if l.cause == nil {
		l.cause = err
	}
	l.qp.Abort()
}

// Fail ends the link because of err. If it is called several times, the first error counts.
func (l *Link) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(err)
}

// sendLocked posts one message. inv, if not zero, is the STag of the daemon's slot to invalidate. An error
// ends the link.
func (l *Link) sendLocked(m job.Message, inv uint32) {
	var buf [job.MaxMessage]byte
	wr := iwarp.SendWR{ID: wrOther, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(buf[:0], m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	if err := l.qp.PostSend(&wr); err != nil {
		l.failLocked(fmt.Errorf("post a message: %w", err))
	}
}

// ends returns the STag that a message which spends c has to invalidate; 0 = none, as the daemon's slots stay
// open.
func (l *Link) ends(c *job.Credit) uint32 {
	if l.welcome != nil && l.welcome.SlotsKept {
		return 0
	}
	return c.Slot.STag
}

func (l *Link) ack(of job.Kind, seq uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendLocked(&job.Ack{Of: of, Seq: seq}, 0)
}

// postRecvLocked posts one receive, with a spare buffer. None is spare if the daemon sent more messages than
// it may, which is an error.
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
