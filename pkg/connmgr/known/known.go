// Package known makes jobs from commands whose inputs the manager knows (package inputs), so that no compiler
// runs on this machine. If the inputs are not certain, the wrapper asks the compiler and makes the job; the
// answer is kept.
//
// The package knows a command from its lease. It knows nothing of hosts, or of what becomes of the job.
package known

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/vigil"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Job is a compile whose inputs are known.
type Job struct {
	Set  *inputs.Set
	Body *job.Body // with all files of the set, to check the result against
	// Source is the source's content, so that a second host compiles the same as the first one, even if the
	// file has changed meanwhile. It is nil if the source is longer than maxKept.
	Source []byte
	// Images are the sets that the precompiled headers of Body.Images are made of.
	Images []*inputs.Set
	// Modules are the names of C++ modules that its rules for make may have.
	Modules modules.Rules
	// Module is what a compiled module of clang's has to say of the directories for headers; nil: there is none.
	Module *modules.Search

	// Lacking are headers that are not to be found here, by their names as in an include directive, sorted; some of those that the
	// compile may look for.
	Lacking []string

	// Left means that a link with LTO has left it.
	Left bool

	whole *inputs.Set // of Set, if hosts keep the source as they keep what else it reads (KeepSource); nil: they do not

	rules *compile.Rules // that it writes; nil: they do not tell what it has read
	here  *inputs.Query  // that Set answers, for Guard; nil: a compile here is not guarded

	search *search // for Judge; nil: it is not to be judged
}

// Sets returns all sets of files that the job needs, as their lists travel. The first one's list has the source too if hosts keep that.
func (k *Job) Sets() []*inputs.Set { return append([]*inputs.Set{cmp.Or(k.whole, k.Set)}, k.Images...) }

// KeepSource has hosts keep the source like what else the job reads, because other jobs will read the same content. Otherwise it is the
// job's own, and nothing there remains of it. It must not be called beside Sets.
func (k *Job) KeepSource() { k.whole = k.Set.Whole() }

// Own returns the files that are the job's own: the source, unless hosts keep that.
func (k *Job) Own() []*inputs.Input {
	if k.whole != nil {
		return nil
	}
	return k.Set.Files[:1]
}

// Spare reports whether the compile may leave files of the Set unread, and will tell which.
func (k *Job) Spare() bool { return k.rules != nil && k.Set.Spare() }

// Unread returns which files of the Set the compile has not read, by its outputs. output returns one of them by
// its index, or nil. ok is false if there are no such files, or if it is not certain which.
func (k *Job) Unread(output func(index int) []byte) (u inputs.Unread, ok bool) {
	if !k.Spare() {
		return nil, false
	}
	return k.Set.Unread(k.Body.Cwd, output(k.rules.Output), k.rules.All)
}

// maxKept is the size of the largest source, in bytes, that is kept for a second host.
const maxKept = 1 << 20

// Reasons why the inputs of a compile are not known, in addition to those of an inputs.Doubt.
const (
	unknownAsked   = "asked"   // the wrapper has asked for the list (RDISTCC_INPUTS)
	unknownUser    = "user"    // the wrapper is another user's
	unknownView    = "view"    // the wrapper sees another file system
	unknownSize    = "size"    // together the files are too big
	unknownCommand = "command" // the command itself: a word, or a file of it, rules it out
)

// Words returns all these reasons, including those of inputs.Doubts.
func Words() []string {
	return append(inputs.Doubts(), unknownAsked, unknownUser, unknownView, unknownCommand, Sought) // unknownSize is a Doubt's
}

// Changed is the reason why a job is not made: one of its files changed while the manager looked.
const Changed = reason.NotReproducible + inputs.DoubtChanged

// Pipe is why a compile's inputs are not known if one is a pipe. A preprocessor that lists the inputs would read what is meant
// for the compiler.
const Pipe = inputs.DoubtPipe

