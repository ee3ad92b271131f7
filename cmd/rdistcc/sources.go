package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// collect fills the slot in the sources form: the command as it was typed, and the files
// that it reads, as listed by the compiler itself. A reason says that the command must run
// here; the messages of the listing run are dropped then, as the command prints them again.
func (f *flow) collect() (sub *ipc.Submit, why string) {
	began := time.Now()
	s := f.slot
	if !f.outputDirs() {
		return nil, reason.Diagnostics // the compiler has its own message for that
	}
	if f.plan.MakesModule() {
		return nil, reason.NotReproducible + "modules" // only the manager knows all directories for headers
	}
	if f.plan.NewModules {
		return nil, reason.NotReproducible + "modules" // only the manager can have the compiler show how they are read
	}
	if f.plan.HeaderUnit() || f.plan.Units || len(f.plan.Headers) > 0 {
		return nil, reason.NotReproducible + "modules" // the compiler would not list them
	}
	names := []string{f.plan.Source}
	if !f.plan.Raw {
		switch names, why = f.list(); {
		case why == reason.Diagnostics && len(f.plan.Images)+len(f.plan.Precompiled(s.cwd)) > 0:
			return nil, reason.NotReproducible + string(sources.ErrPCH) // it may be one that cannot be read
		case why != "":
			return nil, why
		}
		for i := range names {
			names[i], _ = unit.Shared(names[i]) // in a directory that the command names, or else it is refused below
		}
	}
	o, body := f.packing(names, began)
	pack, why := f.pack(o)
	if why != "" {
		return nil, why
	}
	s.unsure = pack.Unsure || f.plan.Raw || f.plan.Imports // the text names files that do not exist here
	body.Files, body.Dirs, body.Links = pack.Files, append(body.Dirs, pack.Dirs...), pack.Links
	if compile.Planted(f.plan.Plugins(), body) != "" {
		return nil, reason.NotReproducible + "plugin"
	}
	if _, what := compile.Unasked(f.plan.Driver.Family, body); what != "" {
		return nil, reason.NotReproducible + what
	}
	enc := body.Append(nil)
	room := uint64(job.TextOffset(len(enc)))
	if room > o.Off || len(enc) > job.MaxBodyLen {
		return nil, reason.TooBig
	}
	sub = &ipc.Submit{BodyOff: uint32(o.Off - room), BodyLen: uint32(len(enc)), TextOff: uint32(room), TextLen: pack.Len, Tree: true,
		Module: f.plan.ModuleRules.Module, ModuleFile: f.plan.ModuleRules.File, Imports: f.plan.ModuleRules.Imports, Images: pack.Images}
	if pwriteAll(s.source, enc, int64(sub.BodyOff)) != nil {
		return nil, reason.TooBig
	}
	f.rec.sourceBytes, f.rec.files = pack.Len, len(pack.Files)
	if s.Inputs != "" { // the manager asks because it does not know
		sub.Absent, sub.Unsure = told(pack.Absent), s.unsure
	}
	f.rec.preprocess = time.Since(began)
	sub.PreprocessUS = micros(f.rec.preprocess)
	return sub, ""
}

// pack packs what o says. The precompiled headers are all that the compiler may use.
func (f *flow) pack(o *sources.Options) (*sources.Pack, string) {
	pack, err := sources.Make(o)
	switch err {
	case nil:
	case sources.ErrTooBig:
		return nil, reason.TooBig
	default:
		return nil, reason.NotReproducible + err.Error()
	}
	if pack.Images = slices.Concat(pack.Images, f.plan.Images, f.plan.Precompiled(f.slot.cwd)); len(pack.Images) > ipc.MaxWords {
		return nil, reason.NotReproducible + string(sources.ErrPCH)
	}
	return pack, ""
}

