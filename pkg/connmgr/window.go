package connmgr

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// takeLarge counts a source of n bytes, as far as slots do not keep memory for it,
// and the copy of another user's, against what all of these may take together, until
// the last drop. The source has been written already, so the preprocessor's turn is
// kept while this waits: what is not counted yet is bounded by their number.
func (c *client) takeLarge(n uint64) *ipc.GoLocal {
	if n > uint64(c.m.o.Source) { // compile has words for it
		return nil
	}
	need, ok := c.m.memory.Counts(n, c.foreign())
	switch {
	case !ok:
		return &ipc.GoLocal{Reason: reason.TooBig,
			Detail: fmt.Sprintf("the source takes %d bytes, all large ones together may take %d (buffers.large)", need, c.m.o.Large)}
	case need > 0 && !c.source.TryCount(int64(need)):
		c.watch()
		if c.source.Count(c.ctx, int64(need)) != nil {
			return attempt.Interrupted
		}
	}
	return nil
}

// foreign says whether the wrapper is another user's. Its text is copied before it
// is used: text that changes while it is sent breaks a frame's CRC, and with it the
// connection for all users' jobs.
func (c *client) foreign() bool { return c.uid != c.m.uid }
