package link

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// As acceptor, the kernel's siw can miss what arrives within some milliseconds of its Reply: the bytes stay
// in the socket until more arrive. To wait before the first message would cost every connection that time.
// So the Hello is sent at once and, if no answer comes, something that has no effect. 50 ms are longer than
// most round trips; on a slower network a few bytes are sent for nothing.
const (
	nudgeFirst = 50 * time.Millisecond
	nudgeMost  = time.Second
)

// welcomed waits until l is up or has ended, and reports whether it is up. It ends l when ctx ends.
func (l *Link) welcomed(ctx context.Context) bool {
	pause := nudgeFirst
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		select {
		case <-l.up:
			return true
		case <-l.dead:
			return false
		case <-ctx.Done():
			l.Fail(errors.New("no Welcome in time"))
			<-l.dead
			return false
		case <-t.C:
			l.nudge()
			pause = min(2*pause, nudgeMost)
			t.Reset(pause)
		}
	}
}

// nudge sends an empty RDMA Write. It needs no valid STag: "if the DDP Segment is of zero length, the STag
// and TO MUST NOT be checked".
func (l *Link) nudge() {
	// An error is ignored: with a full queue, or a QP that has ended, a nudge would not help.
	_ = l.qp.PostSend(&iwarp.SendWR{ID: wrOther, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled})
}
