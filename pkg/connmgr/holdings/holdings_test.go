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

	// What the host has made it holds too, unless it turns out that it does not keep such contents.
	l.welcome.StoreEpoch++
	clear(own)
	brings(a).End(true)
	h.Made(l, b, 10)
	h.Made(&openWay{}, c, 10)
	is("the host has made one; another was made for a store that is gone", brings(b, c), c)
	h.Dropped([]unit.ContentID{b})
	h.Forget([]unit.ContentID{b}, nil)
	w = brings(b)
	is("it has not kept it", w, b)
	w.End(true)
	h.Made(l, unit.ContentID{7}, 10)
	is("so nor the next one", brings(unit.ContentID{7}), unit.ContentID{7})
}

// TestSmallStore: what a host's store will have dropped, as far as its answers tell how much it keeps, is brought again and not
// named in vain; what is used all the time is not.
func TestSmallStore(t *testing.T) {
	var h Ledger
	l := &openWay{}
	common := &inputs.Input{Name: "/a.h", Len: 1 << 20, ID: unit.ContentID{1}}
	job := func(i byte) *inputs.Set {
		return &inputs.Set{Files: []*inputs.Input{{Name: "/s.c"}, common, {Name: "/b.h", Len: 1 << 20, ID: unit.ContentID{2, i}}}}
	}
	run := func(i byte) (files []unit.ContentID) {
		t.Helper()
		w, err := h.Need(t.Context(), l, job(i))
		if err != nil {
			t.Fatal(err)
		}
		list, _ := job(i).List()
		files = slices.DeleteFunc(slices.Clone(w.IDs()), func(id unit.ContentID) bool { return id == list })
		w.Posted()
		w.End(true)
		return files
	}
	for i := range byte(10) {
		if got := run(i); len(got) > 1 && i > 0 {
			t.Errorf("source %d for the first time: it brings %x", i, got)
		}
	}
	if got := run(5); len(got) != 0 {
		t.Errorf("a second time: it brings %x", got)
	}
	h.Dropped([]unit.ContentID{{2, 5}}) // four others of 1 MiB have come since
	h.Forget([]unit.ContentID{{2, 5}}, nil)
	for _, i := range []byte{5, 1, 2} {
		if got, want := run(i), []unit.ContentID{{2, i}}; !slices.Equal(got, want) {
			t.Errorf("source %d once more: it brings %x, want %x", i, got, want)
		}
	}
	if got := run(2); len(got) != 0 {
		t.Errorf("what was used a moment ago: it brings %x", got)
	}
	for range 200 {
		run(2)
	}
	if got := run(9); len(got) != 0 {
		t.Errorf("after many jobs without trouble: it brings %x", got)
	}
}