// Image is the reason why a command stays here if it uses a precompiled header that hosts cannot make.
const Image = reason.NotReproducible + inputs.DoubtPCH

// Table holds what is known about files and about what commands read. It is safe for concurrent use.
type Table struct {
	inputs *inputs.Table
	most   uint64 // bytes that all that a job reads may have together
	log    *slog.Logger
	images images

	watches watches
	vigils  vigil.Watcher
}

// New returns an empty table. source is the size of the largest job, in bytes, that can be sent: what a host holds
// is not. memory is how many bytes the table may take with garbage that waits for its collection, which may be as much again.
func New(source, memory int64, log *slog.Logger) *Table {
	return &Table{inputs: inputs.New(inputs.Options{MaxFile: source, Memory: memory / 2}), most: uint64(max(source/2, source-job.MaxBodyLen)), log: log,
		watches: watches{turns: make(chan struct{}, mostWatches)}}
}

// Files returns the number of files whose contents and include directives are known.
func (t *Table) Files() int { return t.inputs.Stats().Files }

// Stats returns how much is known, and how many bytes it takes.
func (t *Table) Stats() inputs.Stats { return t.inputs.Stats() }

// Command is what a job is made from.
type Command struct {
	Lease    *ipc.Lease
	Compiler *compilers.Compiler
	Native   recipes.Native // what the command's "native" words stand for
	Foreign  bool           // the wrapper is another user's
	Fast     bool           // what a host's compiler prints is accepted
	// Environ, if not nil, returns the wrapper's whole environment.
	Environ func() []string
}

// Know finds out what a command reads, and makes the job. If that is not known, why is the reason, and the
// wrapper has to list the files. asked is the query that such a list would answer, or nil; the caller passes
// it to Learn.
func (t *Table) Know(ctx context.Context, c *Command) (k *Job, asked *inputs.Query, why string) {
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
	getenv := variables(cmd.Env)
	driver, ok := compile.DriverOf(cmd.Argv0, cmd.Real)
	if !ok {
		return nil, nil, unknownCommand
	}
	plan := compile.ParseUnlisted(cmd.Args, driver, getenv)
	if plan.Local || plan.Raw && !plan.Assembly() && !plan.Left() || plan.Sources != "" || plan.Source != l.Source {
		return nil, nil, unknownCommand
	}
	if plan.FindModules(l.Cwd, func(words []string) []string { return c.Compiler.Search("c++", words, true).Dirs }) != "" {
		return nil, nil, unknownCommand
	}
	if plan.HeaderUnit() && plan.Main() != l.Output {
		return nil, nil, unknownCommand // the wrapper has found another header: the compiler's own directories have changed
	}
	front, reason := plan.Native(native.Words, native.Order, true)
	if reason != "" || !outputDirs(&plan, l.Cwd) {
		return nil, nil, unknownCommand
	}
	if plan.Left() {
		k, why := t.left(c, &plan)
		return k, nil, why
	}
	if plan.MakesModule() && !fitModule(c, front) || plan.NewModules && !c.Compiler.ReadsModules() {
		return nil, nil, unknownCommand
	}
	q, ask, ok := query(c, &plan)
	if !ok {
		return nil, nil, unknownCommand
	}
	set, why := t.resolve(c.Compiler, q, plan.SearchLanguage(), ask)
	switch {
	case why == unknownCommand:
		return nil, nil, why
	case why != "":
		return nil, q, why
	}
	if plan.Driver.Tidy && !tidyFits(&plan, l.Cwd, set) {
		return nil, nil, unknownCommand
	}
	images := slices.Concat(set.Images, plan.Images)
	used, why := t.use(ctx, c, set.Images, plan.Images)
	made := q
	if why == "" && len(used) > 0 {
		if front > 0 || plan.Modules() {
			return nil, nil, inputs.DoubtPCH
		}
		set, made, why = t.with(c.Compiler, q, plan.Language, ask, set, used)
	}
	if why != "" {
		return nil, nil, why
	}
	if total(set, used) > t.most || !listable(set) {
		return nil, nil, unknownSize
	}
	k = &Job{Set: set, Modules: plan.ModuleRules, Body: body(c, &plan)}
	k.Body.Front = uint32(front)
	if canWatch(&plan) && made != nil {
		k.search = &search{plan: &plan, query: made, ask: ask, set: set, images: images}
	}
	if rules, ok := plan.Rules(); ok && len(used) == 0 {
		k.rules = &rules
	}
	if keptHere(plan.Outputs, plan.Appends) && len(used) == 0 && !plan.Driver.Tidy && !plan.Modules() {
		k.here = q
	}
	if plan.MakesModule() {
		k.Module = searchOf(q)
	}
	if plan.PlainSearch() {
		k.Lacking = set.Lacking
	}
	if k.fill(used) != nil {
		return nil, nil, inputs.DoubtChanged
	}
	if _, what := compile.Unasked(driver.Family, k.Body); what != "" || compile.Planted(plan.Plugins(), k.Body) != "" {
		return nil, nil, unknownCommand // the wrapper reports what is wrong with the command
	}
	return k, nil, ""
}

