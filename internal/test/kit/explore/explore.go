// Package explore looks at every state that a system can get into, whatever the order of events: an explicit-state
// model checker for code that ships.
//
// A test describes the system as a Model: a first state, what can happen next in a state, and how states are told
// apart. What happens is done by the code under test, on copies of its own objects (Copy), so the code has to be
// deterministic: no clock, no goroutine, no order of a map. Run visits the states breadth first, so the way to the
// first fault that it finds is a shortest one. It keeps a hash of each state that it has seen, and whole states only
// while they are still to be looked at.
package explore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
)

// Model is a system to be explored. W is a state; it has to be a value that Steps does not change, such as a pointer
// to something that is copied before each step.
type Model[W any] struct {
	Start W
	// Key appends to b what tells w from all states that behave differently.
	Key func(b []byte, w W) []byte
	// Steps returns all that can happen in w, in an order that depends on w only.
	Steps func(w W) []Step[W]
	// Stuck, if not nil, is called for each state in which nothing happens by itself. It returns what is wrong with
	// that, or nil if the system may rest there.
	Stuck func(w W) error
	// Rests says that what happens by itself can always come to an end, so that each state leads to one in which nothing
	// does. Until then it may go round: in the end, everything happens that can.
	Rests bool
	// Most bounds the number of states.
	Most int
}

// Step is one thing that can happen in a state.
type Step[W any] struct {
	Name string // what happens
	Of   any    // and to what; nil: the name says it all. It is formatted only for a trace
	To   W      // the state that follows
	Err  error  // what the step has broken, or nil
	// Choice says that the step happens only if somebody outside wants it, so that the system may wait for it for
	// ever.
	Choice bool
}

func (s *Step[W]) String() string {
	if s.Of == nil {
		return s.Name
	}
	return fmt.Sprintf("%s %+v", s.Name, s.Of)
}

// Report is what Run has found.
type Report struct {
	States int      // different ones
	Steps  int      // that lead from one to another
	Depth  int      // steps to the farthest state
	Err    error    // what is broken, or ErrMany; nil if nothing is
	Trace  []string // the shortest way to that, step by step; nil with ErrMany
}

// ErrMany says that a model has more states than Model.Most.
var ErrMany = errors.New("too many states")

// ErrRestless says that a model with Model.Rests has a state that does not lead to one in which nothing happens.
var ErrRestless = errors.New("from here on it goes round in circles for ever")

// seen is how a state was first reached: by which step of which earlier one.
type seen struct{ before, step int32 }

// Run looks at every state of the model, or at all until something is broken.
func (m *Model[W]) Run() (r Report) {
	// Two hashes with seeds of their own tell more states apart than will ever be looked at.
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	var buf []byte
	key := func(w W) [2]uint64 {
		buf = m.Key(buf[:0], w)
		return [2]uint64{maphash.Bytes(seeds[0], buf), maphash.Bytes(seeds[1], buf)}
	}
	known := map[[2]uint64]int32{key(m.Start): 0}
	log := []seen{{-1, -1}}
	var inner graph
	for front, at := []W{m.Start}, int32(0); len(front) > 0; r.Depth++ {
		var next []W
		for i, w := range front {
			var none W
			front[i] = none // the collector may have it
			steps := m.Steps(w)
			r.Steps += len(steps)
			if m.Stuck != nil && !slices.ContainsFunc(steps, func(s Step[W]) bool { return !s.Choice }) {
				r.Err = m.Stuck(w)
			}
			if r.Err != nil {
				r.States, r.Trace = len(log), append(m.trace(log, at), "nothing")
				return r
			}
			for j := range steps {
				s := &steps[j]
				if s.Err != nil {
					r.States, r.Err, r.Trace = len(log), s.Err, append(m.trace(log, at), s.String())
					return r
				}
				k := key(s.To)
				to, old := known[k]
				if !old {
					to = int32(len(log))
				}
				if m.Rests && !s.Choice {
					inner.add(to)
				}
				if old {
					continue
				}
				known[k] = to
				log = append(log, seen{at, int32(j)})
				if len(log) >= m.Most {
					r.States, r.Err = len(log), ErrMany
					return r
				}
				next = append(next, s.To)
			}
			inner.end()
			at++
		}
		front = next
	}
	r.States = len(log)
	r.Depth-- // nothing is behind the last states
	if !m.Rests {
		return r
	}
	if i := inner.restless(); i >= 0 {
		r.Err, r.Trace = ErrRestless, m.trace(log, i)
	}
	return r
}

// trace returns the steps to state i, by taking them once more.
func (m *Model[W]) trace(log []seen, i int32) (way []string) {
	var steps []int32
	for ; log[i].before >= 0; i = log[i].before {
		steps = append(steps, log[i].step)
	}
	slices.Reverse(steps)
	w := m.Start
	for _, j := range steps {
		s := m.Steps(w)[j]
		way = append(way, s.String())
		w = s.To
	}
	return way
}
