package holdings

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestRecall: a later manager names what the host holds, unless the host has wiped its store since.
func TestRecall(t *testing.T) {
	a, b, c := unit.ContentID{1}, unit.ContentID{2}, unit.ContentID{3}
	set := &inputs.Set{Files: []*inputs.Input{{Name: "/s.c"}, {Name: "/a.h", Len: 1, ID: a}, {Name: "/b.h", Len: 1, ID: b}}}
	list, _ := set.List()
	first := &openWay{}
	first.welcome.StoreEpoch = 7
	var h Ledger
	if h.Record("x") != nil {
		t.Error("a host that was never used has a record")
	}
	brings := func(h *Ledger, l Way, want ...unit.ContentID) {
		t.Helper()
		w, err := h.Need(t.Context(), l, set)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.IDs(), want) {
			t.Errorf("the job brings %x, want %x", w.IDs(), want)
		}
		w.Posted()
		w.End(true)
	}
	under, err := h.Need(t.Context(), first, &inputs.Set{Files: []*inputs.Input{{Name: "/s.c"}, {Name: "/c.h", Len: 1, ID: c}}})
	if err != nil {
		t.Fatal(err)
	}
	defer under.End(false)
	brings(&h, first, a, b, list)
	h.Differs()
	records := Decode(Encode([]*Record{h.Record("x")}))
	if len(records) != 1 || len(records[0].IDs) != 3 || slices.Contains(records[0].IDs, c) {
		t.Fatalf("%+v: want what has arrived", records)
	}
	var later Ledger
	later.Recall(records[0])
	if r := later.Record("x"); r != records[0] {
		t.Error("what is not used is forgotten")
	}
	brings(&later, first)
	if later.Alike() {
		t.Error("its headers count as ours again")
	}
	wiped := &openWay{}
	wiped.welcome.StoreEpoch = 8
	var other Ledger
	other.Recall(records[0])
	brings(&other, wiped, a, b, list)
	brings(&later, wiped, a, b, list)
}

// TestEncode: records survive their encoding, and what is none, or damaged, gives none.
func TestEncode(t *testing.T) {
	sorted := func(all []*Record) []*Record {
		slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.Addr, b.Addr) })
		for _, r := range all {
			slices.SortFunc(r.IDs, func(a, b unit.ContentID) int { return bytes.Compare(a[:], b[:]) })
		}
		return all
	}
	many := &Record{Addr: "b:1", Epoch: 2}
	for i := range 1000 {
		many.IDs = append(many.IDs, unit.ContentID{byte(i), byte(i >> 8), 1})
	}
	want := sorted([]*Record{many, {Addr: "a:1", Epoch: 1 << 60, Unlike: true, IDs: []unit.ContentID{{1, 0, 1}, {9, 9, 9}}}, {Addr: "c", Epoch: 3}})
	b := Encode(want)
	if got := sorted(Decode(b)); !reflect.DeepEqual(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	if !bytes.Equal(b, Encode([]*Record{want[2], want[0], want[1]})) {
		t.Error("the order matters")
	}
	for n := range len(b) {
		if Decode(b[:n]) != nil {
			t.Fatalf("the first %d bytes of %d are taken", n, len(b))
		}
	}
	b[len(b)/2] ^= 1
	if Decode(b) != nil {
		t.Error("damaged records are taken")
	}
}
