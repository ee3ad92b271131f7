package known

import (
	"log/slog"
	"testing"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestLargeUnits: what a job reads may be as large as what can be sent at most, however much of that is sent; a list has the length
// that hosts take.
func TestLargeUnits(t *testing.T) {
	table := New(256<<20, 16<<20, slog.New(slog.DiscardHandler))
	made := func(n int) (*job.Body, []byte) {
		return &job.Body{Files: []unit.File{{Name: "/x.c", Len: 1}, {Name: "/x.h", Len: uint64(n - 1)}}}, make([]byte, n)
	}
	if body, text := made(70 << 20); table.Listed(body, text, modules.Rules{}) == nil {
		t.Error("a unit with a header of 70 MB is not known")
	}
	if body, text := made(255 << 20); table.Listed(body, text, modules.Rules{}) != nil {
		t.Error("a unit that does not fit into a job with its list is known")
	}
	set := &inputs.Set{Files: make([]*inputs.Input, 1, 60000)}
	for range 40000 {
		set.Files = append(set.Files, &inputs.Input{Name: "/home/someone/src/project/module/include/a-header.h"})
	}
	for i, f := range set.Files[1:] {
		f.ID[0], f.ID[1], f.Len = byte(i), byte(i>>8), 1
	}
	small := &inputs.Set{Files: set.Files[:20000]}
	if !listable(small) || listable(set) {
		t.Errorf("20,000 headers can be listed: %v; 40,000: %v", listable(small), listable(set))
	}
}