// body returns the job of a command without its files.
func body(c *Command, plan *compile.Plan) *job.Body {
	l, cmd, args := c.Lease, c.Lease.Command, plan.Whole()
	if cmd.Terminal && (cmd.Words || c.Fast) && !plan.Driver.Tidy {
		term, _ := variables(cmd.Env)("TERM")
		args = compile.Coloured(args, plan.Driver.Family, term)
	}
	return &job.Body{Argv0: cmd.Argv0, Compiler: cmd.Real, Args: args, Language: plan.Language,
		Name: filepath.Base(plan.Source), Cwd: l.Cwd, Env: cmd.Env, Outputs: plan.Outputs}
}

// fill completes k by the files of its set, and by the precompiled headers that it may use. The error is that of inputs.Input.Append.
func (k *Job) fill(used []*recipe) (err error) {
	set, b := k.Set, k.Body
	b.Dirs, b.Links, b.Files = set.Dirs, set.Links, make([]unit.File, len(set.Files))
	for i, f := range set.Files {
		b.Files[i] = unit.File{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
	}
	for _, r := range used {
		b.Images, k.Images = append(b.Images, r.body), append(k.Images, r.set)
	}
	if source := set.Files[0]; source.Len <= maxKept {
		k.Source, err = source.Append(make([]byte, 0, source.Len+1))
	}
	return err
}

// total returns how much a compile reads, in bytes, with what is read for the precompiled headers that it uses.
func total(set *inputs.Set, used []*recipe) uint64 {
	n := set.Len
	for _, r := range used {
		n += r.set.Len
	}
	return n
}

// listable reports whether a host takes the lists of a set.
func listable(s *inputs.Set) bool {
	length := 0
	for ; s != nil; s = s.Base() {
		_, n := s.List()
		length += n
	}
	return length <= job.MaxBodyLen
}

// variables returns a look-up in variables, NAME=value each.
func variables(env []string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if rest, ok := strings.CutPrefix(kv, name); ok && strings.HasPrefix(rest, "=") {
				return rest[1:], true
			}
		}
		return "", false
	}
}

// rootThroughLink reports whether words name a root for headers by a name that leads through a link. gcc tells of what is below
// by names without the link, and nothing says then that a compile needs it.
func rootThroughLink(words []string) bool {
	for i, w := range words {
		root, is := strings.CutPrefix(w, "--sysroot")
		if !is {
			if root, is = strings.CutPrefix(w, "-isysroot"); !is {
				continue
			}
		}
		if root = strings.TrimPrefix(root, "="); root == "" && i+1 < len(words) {
			root = words[i+1]
		}
		if real := sources.RealPath(root); real != "" && real != path.Clean(root) {
			return true
		}
	}
	return false
}

