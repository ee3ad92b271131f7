package run

import (
	"crypto/sha256"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// Job is one job under way. The place that does it owns it until Do returns, except for Process.
type Job struct {
	Asked     *job.Job
	Toolchain *toolchain.Toolchain
	Source    Source
	Files     *files.Set    // set if the source was opened on arrival; nil: Do opens it
	Tenant    *store.Tenant // a tree may keep files of the job for this tenant's next one; nil: it keeps none
	Owner     string        // the tenant's name
	Allowance *large.Allowance
	Fetches   bool          // the client can fetch a result that is offered
	Limit     time.Duration // of wall time
	OOMKills  uint64        // Host.OOMKills before the job
	Process   Process       // what runs for the job; it may be stopped at any time

	// Read, if not nil, is called with the body once it has been read.
	Read func(b *job.Body)
	// Enter opens the place's tree (Place.Open). It is called for a job that needs it.
	Enter func() error
	// Made, if not nil, is called with a result before it may be compressed: its segments are in content.
	Made func(b *job.Body, r *job.Result, content []byte)
	// Trouble, if not nil, is called with the reason why the job could not be done, which says something
	// about the host.
	Trouble func(err error)

	// Sum asks for Inputs.
	Sum bool
	// Inputs is the sum over everything that the compiler has been shown, from contents that this host has
	// verified, as they were laid out (resultcache.Inputs); nil: it is not known. Set by Do.
	Inputs *[sha256.Size]byte
	// Excess is what the compile was ended for. Set by Do.
	Excess sandbox.Excess
	// Cut says that only a part of what the compile printed is in the result. Set by Do.
	Cut bool
	// Offered is the result if the client has to fetch it. Set by Do; the caller frees it.
	Offered *large.Part

	body *job.Body
	text []byte // of the text form
}

// Open reads the job's body and text out of its source; it is called once per job. It returns an answer in
// res if the job ends here, nil otherwise.
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
	if len(body.Images) > 0 && !j.Asked.Store {
		return nil, nil, Refused(job.Refuse(job.CauseMalformed, "precompiled headers of a job without lists"))
	}
	if len(body.Images) > 0 && j.Asked.Key != [32]byte{} { // nothing by which jobs are compared covers what they are made of
		return nil, nil, Refused(job.Refuse(job.CauseMalformed, "a name for the result of a job with precompiled headers"))
	}
	if j.Read != nil {
		j.Read(body)
	}
	return body, content[j.Asked.TextOff:][:j.Asked.TextLen], nil
}

// Drop releases the job's source and files, and what is held for them.
func (j *Job) Drop() {
	j.Source.Drop()
	j.Files.Free()
}

func (j *Job) made(r *job.Result, content []byte) {
	if j.Made != nil {
		j.Made(j.body, r, content)
	}
}

func (j *Job) trouble(err error) {
	if j.Trouble != nil {
		j.Trouble(err)
	}
}