// list runs the compiler's dependency mode with the slot, still empty, as its standard
// output, and reads the names.
func (f *flow) list() (names []string, why string) {
	s := f.slot
	c := command{file: f.cc.file}
	if d := s.Direct; len(d) > 0 {
		c = command{file: d[0], argv: d, alone: true}
	} else {
		c.argv = append([]string{f.cc.argv[0]}, f.plan.List(int(s.Major))...)
	}
	clean, words := f.runFirst(c)
	if !clean && bytes.Contains(words, []byte("__COUNTER__")) && s.closed {
		// Reading directives alone, gcc gets __COUNTER__ in a directive wrong, so it reads all text.
		if _, err := syscall.Seek(s.source, 0, 0); err != nil {
			return nil, reasonMemory
		}
		all := slices.DeleteFunc(f.plan.List(int(s.Major)), func(w string) bool { return w == "-fdirectives-only" })
		clean, _ = f.runFirst(command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, all...)})
	}
	end, err := syscall.Seek(s.source, 0, 1)
	switch {
	case !clean:
		return nil, reason.Diagnostics
	case err != nil || uint64(end) >= s.SourceMax:
		return nil, reason.TooBig
	case !s.closed:
		return nil, reasonPreprocessor // a process that it started may still write
	}
	rule := make([]byte, end)
	if n, err := syscall.Pread(s.source, rule, 0); err != nil || n < len(rule) {
		return nil, reasonMemory
	}
	if names, err = sources.ParseRule(rule); err != nil {
		return nil, reason.NotReproducible + string(sources.ErrFile)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "/dev/null" }), "" // which hosts have
}

// bodySlack is room, before the contents, for files that come to light while others are
// scanned: the body's length is only known after them.
const bodySlack = 64 << 10

// packing returns what is to be packed, and the body without its files.
func (f *flow) packing(names []string, began time.Time) (*sources.Options, *job.Body) {
	s := f.slot
	body := &job.Body{
		Argv0: f.cc.argv[0], Compiler: f.rec.compiler, Args: f.plan.Whole(), Front: f.front, Language: f.plan.Language,
		Name: typed.Base(f.plan.Source), Cwd: s.cwd, Env: typed.TreeEnv(f.set.env, s.cwd, false), Outputs: f.plan.Outputs,
	}
	o := &sources.Options{
		FD: s.source, Max: s.SourceMax, Names: names, More: f.plan.Inputs, Since: syscall.NsecToTimespec(began.UnixNano()), Cwd: s.cwd,
		Twins: f.plan.Driver.Family == compile.GCC, Includers: f.plan.Includers(),
		Asm: strings.HasPrefix(f.plan.Language, "assembler"), Opaque: f.plan.Opaque(),
	}
	if f.takesWords() && isTerminal(2) {
		body.Args = compile.Coloured(body.Args, f.plan.Driver.Family, f.set.getenv("TERM"))
	}
	var known bool
	o.Dirs, known = f.plan.IncludeDirs()
	o.Own = func() []string { return f.headerDirs(known) }
	for _, dir := range o.Dirs {
		var st syscall.Stat_t
		switch {
		case typed.Stat(dir, &st) != nil:
		case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
			body.Dirs = append(body.Dirs, dir)
		case f.plan.Driver.Family == compile.Clang:
			o.Maps = append(o.Maps, dir)
		default:
			o.Probe = append(o.Probe, dir) // the compiler reports that it is not a directory
		}
	}
	for _, dir := range f.plan.Sysroots() {
		if sources.RealPath(dir) != "" { // also if nothing in it is read: the compiler may say that it does not exist
			o.Places = append(o.Places, dir)
		}
		o.More = append(slices.Clip(o.More), strings.TrimRight(dir, "/")+"/SDKSettings.json") // clang reads it for systems of Apple's
	}
	if f.below != nil {
		o.Places, o.Probe = append(o.Places, f.below.dirs...), append(o.Probe, f.below.files...)
	}
	if len(body.Dirs) == 0 && o.Twins && !f.plan.Raw && ownFilesOnly(f.plan.Source, names) {
		// gcc says "no include path in which to search" where none of its directories exists, and
		// no file that the job brings would create one.
		for _, dir := range o.Own() {
			var st syscall.Stat_t
			if typed.Stat(dir, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
				body.Dirs = append(body.Dirs, dir)
			}
		}
	}
	o.AsmDirs = f.plan.AsmDirs()
	o.Clock = f.plan.Clocks(int(s.Major), f.set.getenv("SOURCE_DATE_EPOCH") != "")
	size := len(body.Append(nil)) + bodySlack
	for _, list := range [...][]string{names, f.plan.Inputs} {
		for _, name := range list {
			size += len(name) + fileEntry
		}
	}
	o.Off = uint64(job.TextOffset(size))
	return o, body
}

