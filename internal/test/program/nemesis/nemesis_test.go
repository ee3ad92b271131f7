package main

import (
	"bytes"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestPlan: a seed gives the same plan again, another one another, and no kind is
// missing from a long one.
func TestPlan(t *testing.T) {
	var of []kind
	for k := range numKinds {
		of = append(of, k)
	}
	a, b := newPlan(7, 2000, 30, 20, 4, of), newPlan(7, 2000, 30, 20, 4, of)
	if !reflect.DeepEqual(a, b) {
		t.Error("one seed gave two plans")
	}
	if c := newPlan(8, 2000, 30, 20, 4, of); reflect.DeepEqual(a.strikes, c.strikes) {
		t.Error("two seeds gave one plan")
	}
	if len(a.strikes) != 99 || len(a.jobs) != 2000 {
		t.Errorf("%d strikes in %d jobs, want 99 in 2000", len(a.strikes), len(a.jobs))
	}
	seen := map[kind]int{}
	for _, s := range a.strikes {
		seen[s.kind]++
		if s.hold < kinds[s.kind].least || s.hold > kinds[s.kind].most {
			t.Errorf("%v: not within %v and %v", s, kinds[s.kind].least, kinds[s.kind].most)
		}
	}
	for _, k := range of {
		if seen[k] < len(a.strikes)/len(of) {
			t.Errorf("%v: %d times", k, seen[k])
		}
	}
}

// TestNemesis runs every kind of fault at small size: no wrong object, no lost or failed job, nothing left
// behind. How many jobs stay here is only reported: so many faults in so few jobs are not what a farm
// meets.
func TestNemesis(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a farm")
	}
	part.Skip(t)
	for _, tool := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "no %s", tool)
		}
	}
	o := options{bin: farmtest.Programs(t), jobs: 120, every: 4, hosts: 3, width: 6, settle: 2 * time.Minute, most: 1200 * time.Millisecond, log: t.Logf}
	r, err := runSeed(t.Context(), o, 1)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	report(&text, []*result{r})
	t.Log(text.String())
	for _, what := range r.wrong {
		t.Error(what)
	}
	if svg := plot(r); !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Error("no plot")
	}
}
