package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Sources decides whether a job of the sources form may be given to a compiler, and returns what its
// command asks for. In b the files, directories and links of the job's lists must be included. text has the
// content of each file, except those that are the same as an earlier one. The command may name any path, as
// the tree contains nothing except the toolchain and what came with the job. But it must be one that our
// own wrapper would send, and must not choose a program.
func Sources(b *job.Body, tc Compiler, text [][]byte) (*compile.Plan, error) {
	return sources(b, tc, text, false)
}

// Image decides likewise whether a compiler may make a precompiled header by one of the Images of a job's body, of which b
// is a copy with the files of its list. A compiler that uses it trusts its content like its own memory, and so nothing may
// write it except the same compiler.
func Image(b *job.Body, tc Compiler, text [][]byte) error {
	_, err := sources(b, tc, text, true)
	return err
}

// ImageName returns the name of a precompiled header as the users of it see it.
func ImageName(b *job.Body) string { return seenFrom(b.Cwd, b.Outputs[0].Name) }

// seenFrom returns an absolute name for name, without detours.
func seenFrom(cwd, name string) string {
	if !strings.HasPrefix(name, "/") {
		name = cwd + "/" + name
	}
	return path.Clean(name)
}

func sources(b *job.Body, tc Compiler, text [][]byte, image bool) (*compile.Plan, error) {
	if !strings.HasPrefix(b.Cwd, "/") {
		return nil, refuse(job.CauseMalformed, "working directory %q", b.Cwd)
	}
	if len(text) != len(b.Files) {
		return nil, refuse(job.CauseMalformed, "%d contents of %d files", len(text), len(b.Files))
	}
	for i := range b.Files {
		if f := &b.Files[i]; f.Len != uint64(len(text[i])) {
			return nil, refuse(job.CauseMalformed, "file %q of %d bytes, not of %d", f.Name, len(text[i]), f.Len)
		}
	}
	if slices.Contains(b.Dirs, "") {
		return nil, refuse(job.CauseMalformed, "directory without a name")
	}
	// It looks for headers relative to its own location. A gcc may have several names there (mingw's are hard links), which mean
	// nothing to it; to a clang they do.
	if b.Compiler != "" && b.Compiler != tc.Path && (tc.Family != "gcc" || path.Dir(b.Compiler) != path.Dir(tc.Path)) {
		return nil, refuse(job.CauseToolchain, "the compiler is %s here, and %s there", tc.Path, b.Compiler)
	}
	if what := compile.TooLong(b.Args); what != "" {
		return nil, refuse(job.CausePolicy, "a command that is %s", what)
	}
	if !compile.CompilerName(b.Argv0) {
		return nil, refuse(job.CausePolicy, "compiler's name %q", b.Argv0)
	}
	d, ok := compile.DriverOf(b.Argv0, tc.Path)
	if !d.Tidy {
		if err := checkPrograms(b.Args, tc); err != nil {
			return nil, err
		}
	}
	for _, w := range b.Args[:b.Front] {
		if !strings.HasPrefix(w, "-m") && !strings.HasPrefix(w, "--param=") {
			return nil, refuse(job.CausePolicy, "option %q in front", w)
		}
	}
	// One clang acts as several compilers, by its name.
	if here, _ := compile.DriverOf(tc.Exec, tc.Path); !ok || !d.ActsAs(here) {
		return nil, refuse(job.CausePolicy, "compiler's name %q", b.Argv0)
	}
	if name, what := compile.Unasked(d.Family, b); what != "" {
		return nil, refuse(job.CausePolicy, "name %q, which the compiler would look for by itself", name)
	}
	p := compile.ParseUnlisted(b.Args, d, environmentOf(b))
	outputs := p.Outputs
	switch {
	case image && p.Makes == nil:
		return nil, refuse(job.CausePolicy, "a precompiled header that hosts do not make")
	case image:
		outputs = p.Makes.Outputs
	case p.Local:
		return nil, refuse(job.CausePolicy, "%s", p.Reason)
	}
	if err := checkUnlisted(&p, tc); err != nil {
		return nil, err
	}
	if d.Tidy {
		if err := checkTidy(b, &p, tc, text); err != nil {
			return nil, err
		}
	}
	if name := compile.Planted(p.Plugins(), b); name != "" {
		return nil, refuse(job.CausePolicy, "name %q, which the compiler could take for its plugin", name)
	}
	if len(p.SpecFiles()) > 0 {
		return nil, refuse(job.CausePolicy, "spec files")
	}
	for _, name := range p.Images {
		if !slices.ContainsFunc(b.Images, func(x job.Body) bool { return ImageName(&x) == seenFrom(b.Cwd, name) }) {
			return nil, refuse(job.CausePolicy, "precompiled header %q, which is not among those that the job has made", name)
		}
	}
	if p.Machine() != nil {
		return nil, refuse(job.CausePolicy, "native, which is another processor here")
	}
	if p.Sources != "" {
		return nil, refuse(job.CausePolicy, "%s", reason.NotReproducible+p.Sources)
	}
	made := b.Outputs
	if p.HeaderUnit() && len(made) > 0 && made[0].Kind == unit.OutputModule {
		outputs, made = outputs[1:], made[1:] // likewise
	} else if n := len(made) - 1; p.Modules() && d.Family == compile.GCC && n >= 0 && made[n].Kind == unit.OutputModule {
		made = made[:n] // its name depends on files, and means nothing here
	}
	if !slices.Equal(outputs, made) {
		return nil, refuse(job.CausePolicy, "outputs are not those of the command")
	}
	if p.Raw {
		for _, part := range text {
			if err := checkText(p.Language, tc, part); err != nil {
				return nil, err
			}
		}
	}
	return &p, nil
}

