// Package known makes jobs of commands whose inputs the manager knows (package inputs): no compiler
// runs on this machine then. What it cannot know for certain the compiler is asked by the wrapper,
// which makes the job then; the answer is kept.
//
// It knows a command by its lease, and neither hosts nor what becomes of the job.
package known

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/inputs"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// Job is a compile whose inputs are known.
type Job struct {
	Set  *inputs.Set
	Body *job.Body // with all files of the set, for those who judge its result
	// Source is the source's content, so that a second host compiles what the first one was
	// to compile, whatever has become of the file; nil where it is long.
	Source []byte
}

// maxFile bounds a file of a job whose inputs are known, in bytes: larger ones are read and
// sent by way of a slot, which keeps no copy.
const maxFile = 8 << 20

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

// Words returns all of them, and those of Doubts.
func Words() []string {
	return append(inputs.Doubts(), unknownAsked, unknownUser, unknownView, unknownCommand) // unknownSize is a Doubt's
}

// Changed is why a job is not made of which a file changed meanwhile.
const Changed = reason.NotReproducible + inputs.DoubtChanged

// Table is what is known of files and of what commands read. It is safe for concurrent use.
type Table struct {
	inputs *inputs.Table
	most   uint64 // bytes of a job
	log    *slog.Logger
}

// New returns a table that knows nothing yet. slot is how many bytes a job may have that is written to a host.
func New(slot int64, log *slog.Logger) *Table {
	return &Table{inputs: inputs.New(inputs.Options{MaxFile: min(slot, maxFile)}), most: uint64(slot) / 2, log: log}
}

// Files returns of how many files it is known what they hold and name.
func (t *Table) Files() int { return t.inputs.Stats().Files }

// Command is what a job is to be made of.
type Command struct {
	Lease    *ipc.Lease
	Compiler *compilers.Compiler
	Native   recipes.Native // of the compiler, for the command's words
	Foreign  bool           // the wrapper is another user's
	Fast     bool           // what a host's compiler prints stands
}

// Know finds out what a command reads, and makes the job. why says why that is not known: then the
// wrapper lists it, and where the list answers a question that is asked.
func (t *Table) Know(c *Command) (k *Job, asked *inputs.Query, why string) {
	l, native := c.Lease, c.Native
	cmd := l.Command
	switch {
	case cmd == nil:
		return nil, nil, unknownAsked
	case c.Foreign:
		return nil, nil, unknownUser
	case !sees(cmd.View, l.Cwd):
		return nil, nil, unknownView
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
		return nil, nil, unknownCommand
	}
	plan := compile.Parse(cmd.Args, driver, getenv)
	if plan.Local || plan.Raw || plan.Sources != "" || plan.Source != l.Source || len(plan.Outputs) == 0 {
		return nil, nil, unknownCommand
	}
	front, reason := plan.Native(native.Words, native.Order, true)
	if reason != "" || plan.Precompiled(l.Cwd) || !outputDirs(plan.Outputs, l.Cwd) {
		return nil, nil, unknownCommand
	}
	search, ok := plan.Search(getenv)
	if !ok {
		return nil, nil, unknownCommand
	}
	_, epoch := getenv("SOURCE_DATE_EPOCH")
	q := &inputs.Query{
		Source: plan.Source, Cwd: l.Cwd, Quote: search.Quote, Angle: search.Angle, System: search.System, After: search.After,
		Forced: search.Forced, Words: plan.Whole(), More: plan.Inputs, GCC: driver.Family == compile.GCC,
		Clock: plan.Clocks(c.Compiler.Major, epoch), AsmDirs: plan.AsmDirs(),
	}
	q.Key = strings.Join([]string{string(c.Compiler.ID[:]), l.Compiler, cmd.Argv0, l.Cwd, plan.Language, strings.Join(plan.Whole(), "\x00"), strings.Join(cmd.Env, "\x00")}, "\x01")
	set, why := t.resolve(c.Compiler, q, plan.Language, search.Ask)
	switch {
	case why == unknownCommand:
		return nil, nil, why
	case why != "":
		return nil, q, why
	}
	if set.Len > t.most {
		return nil, nil, unknownSize
	}
	args := plan.Whole()
	if cmd.Terminal && (cmd.Words || c.Fast) {
		term, _ := getenv("TERM")
		args = compile.Coloured(args, driver.Family, term)
	}
	k = &Job{Set: set, Body: &job.Body{
		Argv0: cmd.Argv0, Compiler: cmd.Real, Args: args, Front: uint32(front), Language: plan.Language,
		Name: filepath.Base(plan.Source), Cwd: l.Cwd, Env: cmd.Env, Outputs: plan.Outputs, Dirs: set.Dirs, Links: set.Links,
		Files: make([]job.SourceFile, len(set.Files)),
	}}
	for i, f := range set.Files {
		k.Body.Files[i] = job.SourceFile{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
	}
	if _, what := compile.Unasked(driver.Family, k.Body); what != "" {
		return nil, nil, unknownCommand // the wrapper has the words for it
	}
	if set.Files[0].Len <= maxKept {
		var err error
		if k.Source, err = set.Files[0].Append(make([]byte, 0, set.Files[0].Len+1)); err != nil {
			return nil, nil, inputs.DoubtChanged
		}
	}
	return k, nil, ""
}

// resolve asks for the inputs of q. Where the compiler's own directories for headers have
// changed it asks the compiler for them anew.
func (t *Table) resolve(c *compilers.Compiler, q *inputs.Query, language string, words []string) (*inputs.Set, string) {
	for again := false; ; again = true {
		own := c.Search(language, words, true)
		if own.Dirs == nil {
			return nil, unknownCommand
		}
		q.Own, q.Missing = own.Dirs, own.Missing
		set, err := t.inputs.Resolve(q)
		if err == nil {
			return set, ""
		}
		doubt := err.(*inputs.Doubt) // as documented
		if doubt.Why == inputs.DoubtSearch && !again {
			c.Forget(language, words)
			continue
		}
		t.log.Debug("inputs are not known", "source", q.Source, "doubt", doubt)
		return nil, doubt.Why
	}
}

// Learn keeps what the compiler has said that the job reads, which is in its body, and reports
// whether that answers what Know has asked, if it has.
func (t *Table) Learn(asked *inputs.Query, f *ipc.Submit, body *job.Body) bool {
	if asked == nil || !f.Tree || slices.Contains(f.Absent, "") { // ipc.TooMany
		return false
	}
	names := make([]string, len(body.Files))
	for i := range body.Files {
		names[i] = body.Files[i].Name
	}
	t.inputs.Learn(asked, names, f.Absent, f.Unsure)
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
