package holdings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// openWay is a connection that stays up.
type openWay struct{ welcome job.Welcome }

func (l *openWay) Welcome() *job.Welcome { return &l.welcome }
func (*openWay) Dead() <-chan struct{}   { return nil }
func (*openWay) Err() error              { return nil }

// TestHoldings: a content is sent to a host with one job at a time, later jobs only name it, and what the
// host lacks is sent again.
func TestHoldings(t *testing.T) {
	a, b, c := unit.ContentID{1}, unit.ContentID{2}, unit.ContentID{3}
	var h Ledger
	l := &openWay{}
	own := map[unit.ContentID]bool{}
	of := func(ids ...unit.ContentID) *inputs.Set {
		s := &inputs.Set{Files: []*inputs.Input{{Name: "/src.c"}}}
		for i, id := range ids {
			s.Files = append(s.Files, &inputs.Input{Name: fmt.Sprintf("/%d.h", i), Len: 1, ID: id, System: own[id]})
		}
		return s
	}
	brings := func(ids ...unit.ContentID) *Load {
		t.Helper()
		w, err := h.Need(t.Context(), l, of(ids...))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	is := func(what string, w *Load, ids ...unit.ContentID) {
		t.Helper()
		w.ids = slices.DeleteFunc(w.ids, func(id unit.ContentID) bool { return id[1] != 0 }) // of lists
		if !slices.Equal(w.ids, ids) {
			t.Errorf("%s: the job brings %x, want %x", what, w.ids, ids)
		}
	}
	first := brings(a, b)
	is("nothing is there", first, a, b)

	ended, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the wrapper is gone")
	cancel(gone)
	if _, err := h.Need(ended, l, of(b, c)); !errors.Is(err, gone) {
		t.Errorf("beside a job that is about to bring one of them: %v, want a wait for it", err)
	}
	first.Posted()
	second := brings(a, b, c)
	is("two are on their way", second, c)
	second.End(false)
	is("the job that brought it came to nothing", brings(c), c)
	first.End(true)
	is("held by the host", brings(a, b))

	h.Forget([]unit.ContentID{b, c}, nil)
	w := brings(a, b)
	is("the host has dropped one", w, b)
	h.Forget([]unit.ContentID{b}, nil)
	w.End(true)
	is("dropped before it came", brings(b))
	l.welcome.StoreEpoch++
	is("the store is another one", brings(a, b, c), a, b, c)

	// What the host may have itself is not sent until it says that it lacks it.
	l.welcome.StoreEpoch++
	own[b], own[c] = true, true
	is("two are of the system", brings(a, b, c), a)
	h.Forget([]unit.ContentID{a, c}, own)
	w = brings(b, c)
	is("the host has one of them not", w, c)
	w.End(true)
	h.Forget([]unit.ContentID{c}, own)
	is("it has dropped it since", brings(b, c), c)
	for i := range byte(maxWrong) {
		h.Forget([]unit.ContentID{{8, i}}, own)
	}
	w = brings(b)
	is("it has dropped many that are none of the system's", w)
	w.End(true)
	for i := range byte(maxWrong) {
		id := unit.ContentID{9, i}
		own[id] = true
		h.Forget([]unit.ContentID{id}, own)
	}
	is("its system is another one", brings(b), b)
	l.welcome.StoreEpoch++
	is("or was, with another store", brings(b))
}
