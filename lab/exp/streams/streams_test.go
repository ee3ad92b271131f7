package streams

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
)

func TestMain(m *testing.M) {
	peer.Called(Handlers())
	os.Exit(m.Run())
}

// TestRunsThrough: each experiment measures each cell once, at its smallest size.
func TestRunsThrough(t *testing.T) {
	for _, e := range []*exp.Experiment{Direct, Reads, Applications, Throughput, Overlap, Touching, Connections} {
		t.Run(e.Name, func(t *testing.T) {
			r, err := exp.Run(t.Context(), e, exp.Options{Size: exp.Tiny, Rounds: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range e.Cells(exp.Tiny) {
				for _, m := range e.Metrics {
					if i := r.Of(c, m.Name); i.N > 1 || i.N == 1 && i.Median < 0 {
						t.Errorf("%s: %s is %+v", c.Key(), m.Name, i)
					}
				}
			}
		})
	}
}
