package sandbox

import (
	"strings"
	"testing"
)

func TestLevels(t *testing.T) {
	const base = Seccomp | NoNewPrivs | Bounds
	for _, c := range []struct {
		s    Set
		want Level
	}{
		{0, Off}, {Bounds, Partial}, {base, Partial}, {Landlock | NoNewPrivs | Bounds, Partial},
		{base | Landlock, Confined}, {base | Tree, Confined}, {base | Tree | Processes | Network | IPC, Full}, {All, Full},
		{Cluster, Confined},
	} {
		if got := c.s.Level(); got != c.want {
			t.Errorf("%v is %v, want %v", c.s, got, c.want)
		}
		if lacks := len(c.s.Missing()) > 0; lacks != (c.want < Confined) {
			t.Errorf("%v lacks %v", c.s, c.s.Missing())
		}
	}
}

func TestEveryMeasureHasAName(t *testing.T) {
	if got := Set(All).String(); strings.Count(got, ",") != len(names)-1 || !strings.HasSuffix(got, ",cluster") || Cluster != 1<<(len(names)-1) {
		t.Errorf("all measures are %q", got)
	}
	if got := Set(0).String(); got != "none" {
		t.Errorf("no measure is %q", got)
	}
}
