package attempt

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestKeeps: a host keeps enough for a job only if it has room for what its precompiled headers are made of too. What several of them are
// made of counts once.
func TestKeeps(t *testing.T) {
	set := func(files map[byte]uint64) *inputs.Set {
		s := new(inputs.Set)
		for id, n := range files {
			f := new(inputs.Input)
			f.ID, f.Len = unit.ContentID{id}, n
			s.Files = append(s.Files, f)
			s.Len += n
		}
		return s
	}
	source := set(map[byte]uint64{1: 10, 2: 20})
	image := set(map[byte]uint64{3: 5, 2: 20, 4: 100})
	other := set(map[byte]uint64{5: 5, 4: 100})
	for _, c := range []struct {
		sets []*inputs.Set
		n    uint64
	}{{[]*inputs.Set{source}, 30}, {[]*inputs.Set{source, image}, 135}, {[]*inputs.Set{source, image, other}, 140}} {
		if !keeps(&job.Welcome{Store: 2 * c.n}, c.sets) || keeps(&job.Welcome{Store: 2*c.n - 1}, c.sets) {
			t.Errorf("%d sets: not as soon as there is room for %d bytes", len(c.sets), c.n)
		}
	}
}
