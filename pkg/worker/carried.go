package worker

import "sync"

// carried is the memory that sources of eager jobs are copied to: a receive is posted again before its job is
// done. There are at most as many copies as credits, each no longer than Options.Eager.
type carried struct{ free sync.Pool }

// copy returns a copy of b.
func (c *carried) copy(b []byte) []byte {
	if m, ok := c.free.Get().(*[]byte); ok && cap(*m) >= len(b) {
		return append((*m)[:0], b...)
	}
	return append(make([]byte, 0, cap(b)), b...)
}

// give takes a copy back that nothing refers to any more.
func (c *carried) give(b []byte) { c.free.Put(&b) }
