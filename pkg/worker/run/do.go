package run

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
)

// form chooses how a job is done. inTree reports whether it needs the place's tree.
func (p *Place) form(j *Job) (x form, inTree bool, err error) {
	switch {
	case p.h.Cluster != nil && j.Files != nil:
		return &sourcesAway{sourcesInTree{p: p, j: j}, away{p: p, j: j}}, false, nil
	case p.h.Cluster != nil:
		return &textAway{text{p: p, j: j}, away{p: p, j: j}}, false, nil
	case j.Files != nil && !p.h.Trees:
		return nil, false, ErrNoTrees
	case j.Files != nil:
		return &sourcesInTree{p: p, j: j}, true, nil
	case p.h.Confined:
		return &textInTree{text{p: p, j: j}}, true, nil
	}
	return &textHere{text{p: p, j: j}}, false, nil
}

// ErrNoTrees refuses a job of the sources form on a host that has no private trees.
var ErrNoTrees error = job.Refuse(job.CauseTree, "the host cannot show private trees")

// Do does a job. It returns the answer, and how many bytes at the start of the job's slot hold the content of
// the answer's segments. The caller calls Clean afterwards.
func (p *Place) Do(j *Job) (*job.Result, int) {
	if res := p.open(j); res != nil {
		return res, 0
	}
	p.unlisted = p.unlisted[:0]
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
	// The client decides how many files and directories there are, so laying them out counts against its time
	// limit.
	until := time.Now().Add(j.Limit)
	defer time.AfterFunc(j.Limit, func() { j.Process.Stop(job.CauseTimeout) }).Stop()
	if err := x.lay(); err != nil {
		return p.notLaid(j, err), 0
	}
	if w := p.noFlag(j); w != "" {
		return Refused(policy.Unlisted(w)), 0
	}
	p.sum(j)
	if p.h.Cluster == nil { // otherwise the files are still to be sent
		j.Drop() // the files are in place: what they came in is no longer needed
	}
	out, err := p.newCapture()
	if err != nil {
		return p.unable(j, err), 0
	}
	defer out.Close()
	o, err := x.run(out, until)
	switch {
	case err != nil && p.h.Cluster != nil:
		return p.notAway(j, err), 0
	case err != nil:
		return p.unable(j, err), 0
	case p.h.Cluster != nil:
		j.Drop()
	}
	return p.conclude(j, x, out, o)
}

// open reads a job's body and files. It returns an answer if the job ends here, nil otherwise.
func (p *Place) open(j *Job) (res *job.Result) {
	if j.Files != nil { // the source was opened on arrival
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

// enter makes the tree ready for a job. A job without lists finds nothing there of earlier jobs. It returns an
// answer if the job ends here, nil otherwise.
func (p *Place) enter(j *Job) *job.Result {
	err := j.Enter()
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
	return Refused(p.noTree(err))
}

// noTree returns the refusal of a job that gets no tree because of err, which it logs.
func (p *Place) noTree(err error) *job.Refusal {
	p.h.Log.Error("private tree", "err", err)
	var no *job.Refusal
	switch {
	case errors.As(err, &no):
		return no
	case p.h.Confined:
		return job.Refuse(job.CauseSandbox, "%v", err)
	}
	return job.Refuse(job.CauseTree, "%v", err)
}

// again empties the tree in the middle of a job, which goes on in another one if there is too much to clean up.
func (p *Place) again(j *Job) error {
	if err := p.cleanTree(); err != nil || p.tree != nil {
		return err
	}
	err := j.Enter()
	p.used = true // a canary may have cleaned up
	if err != nil && !Scarce(err) {
		return p.noTree(err)
	}
	return err
}

// notLaid returns the answer to a job whose files could not be laid out because of err.
func (p *Place) notLaid(j *Job, err error) *job.Result {
	if res := p.stopped(err); res != nil {
		return res
	}
	var no *job.Refusal
	var over *excessError
	switch {
	case errors.Is(err, files.ErrSpoiled), errors.As(err, &over):
		return Failed(err)
	case errors.As(err, &no):
		return Refused(no)
	}
	return p.unable(j, err)
}

// conclude makes the answer from a compile that has ended. It returns what Do returns.
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
		if o.Excess == sandbox.ExcessNames { // no fault of the host's
			return used(Refused(no))
		}
		return used(Failed(no))
	}
	if j.Cut = out.Cut(); j.Cut {
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

// gather copies what the compile made to the start of the job's slot, where the text is no longer needed:
// stdout, stderr, then the outputs. If that is too big for the slot or the sink, it goes to large memory
// (j.Offered), for the client to fetch. gather returns how many bytes of the slot are used.
func (p *Place) gather(j *Job, x form, out *capture.Capture, res *job.Result) (int, error) {
	g := gathering{dense: j.Asked.Key != [32]byte{}}
	defer g.close()
	for i, seg := range []*job.Segment{&res.Stdout, &res.Stderr} {
		data, err := out.Written(i)
		if err != nil {
			return 0, err
		}
		g.add(uint64(len(data)), seg, func(to []byte) error { copy(to, data); return nil })
	}
	if res.Signal == 0 { // what a killed compiler leaves is not an output
		if err := x.outputs(out, res, &g); err != nil {
			return 0, err
		}
	}
	mem := j.Source.Slot
	room := min(uint64(len(mem)), j.Asked.Sink.Len)
	if g.n <= room {
		if err := g.fill(mem); err != nil {
			return 0, err
		}
		j.made(res, mem)
		return p.seal(j, mem[:g.n], res), nil
	}
	if g.n > j.Asked.Fetch || g.n > uint64(p.h.Result) || !j.Fetches {
		return 0, job.Refuse(job.CauseTooBig, "result is larger than the buffer of %d bytes", room)
	}
	big, err := p.h.Large.TryGet(j.Allowance, int64(g.n), job.CauseTooBig)
	if err != nil {
		return 0, err
	}
	if err := g.fill(big.Mem); err != nil {
		big.Free()
		return 0, err
	}
	j.made(res, big.Mem)
	j.Offered = p.sealLarge(j, big, res)
	return 0, nil
}
