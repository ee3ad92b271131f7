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
	trials  = 9 // of each measurement; of each time the shortest counts, as all else is disturbance
	touches = 64
	chunk   = 64 << 10 // of what copies go to: package stream's slots
	chunks  = 4
)

// measure measures the costs with the first buffer.
func (a *Arena) measure() error {
	b := &a.buffers[0]
	pages := min(touches, a.size/smallPage)
	staging := make([]byte, chunk*chunks)
	untouched, touched, copying := longest, longest, time.Duration(math.MaxInt64)
	for range trials {
		fill(b.app, len(b.app))
		copying = min(copying, clock(func() {
			for at := 0; at < a.size; at += chunk {
				copy(staging[at%len(staging):][:chunk], b.app[at:])
			}
		}))
		apart, err := try(b, 0)
		if err != nil {
			return err
		}
		with, err := try(b, pages)
		if err != nil {
			return err
		}
		untouched, touched = untouched.least(apart), touched.least(with)
	}
	a.costs = Costs{
		Remap: untouched.cost(), Touch: max(touched.cost()-untouched.cost(), 0) / time.Duration(pages),
		Copy: float64(a.size) / max(copying, 1).Seconds(),
	}
	return nil
}

// timing has the times of one measurement, or the least of each of several. The least difference of two times would be that of the trial
// in which the one that is taken off was disturbed most: it may even be negative.
type timing struct {
	apart time.Duration // to part and join a buffer, with some pages written to in between
	after time.Duration // to write to all pages then
	plain time.Duration // to write to all these pages in a buffer that stays as it is
}

// longest is more than any trial takes.
var longest = timing{math.MaxInt64, math.MaxInt64, math.MaxInt64}

// try parts and joins b, with so many pages written to in between, and all afterwards.
func try(b *Buffer, pages int) (t timing, err error) {
	t.apart = clock(func() {
		if err = b.part(); err == nil {
			fill(b.app, pages*smallPage)
			_, err = b.join()
		}
	})
	t.after = clock(func() { fill(b.app, len(b.app)) }) // faults
	t.plain = clock(func() { fill(b.app, pages*smallPage); fill(b.app, len(b.app)) })
	return t, err
}

func (t timing) least(u timing) timing {
	return timing{min(t.apart, u.apart), min(t.after, u.after), min(t.plain, u.plain)}
}

// cost returns how much longer it takes than the writing alone. It is never less than what parting and joining takes.
func (t timing) cost() time.Duration { return t.apart + max(t.after-t.plain, 0) }

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