// checkPrograms is the second line of defence: whatever the table says, no word may make a compiler load
// code or start programs other than its own.
//
// A plugin is a part of the toolchain, or it does not exist for the job: what a client says beside it, only that plugin reads.
func checkPrograms(args []string, tc Compiler) error {
	// clang also looks below the system's root for an assembler that is not its own.
	foreign := slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, "no-integrated-as") })
	for i, a := range args {
		if tc.loads(a) || strings.HasPrefix(a, "-fplugin-arg-") && slices.ContainsFunc(args, tc.loads) {
			continue
		}
		bad := foreign && strings.HasPrefix(a, "--sysroot") || strings.HasPrefix(a, "@") || slices.ContainsFunc(programOptions, func(p string) bool { return strings.HasPrefix(a, p) })
		if !bad && i > 0 {
			switch args[i-1] {
			case "-Xclang", "-mllvm":
				bad = slices.ContainsFunc(loadOptions, func(p string) bool { return strings.HasPrefix(strings.TrimLeft(a, "-"), p) })
			}
		}
		if bad {
			return refuse(job.CausePolicy, "option %q", a)
		}
	}
	return nil
}

// loads reports whether a word has the compiler load a plugin that is a part of it.
func (tc *Compiler) loads(word string) bool {
	name, ok := strings.CutPrefix(word, "-fplugin=")
	return ok && tc.Family == "gcc" && tc.Loads != nil && compile.PluginName(name) && tc.Loads(name)
}

// programOptions lists prefixes of words that name programs, plugins or specs, or response files. Those for
// the linker are not included: none runs here.
var programOptions = []string{
	"-B", "--prefix", "-wrapper", "--wrapper", "-specs", "--specs", "-fplugin", "-iplugindir", "-fpass-plugin",
	"-fmodule-mapper=|", "-fmodule-mapper=@", "-fmodule-mapper=<", "-fmodule-mapper==", "--gcc-toolchain", "-gcc-toolchain", "--gcc-install-dir", "-ccc-", "--config", "-load", "-cc1", "-Wa,@",
}

// loadOptions is the same for words for clang -cc1 and for LLVM, without their hyphens.
var loadOptions = []string{"load", "plugin", "add-plugin", "fplugin", "fpass-plugin"}

// environmentOf returns a look-up in what the client sent of its environment.
func environmentOf(b *job.Body) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, e := range b.Env {
			if n, value, ok := strings.Cut(e, "="); ok && n == name {
				return value, true
			}
		}
		return "", false
	}
}

// checkText rejects text that would make gcc load a precompiled header: gcc trusts the content of such a
// file as its own memory. The file would be the text itself, or a file that came with it.
func checkText(language string, tc Compiler, text []byte) error {
	if tc.Family == "gcc" && compile.LoadsHeader(text) {
		return refuse(job.CausePolicy, "%s text that loads a precompiled header", language)
	}
	return nil
}
