package connmgr

import (
	"context"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// shedAfter is how long a wrapper waits for a manager that is out of descriptors. Commands that end free some.
const shedAfter = time.Second

// reserve holds a spare descriptor for when there are no others; without it, a wrapper could not even be
// told. The goroutine that accepts owns it.
type reserve struct {
	f       *os.File // nil: in use
	starved bool     // the last attempt to get it back was in vain
}

func (r *reserve) give() {
	if r.f != nil {
		_ = r.f.Close() // only a placeholder
		r.f = nil
	}
}

// restore gets the spare descriptor back and reports whether it could, which means that there are free ones.
// It gives up after shedAfter, or at once if the last attempt was in vain.
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
		Detail: "the connection manager has no descriptors left (ulimit -n)"}).Append(nil)) // an error means that it is gone
	_ = c.Close() // an error changes nothing
}

// sleep waits for d. It reports false if ctx ends first.
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
