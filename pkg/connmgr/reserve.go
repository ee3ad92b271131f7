package connmgr

import (
	"context"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// shedAfter is how long a wrapper waits for a manager that is out of descriptors:
// commands that end free some.
const shedAfter = time.Second

// reserve is a descriptor for the time when there are no others: without it a
// wrapper could not even be told. The goroutine that accepts owns it.
type reserve struct {
	f       *os.File // nil: given away
	starved bool     // the last attempt to get it back was in vain
}

func (r *reserve) give() {
	if r.f != nil {
		_ = r.f.Close() // it was only held
		r.f = nil
	}
}

// restore takes a descriptor back, which means that there are some; false after
// shedAfter, or at once when that was so the last time.
func (r *reserve) restore(ctx context.Context) bool {
	for end := time.Now().Add(shedAfter); r.f == nil; {
		var err error
		if r.f, err = os.Open(os.DevNull); err == nil {
			break
		}
		r.f = nil
		if r.starved || time.Now().After(end) || !sleep(ctx, 10*time.Millisecond) {
			r.starved = true
			return false
		}
	}
	r.starved = false
	return true
}

// shed sends a wrapper away.
func shed(c *ipcserver.Conn) {
	_ = c.Send((&ipc.GoLocal{Reason: reason.NoSlot, Trouble: true, Code: reason.ExitGeneral,
		Detail: "the connection manager has no descriptors left (ulimit -n)"}).Append(nil)) // it may be gone
	_ = c.Close() // nothing is left to be said
}

// sleep waits for d; false says that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
