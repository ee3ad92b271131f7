package connmgr

import (
	"errors"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/artifact"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// maxRules is more than a file of make's rules takes, in bytes.
const maxRules = 8 << 20

// objectMaker says how objects begin that the compiler here makes with such words; nil
// where it makes none.
type objectMaker func(c *client, language string, words []string) []byte

// makeObject has the compiler here compile nothing, once for each set of words.
func makeObject(c *client, language string, words []string) []byte {
	return c.m.objects.Get(c.m.ctx, string(c.toolchain.ID[:]), c.lease.Compiler, language, words, driverEnv)
}

// expectObject finds out, while a host compiles, what kind of object the job's compiler
// makes. The answer is closed over; it waits for that.
func (c *client) expectObject(body *job.Body) func() (want artifact.Object, ok bool) {
	words, exact := artifact.ModeWords(body.Args)
	if !exact {
		return func() (artifact.Object, bool) { return artifact.Object{}, false }
	}
	language := "c"
	if strings.HasPrefix(body.Language, "c++") {
		language = "c++" // the driver's own if it has no other
	}
	done := make(chan struct{})
	var head []byte
	c.m.clients.Go(func() {
		defer close(done)
		head = c.m.o.Object(c, language, words)
	})
	return func() (artifact.Object, bool) {
		<-done
		if len(head) == 0 {
			return artifact.Object{}, false
		}
		want, err := artifact.ReadObject(head)
		return want, err == nil
	}
}

// distrust holds a result that went well, plain in mem, against what the compiler here
// would have made: nobody has looked at more than its numbers yet. An outcome says that
// it does not stand.
func (a *attempt) distrust(r *job.Result, mem []byte) *outcome {
	what, err := a.checkOutputs(r, mem)
	if err == nil {
		style := artifact.StyleOf(a.body.Args)
		for _, s := range [...]job.Segment{r.Stdout, r.Stderr} {
			if err = artifact.CheckWords(part(mem, s), style); err != nil {
				what = "its messages"
				break
			}
		}
	}
	if err == nil {
		return nil
	}
	l, h := a.link, a.at.addr
	if !errors.Is(err, artifact.ErrForged) {
		a.m.o.Log.Info("a result is not taken: compiled here to be sure", "job", a.id, "source", a.name, "host", h, "what", what, "err", err)
		a.m.metrics.distrusts.WithLabelValues("doubt").Inc()
		return &outcome{final: true, blame: scheduler.Unused, local: &ipc.GoLocal{Reason: "diagnostics", Host: h}}
	}
	a.m.metrics.distrusts.WithLabelValues("forged").Inc()
	err = errors.New(what + " is " + err.Error())
	a.m.mu.Lock()
	l.FailLocked(err)
	a.m.mu.Unlock()
	return &outcome{blame: scheduler.Fault, local: lostHost(h, err.Error())}
}

// checkOutputs looks at the files of a result; what is the one that an error is about.
func (a *attempt) checkOutputs(r *job.Result, mem []byte) (what string, err error) {
	for i := range r.Files {
		out := &a.body.Outputs[r.Files[i].Index]
		content := part(mem, r.Files[i].Segment)
		head := content[:min(len(content), 4096)]
		what = "its " + kindWords[out.Kind]
		suffix := out.Name[strings.LastIndexByte(out.Name, '.')+1:]
		switch {
		case out.Kind == job.OutputObject || out.Kind == job.OutputSide && (suffix == "o" || suffix == "dwo"):
			if len(content) == 0 && r.Exit != 0 {
				continue
			}
			want, ok := a.object()
			err = artifact.CheckObject(head[:min(len(head), artifact.HeadLen)], want, ok)
		case out.Kind == job.OutputAssembly || out.Kind == job.OutputStackUsage:
			err = artifact.CheckText(head)
		case out.Kind == job.OutputDependency:
			err = a.checkRules(content)
		}
		if err != nil {
			return what, err
		}
	}
	return "", nil
}

// kindWords name outputs in the line that a user reads.
var kindWords = [...]string{job.OutputObject: "object", job.OutputAssembly: "assembly", job.OutputStackUsage: "stack usage file",
	job.OutputSide: "side file", job.OutputDependency: "dependency file"}

// checkRules holds a dependency file against the files that the job brought.
func (a *attempt) checkRules(content []byte) error {
	if len(content) > maxRules {
		return artifact.ErrDoubt
	}
	b := a.body
	targets := artifact.Targets(b.Args, b.Outputs[0].Name, b.Name)
	files := make(map[string]bool, len(b.Files))
	for i := range b.Files {
		files[b.Files[i].Name] = true
	}
	return artifact.CheckRules(string(content), func(w string) bool { return targets[w] },
		func(name string) bool { return files[name] || files[strings.TrimPrefix(name, "./")] })
}

// part is a segment of a result, which checkResult has found inside.
func part(mem []byte, s job.Segment) []byte { return mem[s.Off:][:s.Len] }
