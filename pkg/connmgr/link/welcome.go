package link

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// The kernel's siw, as acceptor, can miss what arrives within some milliseconds of
// its Reply: it lies in the socket until more arrives. To wait before the first
// message would cost every connection that time, so we send at once, and when no
// answer comes, something that has no effect. 50 ms are longer than most round
// trips; on a slower network a few bytes are sent for nothing.
const (
	nudgeFirst = 50 * time.Millisecond
	nudgeMost  = time.Second
)

// welcomed waits until l is up, or dead: then it returns false.
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

// nudge sends an RDMA Write of nothing: nobody's memory is named or looked at
// ("if the DDP Segment is of zero length, the STag and TO MUST NOT be checked").
func (l *Link) nudge() {
	// A full queue or an ended QP has other troubles.
	_ = l.qp.PostSend(&iwarp.SendWR{ID: wrOther, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled})
}
