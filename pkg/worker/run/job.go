package run

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
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
	if res := j.Source.open(j, mem, scratch); res != nil {
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

// form chooses how a job is done. inTree: in the place's tree.
func (p *Place) form(j *Job) (x form, inTree bool, err error) {
	switch {
	case j.Files != nil && !p.h.Trees:
		return nil, false, ErrNoTrees
	case j.Files != nil:
		return &sourcesInTree{p: p, j: j}, true, nil
	case p.h.Confined:
		return &textInTree{text{p: p, j: j}}, true, nil
	}
	return &textHere{text{p: p, j: j}}, false, nil
}

// ErrNoTrees answers a job of the sources form where there can be no trees.
var ErrNoTrees error = job.Refuse(job.CauseTree, "the host cannot show private trees")

// Do does a job: its answer, and how many bytes at the start of its slot are the content of the answer's segments.
// Clean follows.
func (p *Place) Do(j *Job) (*job.Result, int) {
	if res := p.open(j); res != nil {
		return res, 0
	}
	x, inTree, err := p.form(j)
	if err == nil {
		err = x.check()
	}
	if err == nil {
		err = p.h.Verify(p.h.Context, j.Toolchain)
	}
	if err != nil {
		return Refused(err), 0
	}
	if inTree {
		if res := p.enter(j); res != nil {
			return res, 0
		}
	}
	// How many files and directories there are the client says, so what is done about those takes of its time.
	until := time.Now().Add(j.Limit)
	defer time.AfterFunc(j.Limit, func() { j.Process.Stop(job.CauseTimeout) }).Stop()
	if err := x.lay(); err != nil {
		return p.notLaid(j, err), 0
	}
	j.Drop() // it is files now
	out, err := p.newCapture()
	if err != nil {
		return p.unable(j, err), 0
	}
	defer out.Close()
	o, err := x.run(out, until)
	if err != nil {
		return p.unable(j, err), 0
	}
	return p.conclude(j, x, out, o)
}

// open makes a job's body and files known. An answer is why it ends here.
func (p *Place) open(j *Job) (res *job.Result) {
	if j.Files != nil { // it was opened when it came
		j.body = j.Files.Body
		return sumUp(j.Files.Own, j.Files.Sum)
	}
	if j.body, j.text, res = j.Open(p.h.Large, &p.scratch); res != nil {
		return res
	}
	if j.body.HasFiles() {
		var err error
		if j.Files, err = files.Bring(j.body, j.text); err != nil {
			return Refused(err)
		}
	}
	return nil
}

// enter makes the tree ready for a job, which without lists finds nothing there of any that was before.
func (p *Place) enter(j *Job) *job.Result {
	var err error
	if j.Enter != nil {
		err = j.Enter()
	}
	if err == nil && (j.Files == nil || len(j.Files.Lists) == 0) {
		err = p.Forget()
	}
	if err == nil {
		p.used, p.undone = true, false
		return nil
	}
	if Scarce(err) {
		return p.unable(j, err)
	}
	p.h.Log.Error("private tree", "err", err)
	var no *job.Refusal
	switch {
	case errors.As(err, &no):
	case p.h.Confined:
		no = job.Refuse(job.CauseSandbox, "%v", err)
	default:
		no = job.Refuse(job.CauseTree, "%v", err)
	}
	return Refused(no)
}

// notLaid returns the answer of a job whose files could not be laid.
func (p *Place) notLaid(j *Job, err error) *job.Result {
	if res := p.stopped(err); res != nil {
		return res
	}
	var no *job.Refusal
	switch {
	case errors.Is(err, files.ErrSpoiled):
		return Failed(err)
	case errors.As(err, &no):
		return Refused(no)
	}
	return p.unable(j, err)
}

// conclude makes the answer of a compile that has ended.
func (p *Place) conclude(j *Job, x form, out *capture.Capture, o Outcome) (*job.Result, int) {
	j.Excess = o.Excess
	res := &job.Result{Exit: uint8(o.Exit), Signal: uint8(o.Signal), CPU: Micros(o.CPU), MaxRSS: o.MaxRSS}
	used := func(r *job.Result) (*job.Result, int) {
		r.CPU, r.MaxRSS = res.CPU, res.MaxRSS
		return r, 0
	}
	if o.Stopped != job.CauseNone {
		return used(p.stopped(&stopError{o.Stopped}))
	}
	limits := p.h.limits(j.Limit)
	if no := p.h.exceeded(o.Excess, &limits); no != nil {
		p.h.Denied(denial(o.Excess))
		return used(Failed(no))
	}
	if out.Cut() {
		p.h.Denied(deniedOutput)
	}
	n := 0
	err := p.outOfMemory(j, out, res)
	if err == nil {
		n, err = p.gather(j, x, out, res)
	}
	if err == nil {
		return res, n
	}
	if f := p.stopped(err); f != nil {
		return used(f)
	}
	j.trouble(err)
	return used(Failed(err))
}

// Micros returns d in microseconds, within what a result can say.
func Micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
