package az

import (
	"math"
	"time"
)

// Costs are what an arena's buffers cost on this machine.
type Costs struct {
	Remap time.Duration // to take the views of a buffer apart and bring them together, and the page faults after that
	Touch time.Duration // for each page of 4 KiB that is written to while the views are apart, at a run of them
	Copy  float64       // bytes a second that are copied from a buffer that was just filled
}

// Costs returns what was measured when the arena was made.
func (a *Arena) Costs() Costs { return a.costs }

// buffering is how many times as much the sender's processor time grows for a byte that is copied as the copy alone takes: what is
// copied goes in shorter messages, and takes up more of the caches (`rdistcc-perf exp zero-copy`, E7).
const buffering = 2

// Threshold returns the length from which a Write costs less in place than by a copy; math.MaxInt if it never does. With pages of 4 KiB
// it never does (E7): what is measured here lacks that other processors have to forget each page too.
func (a *Arena) Threshold() int {
	n := a.costs.Remap.Seconds() * a.costs.Copy / buffering
	if a.pages == Small || n > float64(a.size) {
		return math.MaxInt
	}
	return int(n)
}

const (
	trials  = 9 // of each measurement; the fastest counts, as all else is disturbance
	touches = 64
	chunk   = 64 << 10 // of what copies go to: package stream's slots
	chunks  = 4
)

// measure measures the costs with the first buffer.
func (a *Arena) measure() error {
	b := &a.buffers[0]
	pages := min(touches, a.size/smallPage)
	staging := make([]byte, chunk*chunks)
	var remap, touch, copying time.Duration = math.MaxInt64, math.MaxInt64, math.MaxInt64
	for range trials {
		fill(b.app, len(b.app))
		copying = min(copying, clock(func() {
			for at := 0; at < a.size; at += chunk {
				copy(staging[at%len(staging):][:chunk], b.app[at:])
			}
		}))
		apart, err := a.trial(b, 0)
		if err != nil {
			return err
		}
		with, err := a.trial(b, pages)
		if err != nil {
			return err
		}
		remap, touch = min(remap, apart), min(touch, with)
	}
	a.costs = Costs{
		Remap: remap, Touch: max(touch-remap, 0) / time.Duration(pages),
		Copy: float64(a.size) / max(copying, 1).Seconds(),
	}
	return nil
}

// trial returns how long it takes to part and join b if so many pages are written to in between, and all afterwards, less
// what the writing alone takes.
func (a *Arena) trial(b *Buffer, pages int) (time.Duration, error) {
	var err error
	took := clock(func() {
		if err = b.part(); err == nil {
			fill(b.app, pages*smallPage)
			_, err = b.join()
		}
		fill(b.app, len(b.app)) // faults
	})
	return took - clock(func() { fill(b.app, pages*smallPage); fill(b.app, len(b.app)) }), err
}

// fill writes to each page of the first n bytes.
func fill(m []byte, n int) {
	for i := 0; i < n; i += smallPage {
		m[i]++
	}
}

func clock(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
