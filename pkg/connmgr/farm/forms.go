package farm

import (
	"slices"
	"time"
)

// formsLocked answers the questions that can be answered already. It returns when the next one can be at the
// latest, zero if none is left.
func (f *Farm) formsLocked(now time.Time) (next time.Time) {
	f.queue.asking = slices.DeleteFunc(f.queue.asking, func(q *question) bool {
		tree, until := f.sched.Trees(now, q.list, q.toolchain)
		if !until.IsZero() {
			if next.IsZero() || until.Before(next) {
				next = until
			}
			return false
		}
		q.ready <- tree
		return true
	})
	return next
}
