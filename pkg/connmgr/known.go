package connmgr

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/inputs"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// Where the manager knows what a compile reads (package inputs) it makes the job by
// itself, and no compiler runs on this machine. What it cannot know for certain the
// compiler is asked by the wrapper, which makes the job then; the answer is kept.

// knownJob is a compile whose inputs are known.
type knownJob struct {
	set  *inputs.Set
	body *job.Body // with all files of the set, for those who judge its result
	// source is the source's content, so that a second host compiles what the first one was
	// to compile, whatever has become of the file; nil where it is long.
	source []byte
}

// maxKnownFile bounds a file of a job whose inputs are known, in bytes: larger ones are read and
// sent by way of a slot, which keeps no copy.
const maxKnownFile = 8 << 20

// maxKept bounds a source that is kept for a second host, in bytes.
const maxKept = 1 << 20

// Words for why the inputs of a compile are not known, beside those of an inputs.Doubt.
const (
	unknownAsked   = "asked"   // the wrapper has asked for the list (RDISTCC_INPUTS)
	unknownUser    = "user"    // the wrapper is another user's
	unknownView    = "view"    // the wrapper sees another file system
	unknownSize    = "size"    // together the files are too big
	unknownCommand = "command" // words that change what is read in a way that is not known
)

// unknownWords are all of them; unknownSize is a Doubt's as well.
var unknownWords = []string{unknownAsked, unknownUser, unknownView, unknownSize, unknownCommand}

// know finds out what the job reads. why says why that is not known: then the wrapper lists it.
func (c *client) know(native recipes.Native) (k *knownJob, why string) {
	l := c.lease
	cmd := l.Command
	switch {
	case cmd == nil:
		return nil, unknownAsked
	case c.foreign():
		return nil, unknownUser
	case !sees(cmd.View, l.Cwd):
		return nil, unknownView
	}
	getenv := func(name string) (string, bool) {
		for _, kv := range cmd.Env {
			if rest, ok := strings.CutPrefix(kv, name); ok && strings.HasPrefix(rest, "=") {
				return rest[1:], true
			}
		}
		return "", false
	}
	driver, ok := compile.DriverOf(cmd.Argv0, cmd.Real)
	if !ok {
		return nil, unknownCommand
	}
	plan := compile.Parse(cmd.Args, driver, getenv)
	if plan.Local || plan.Raw || plan.Sources != "" || plan.Source != l.Source || len(plan.Outputs) == 0 {
		return nil, unknownCommand
	}
	front, reason := plan.Native(native.Words, native.Order, true)
	if reason != "" || plan.Precompiled(l.Cwd) || !outputDirs(plan.Outputs, l.Cwd) {
		return nil, unknownCommand
	}
	search, ok := plan.Search(getenv)
	if !ok {
		return nil, unknownCommand
	}
	_, epoch := getenv("SOURCE_DATE_EPOCH")
	q := &inputs.Query{
		Source: plan.Source, Cwd: l.Cwd, Quote: search.Quote, Angle: search.Angle, System: search.System, After: search.After,
		Forced: search.Forced, Words: plan.Whole(), More: plan.Inputs, GCC: driver.Family == compile.GCC,
		Clock: plan.Clocks(c.toolchain.Major, epoch), AsmDirs: plan.AsmDirs(),
	}
	q.Key = strings.Join([]string{string(c.toolchain.ID[:]), l.Compiler, cmd.Argv0, l.Cwd, plan.Language, strings.Join(plan.Whole(), "\x00"), strings.Join(cmd.Env, "\x00")}, "\x01")
	set, why := c.resolve(q, plan.Language, search.Ask)
	if why != "" {
		return nil, why
	}
	if set.Len > uint64(c.m.o.SlotSize)/2 {
		return nil, unknownSize
	}
	args := plan.Whole()
	if cmd.Terminal && (cmd.Words || c.m.live().Fast) {
		term, _ := getenv("TERM")
		args = compile.Coloured(args, driver.Family, term)
	}
	k = &knownJob{set: set, body: &job.Body{
		Argv0: cmd.Argv0, Compiler: cmd.Real, Args: args, Front: uint32(front), Language: plan.Language,
		Name: filepath.Base(plan.Source), Cwd: l.Cwd, Env: cmd.Env, Outputs: plan.Outputs, Dirs: set.Dirs, Links: set.Links,
		Files: make([]job.SourceFile, len(set.Files)),
	}}
	for i, f := range set.Files {
		k.body.Files[i] = job.SourceFile{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
	}
	if _, what := compile.Unasked(driver.Family, k.body); what != "" {
		return nil, unknownCommand // the wrapper has the words for it
	}
	if set.Files[0].Len <= maxKept {
		var err error
		if k.source, err = set.Files[0].Append(make([]byte, 0, set.Files[0].Len+1)); err != nil {
			return nil, inputs.DoubtChanged
		}
	}
	return k, ""
}

// resolve asks for the inputs of q. Where the compiler's own directories for headers have
// changed it asks the compiler for them anew.
func (c *client) resolve(q *inputs.Query, language string, words []string) (*inputs.Set, string) {
	id := string(c.toolchain.ID[:])
	for again := false; ; again = true {
		own := c.m.compilers.search.Get(c.m.ctx, id, c.lease.Compiler, language, words, driverEnv, true)
		if own.Dirs == nil {
			return nil, unknownCommand
		}
		q.Own, q.Missing = own.Dirs, own.Missing
		set, err := c.m.inputs.Resolve(q)
		if err == nil {
			return set, ""
		}
		doubt := err.(*inputs.Doubt) // as documented
		if doubt.Why == inputs.DoubtSearch && !again {
			c.m.compilers.search.Forget(id, c.lease.Compiler, language, words)
			continue
		}
		c.m.o.Log.Debug("inputs are not known", "source", q.Source, "doubt", doubt)
		c.query = q
		return nil, doubt.Why
	}
}

// compileListed has a host compile a job that the wrapper has made. Where what the compiler listed
// for it is enough to know what it reads, its host gets only what it has not yet.
func (c *client) compileListed(t *task, f *ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
	if c.learnInputs(f, t.body) {
		if native, ok := c.native(); ok {
			if k, _ := c.know(native); k != nil {
				r, no := c.compile(c.knownTask(k), true)
				if no == nil || no.Reason != reasonChanged {
					return r, no
				}
			}
		}
	}
	return c.compile(t, f.Tree)
}

// learnInputs keeps what the compiler has said that the job reads, which is in its body, and reports
// whether there was a question to which that is an answer.
func (c *client) learnInputs(f *ipc.Submit, body *job.Body) bool {
	if c.query == nil || !f.Tree || slices.Contains(f.Absent, "") { // ipc.TooMany
		return false
	}
	names := make([]string, len(body.Files))
	for i := range body.Files {
		names[i] = body.Files[i].Name
	}
	c.m.inputs.Learn(c.query, names, f.Absent, f.Unsure)
	return true
}

// outputDirs reports whether the directories of all outputs exist: where a host compiles
// they do.
func outputDirs(outputs []job.Output, cwd string) bool {
	last := ""
	for i := range outputs {
		dir := filepath.Dir(outputs[i].Name)
		if !filepath.IsAbs(dir) {
			dir = cwd + "/" + dir
		}
		if dir == last {
			continue
		}
		last = dir
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return false
		}
	}
	return true
}