// query returns what is to be found out for the plan of a command, and the words that choose the compiler's own
// directories.
func query(c *Command, plan *compile.Plan) (q *inputs.Query, ask []string, ok bool) {
	l, cmd := c.Lease, c.Lease.Command
	getenv := variables(cmd.Env)
	search, ok := plan.Search(getenv)
	if !ok || rootThroughLink(search.Ask) {
		return nil, nil, false
	}
	more := plan.Inputs
	if search.Lists {
		lists := compile.SanitizerLists(c.Compiler.Search(plan.SearchLanguage(), search.Ask, true).Dirs)
		if lists == nil || plan.Modules() || plan.Driver.Tidy {
			return nil, nil, false
		}
		more = slices.Concat(more, lists)
	}
	_, epoch := getenv("SOURCE_DATE_EPOCH")
	q = &inputs.Query{
		Source: plan.SourceFile(), Cwd: l.Cwd, Quote: search.Quote, Angle: search.Angle, System: search.System, After: search.After,
		Forced: search.Forced, Given: search.Given, Words: plan.CompileWords(), More: more, GCC: plan.Driver.Family == compile.GCC, Images: true,
		Clock: plan.Clocks(c.Compiler.Major, epoch), AsmDirs: plan.AsmDirs(),
		Module: plan.MakesModule(), Units: plan.Units,
	}
	if plan.Driver.Tidy {
		q.Beside = compile.TidyConfig
	}
	for _, h := range plan.Headers {
		q.Imported = append(q.Imported, sources.Include{Name: h.Name, Quoted: h.Quoted})
	}
	q.Key = strings.Join([]string{string(c.Compiler.ID[:]), l.Compiler, cmd.Argv0, l.Cwd, plan.Language, strings.Join(plan.Whole(), "\x00"), strings.Join(cmd.Env, "\x00"), strings.Join(more, "\x00")}, "\x01")
	return q, search.Ask, true
}

// resolve returns the inputs of q, or why they are not known. If the compiler's own header directories have
// changed, it asks the compiler for them again.
func (t *Table) resolve(c *compilers.Compiler, q *inputs.Query, language string, words []string) (*inputs.Set, string) {
	for again := false; ; again = true {
		own := c.Search(language, words, true)
		if own.Dirs == nil || slices.Contains(words, "-stdlib=libc++") && !slices.ContainsFunc(own.Dirs, isLibCxx) {
			return nil, unknownCommand // or libc++ is not installed: nothing would tell if it is later
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

// isLibCxx reports whether a directory is that of libc++'s headers.
func isLibCxx(dir string) bool { return strings.HasSuffix(filepath.Clean(dir), "/c++/v1") }

// Learn keeps the compiler's list of what a job reads, which is in the job's body. It reports whether that
// answers asked, the query that Know has returned, which may be nil.
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

// Listed returns the job that a wrapper has made, whose files are in text, so that a host is sent only what it lacks. It
// returns nil if the job has to travel as it is.
func (t *Table) Listed(body *job.Body, text []byte, m modules.Rules) *Job {
	if uint64(len(text)) > t.most {
		return nil
	}
	set := inputs.Listed(body, text)
	if set == nil {
		return nil
	}
	return &Job{Set: set, Body: body, Modules: m}
}

// outputDirs reports whether the directories of all outputs exist. On a host they always do.
func outputDirs(plan *compile.Plan, cwd string) bool {
	last := ""
	for _, out := range plan.Outputs {
		if plan.MakesWay(out) {
			continue
		}
		dir := filepath.Dir(out.Name)
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

// sees reports whether this process has the same view of the file system as a wrapper in its working directory.
func sees(v ipc.View, cwd string) bool { return v.Mounts != 0 && v.CwdIno != 0 && v == ipc.Look(cwd) }
