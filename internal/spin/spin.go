// Package spin bounds busy waiting: for how long, and by how many goroutines of a process at a time.
package spin

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// spinners counts the goroutines of this process that spin. Each keeps a processor of the Go scheduler
// busy.
var spinners atomic.Int32

const (
	check  = 8                    // turns between two looks at the clock and the context
	yield  = 4096                 // turns after which other goroutines of this processor get a chance
	atOnce = 10 * time.Nanosecond // least duration of a turn
)

// Wait is one wait, which spins before it blocks, if it may:
//
//	var s spin.Wait
//	for s.Begin(limit, false); !ready() && s.More(ctx); {
//	}
//	s.End()
//
// The zero value has not begun. It is not safe for concurrent use.
type Wait struct {
	end   time.Time
	left  int // turns at most: a clock may stand still, as it does in tests
	turns int
	in    bool
	alone bool
	spent bool
}

// Begin starts to spin, for up to limit in all. After End it goes on with what is left of that. It does
// nothing if nothing is left, or if too many goroutines spin already. There is always a processor left for
// the goroutine that is waited for. alone says that there is none, because the caller looks for what it
// waits for by itself: one such goroutine may spin on the only processor too.
func (w *Wait) Begin(limit time.Duration, alone bool) {
	if limit <= 0 || w.spent || w.in {
		return
	}
	most := runtime.GOMAXPROCS(0) - 1
	if alone {
		most = max(most, 1)
	}
	if int(spinners.Add(1)) > most {
		spinners.Add(-1)
		w.spent = true
		return
	}
	if w.end.IsZero() {
		w.end = time.Now().Add(limit)
		w.left = int(limit / atOnce)
	}
	w.in, w.alone = true, alone
}

// More reports whether to look again. It returns false once the time is over or ctx has ended, and from then
// on.
func (w *Wait) More(ctx context.Context) bool {
	if !w.in || w.spent {
		return false
	}
	if w.turns++; w.alone {
		letOthersRun() // such a turn is long: a system call
	}
	if w.turns%check != 0 {
		return true
	}
	if !w.alone {
		letOthersRun()
	}
	if w.left -= check; w.left <= 0 || ctx.Err() != nil || !time.Now().Before(w.end) {
		w.spent = true
		return false
	}
	if w.turns%yield == 0 {
		runtime.Gosched()
	}
	return true
}

// Spins reports whether the caller spins, between Begin and End.
func (w *Wait) Spins() bool { return w.in }

// End stops spinning.
func (w *Wait) End() {
	if w.in {
		w.in = false
		spinners.Add(-1)
	}
}
