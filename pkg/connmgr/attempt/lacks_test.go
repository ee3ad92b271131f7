package attempt

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/digest"
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
