package run

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// form is one way to do a job. The methods are called in this order, at most once each, until one returns an
// error.
type form interface {
	// check refuses commands that our own wrapper would never send.
	check() error
	// lay writes the files that the compile reads. A *job.Refusal blames the job.
	lay() error
	// run runs the compiler, and stops it at until. An error means that nothing ran.
	run(out *capture.Capture, until time.Time) (Outcome, error)
	// outputs adds the files that the compiler made to res and g.
	outputs(out *capture.Capture, res *job.Result, g *gathering) error
}
