package run

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// form is one way to do a job. The methods are called in this order, once each; without an error from one follows
// the next.
type form interface {
	// check refuses what no wrapper of ours would send.
	check() error
	// lay writes the files that the compile finds. A *job.Refusal blames the job.
	lay() error
	// run runs the compiler, until then. An error means that nothing ran.
	run(out *capture.Capture, until time.Time) (Outcome, error)
	// outputs adds the files that the compiler made to the result.
	outputs(out *capture.Capture, res *job.Result, g *gathering) error
}