// sees reports whether this process sees what a wrapper does in its working directory.
func sees(v ipc.View, cwd string) bool { return v.Mounts != 0 && v.CwdIno != 0 && v == ipc.Look(cwd) }

// onKnown has a host compile a job whose inputs are known, and answers with its result.
func (c *client) onKnown(k *knownJob, native recipes.Native) error {
	var err error
	if c.sink, err = c.m.memory.Sink(c.ctx, c.uid, c.watch); err != nil {
		return c.goLocal(noSlot(err))
	}
	c.free = true // the wrapper has no source to write to
	fd, err := c.sink.OpenReader()
	if err != nil {
		return c.goLocal(noSlot(err))
	}
	defer closeFD(fd)
	c.watch()
	r, no := c.compile(c.knownTask(k), true)
	if no != nil && no.Reason == reasonChanged {
		// Between the look at a file and its sending. Once more, as it is now.
		if again, _ := c.know(native); again != nil {
			k = again
			r, no = c.compile(c.knownTask(k), true)
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return nil
	case no != nil:
		return c.goLocal(no)
	}
	how := ipc.InputsScan
	if k.set.Memo {
		how = ipc.InputsMemo
	}
	c.m.metrics.Inputs(how)
	c.record.Inputs, c.record.Files = how, uint32(len(k.set.Files))
	c.record.Host = r.Host
	leased := (&ipc.Leased{Job: c.id, Family: c.toolchain.Family, Major: uint32(c.toolchain.Major), Tree: true, Fast: c.m.live().Fast,
		Known: true, Inputs: how, Files: uint32(len(k.set.Files)), Unsure: k.set.Unsure}).Append(nil)
	if !r.Moved {
		return c.conn.Send(r.Append(leased), fd) // both at once: the wrapper wakes up once
	}
	// The result lies in another sink, whose descriptor comes with it.
	if err := c.conn.Send(leased, fd); err != nil {
		return err
	}
	return c.sendResult(r)
}

// reasonChanged is why a job is not made of which a file changed meanwhile.
const reasonChanged = reason.NotReproducible + inputs.DoubtChanged

// knownTask makes the task of a job whose inputs are known.
func (c *client) knownTask(k *knownJob) *task {
	t := &task{m: c.m, id: c.id, uid: c.uid, toolchain: c.toolchain.ID, name: c.record.Source, limit: c.timeLimit(),
		compress: c.list.Compress, body: k.body, known: k}
	t.object = c.expectObject(k.body)
	c.predict(t)
	return t
}

// howListed says how the wrapper made a job.
func howListed(f *ipc.Submit) string {
	if f.Tree {
		return "list"
	}
	return "text"
}
