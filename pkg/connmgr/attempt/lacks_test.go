package attempt

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestLackedOf: a host's list of missing contents is accepted only if it is complete and valid.
func TestLackedOf(t *testing.T) {
	ids := []unit.ContentID{{1}, {2}, {3}}
	mem := make([]byte, 0, 128)
	for _, id := range ids {
		mem = append(mem, id[:]...)
	}
	says := func(off, n uint64) *job.Result {
		r := &job.Result{Stdout: job.Segment{Off: off, Len: n}}
		if n <= uint64(len(mem)) {
			r.Digest = digest.Sum(mem[:n])
		}
		return r
	}
	if got := lackedOf(says(0, 96), mem[:128]); !slices.Equal(got, ids) {
		t.Errorf("%x, want %x", got, ids)
	}
	other := says(0, 64)
	other.Digest[0] ^= 1
	for what, r := range map[string]*job.Result{
		"nothing":        says(0, 0),
		"half a name":    says(0, 80),
		"elsewhere":      says(32, 64),
		"more than came": says(0, 160),
		"beyond all":     says(0, 1<<63),
		"other bytes":    other,
	} {
		if got := lackedOf(r, mem); got != nil {
			t.Errorf("%s: %x", what, got)
		}
	}
}

// TestLostList: a host that lacks a list is sent that, and not what the list names.
func TestLostList(t *testing.T) {
	set := &inputs.Set{Files: []*inputs.Input{{Name: "/s.c", ID: unit.ContentID{1}}, {Name: "/a.h", Len: 1, ID: unit.ContentID{2}}, {Name: "/usr/include/b.h", Len: 1, ID: unit.ContentID{3}, System: true}}}
	list, _ := set.List()
	image := &inputs.Set{Files: []*inputs.Input{{Name: "/p.h", ID: unit.ContentID{4}}}}
	other, _ := image.List()
	sets := []*inputs.Set{set, image}
	for what, c := range map[string]struct {
		lacked, want []unit.ContentID
		own, noList  bool
	}{
		"a list":             {[]unit.ContentID{list}, []unit.ContentID{list, other}, false, true},
		"that of an image":   {[]unit.ContentID{other}, []unit.ContentID{list, other}, false, true},
		"a file":             {[]unit.ContentID{{2}}, []unit.ContentID{{2}}, true, false},
		"it does not say it": {nil, []unit.ContentID{list, other, {1}, {2}, {3}, {4}}, true, false},
	} {
		ids, own, noList := lost(sets, c.lacked)
		if !slices.Equal(ids, c.want) || own[unit.ContentID{3}] != c.own || noList != c.noList {
			t.Errorf("%s: %x, %v, %v", what, ids, own, noList)
		}
	}
}
