package run

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// Job is one job on its way. A place that does it owns it until Do returns, but for Process.
type Job struct {
	Asked     *job.Job
	Toolchain *toolchain.Toolchain
	Source    Source
	Files     *files.Set    // of a job whose source was opened when it came; nil: Do opens it
	Tenant    *store.Tenant // whose files a tree may keep for its next job; nil: none
	Allowance *large.Allowance
	Fetches   bool          // the client can fetch a result that is offered
	Limit     time.Duration // of wall time
	OOMKills  uint64        // Host.OOMKills, before the job
	Process   Process       // what runs for it: to be stopped at any time

	// Read is told of the body once it is read; nil: of no interest.
	Read func(b *job.Body)
	// Enter makes the place's tree ready, for a job that needs it. Nil: the tree is open.
	Enter func() error
	// Trouble is told why the job could not be done, for what that says about the host. Nil: of no interest.
	Trouble func(err error)

	// Set by Do: what a compile was ended for, and the result if it is to be offered, which is the caller's to free.
	Excess  sandbox.Excess
	Offered *large.Part

	body *job.Body
	text []byte // of the text form
}

// Open reads the job's body and text out of its source, for the first time.
func (j *Job) Open(mem *large.Memory, scratch *Scratch) (body *job.Body, text []byte, res *job.Result) {
	if res := j.Source.open(j.Asked, j.Allowance, mem, scratch); res != nil {
		return nil, nil, res
	}
	content := j.Source.Content()
	body, err := job.ParseBody(content[:j.Asked.BodyLen])
	if err != nil {
		return nil, nil, Refused(err)
	}
	if (len(body.Blobs)+len(body.Lists) > 0) != j.Asked.Store {
		return nil, nil, Refused(job.Refuse(job.CauseMalformed, "the job says that it has contents to be kept or lists: %v; its body has %d and %d", j.Asked.Store, len(body.Blobs), len(body.Lists)))
	}
	if j.Read != nil {
		j.Read(body)
	}
	return body, content[j.Asked.TextOff:][:j.Asked.TextLen], nil
}

// Drop gives back all that came with a job, or is held for it.
func (j *Job) Drop() {
	j.Source.Drop()
	j.Files.Free()
}

func (j *Job) trouble(err error) {
	if j.Trouble != nil {
		j.Trouble(err)
	}
}
