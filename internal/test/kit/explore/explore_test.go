package explore

import (
	"errors"
	"slices"
	"testing"
)

// jugs are two jugs of three and five litres.
type jugs struct{ three, five int }

var (
	errFour = errors.New("four litres")
	errDry  = errors.New("no step is left")
)

// steps are what can be done with two jugs and a tap. Without the tap, one can only pour.
func (j jugs) steps(tap bool) (all []Step[jugs]) {
	do := func(name string, three, five int) {
		s := Step[jugs]{Name: name, To: jugs{three, five}}
		if five == 4 {
			s.Err = errFour
		}
		all = append(all, s)
	}
	if tap {
		do("fill three", 3, j.five)
		do("fill five", j.three, 5)
		do("empty three", 0, j.five)
		do("empty five", j.three, 0)
	}
	if n := min(j.three, 5-j.five); n > 0 {
		do("three into five", j.three-n, j.five+n)
	}
	if n := min(j.five, 3-j.three); n > 0 {
		do("five into three", j.three+n, j.five-n)
	}
	return all
}

func (j jugs) key(b []byte) []byte { return append(b, byte(j.three), byte(j.five)) }

func model(tap bool) *Model[jugs] {
	return &Model[jugs]{
		Start: jugs{0, 0}, Most: 100,
		Key:   func(b []byte, j jugs) []byte { return j.key(b) },
		Steps: func(j jugs) []Step[jugs] { return j.steps(tap) },
	}
}

// TestShortestTrace: the way to a fault is the shortest one.
func TestShortestTrace(t *testing.T) {
	r := model(true).Run()
	want := []string{"fill five", "five into three", "empty three", "five into three", "fill five", "five into three"}
	if !errors.Is(r.Err, errFour) || !slices.Equal(r.Trace, want) {
		t.Errorf("got %v after %q, want %q", r.Err, r.Trace, want)
	}
}

// TestEveryState: without a fault, all states are counted, and each once.
func TestEveryState(t *testing.T) {
	m := model(true)
	steps := m.Steps
	m.Steps = func(j jugs) []Step[jugs] {
		all := steps(j)
		for i := range all {
			all[i].Err = nil
		}
		return all
	}
	if r := m.Run(); r.Err != nil || r.States != 16 || r.Depth != 7 {
		t.Errorf("got %+v, want the 16 states in which a jug is full or empty, the last after 7 steps", r)
	}
	m.Most = 10
	if r := m.Run(); !errors.Is(r.Err, ErrMany) || r.Trace != nil {
		t.Errorf("got %+v, want too many states", r)
	}
}

// TestStuck: a state in which nothing happens by itself is reported with the way to it. What others choose to do does not
// count.
func TestStuck(t *testing.T) {
	m := model(false)
	m.Start = jugs{3, 0}
	m.Stuck = func(j jugs) error {
		if j.five == 0 && j.three == 0 {
			return errDry
		}
		return nil
	}
	if r := m.Run(); r.Err != nil || r.States != 2 {
		t.Errorf("got %+v, want two states", r)
	}
	m.Start = jugs{0, 0}
	m.Steps = func(j jugs) []Step[jugs] {
		all := j.steps(true)
		for i := range all {
			all[i].Choice = true
		}
		return all
	}
	if r := m.Run(); !errors.Is(r.Err, errDry) || !slices.Equal(r.Trace, []string{"nothing"}) {
		t.Errorf("got %+v, want that the first state is stuck", r)
	}
}

// TestRestless: a state from which nothing leads to rest is found; one that can go round, but need not, is none.
func TestRestless(t *testing.T) {
	var choice, way bool // the round needs a choice; there is a way out of it
	next := func(j jugs) (all []Step[jugs]) {
		if j.three == 3 {
			return nil
		}
		if j.three < 2 {
			return []Step[jugs]{{Name: "fill", To: jugs{j.three + 1, 0}}}
		}
		if way {
			all = append(all, Step[jugs]{Name: "drop", To: jugs{3, 0}})
		}
		return append(all, Step[jugs]{Name: "pour", To: jugs{2, 1 - j.five}, Choice: choice && j.five == 1})
	}
	m := &Model[jugs]{Most: 100, Rests: true, Key: func(b []byte, j jugs) []byte { return j.key(b) }, Steps: next}
	if r := m.Run(); !errors.Is(r.Err, ErrRestless) {
		t.Errorf("got %v after %q", r.Err, r.Trace)
	}
	choice = true
	if r := m.Run(); r.Err != nil {
		t.Errorf("with a choice: %v after %q", r.Err, r.Trace)
	}
	choice, way = false, true
	if r := m.Run(); r.Err != nil {
		t.Errorf("with a way out: %v after %q", r.Err, r.Trace)
	}
}