// ownFilesOnly reports whether no name except the source's is absolute, as the names of
// system headers are.
func ownFilesOnly(source string, names []string) bool {
	for _, name := range names {
		if name != source && strings.HasPrefix(name, "/") {
			return false
		}
	}
	return true
}

// fileEntry bounds what a file takes in an encoded body beside its name, in bytes.
const fileEntry = 32

// maxAbsent bounds the total length of names looked for in vain, in bytes.
const maxAbsent = 2 << 20

// told returns the names looked for in vain as the manager gets them: all of them, or a note
// that there are too many.
func told(absent []string) []string {
	room := maxAbsent
	for _, name := range absent {
		room -= len(name) + 4
	}
	if room < 0 || len(absent) > ipc.MaxAbsent {
		return ipc.TooMany
	}
	return absent
}

// outputDirs reports whether the directories of all outputs exist here: in the tree on the
// host they always do.
func (f *flow) outputDirs() bool {
	last := ""
	for i := range f.plan.Outputs {
		if f.plan.MakesWay(f.plan.Outputs[i]) {
			continue // the compiler makes it
		}
		name := f.plan.Outputs[i].Name
		dir := name[:strings.LastIndexByte(name, '/')+1]
		if dir == "" || dir == last {
			continue
		}
		var st syscall.Stat_t
		if typed.Stat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return false
		}
		last = dir
	}
	return true
}

// headerDirs returns the directories in which the compiler looks for headers. known says
// that the command has no words that change them; otherwise the compiler is asked with
// those words. It returns nil if the compiler does not say.
func (f *flow) headerDirs(known bool) []string {
	if known && len(f.slot.Include) > 0 {
		return f.slot.Include
	}
	if !known {
		if f.below == nil {
			return driver.ParseSearch(f.askSearch())
		}
		return driver.ParseSearch(f.below.said)
	}
	text := f.ask(command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, driver.SearchWords(f.plan.Language)...)})
	return driver.ParseSearch(text)
}

// findModules completes a plan by the compiled modules that it reads and writes.
func (f *flow) findModules(plan *compile.Plan) (why string) {
	if plan.HeaderUnit() {
		return plan.FindModules("", f.cxxDirs)
	}
	return plan.FindModules("", nil)
}

// cxxDirs returns where the compiler looks for C++ headers by itself, given words that choose that, or nil.
func (f *flow) cxxDirs(words []string) []string {
	argv := append(append([]string{f.cc.argv[0]}, words...), driver.SearchWords("c++")...)
	return driver.ParseSearch(f.ask(command{file: f.cc.file, argv: argv}))
}

// askSearch asks the compiler where it looks for headers given the words of this command.
func (f *flow) askSearch() string {
	words := []string{f.cc.argv[0], "-v"}
	if f.plan.Driver.CXX || f.plan.Language != "" {
		words = append(words, "-x", f.plan.Language)
	}
	for _, w := range f.plan.List(int(f.slot.Major)) {
		if w == f.plan.Source {
			w = "/dev/null"
		}
		words = append(words, w)
	}
	return f.ask(command{file: f.cc.file, argv: words})
}
