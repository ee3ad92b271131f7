// Package policy decides whether a command that came over the network may be given to a compiler: whether
// it is one that our own wrapper would send, each option with a permitted value, and nothing in it that
// runs or loads code (docs/sandbox.md). It does no I/O, and looks only at a job's body and at what is known
// of the compiler.
//
// It refuses with a *job.Refusal. There is a check for each form of a job, Text and Sources, and one for
// the environment of each.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Compiler is what is known of the compiler that a job is for.
type Compiler struct {
	Family string // "gcc", "clang" or "clang-tidy"
	Major  int    // of its version
	Exec   string // the name to run it by, absolute
	Path   string // the same, with links resolved

	Loads func(plugin string) bool // whether a plugin is a part of it; nil: none is
	Flag  func(word string) bool   // whether it takes a word for a flag that the option tables lack; nil: it takes none
}

func refuse(cause job.Cause, format string, args ...any) *job.Refusal {
	return &job.Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...)}
}

// Text decides whether a job of the text form may be given to a compiler: nothing that the client names may
// be run, read or written. The caller's own words, which name the language, the source and the output, must
// follow b.Args.
func Text(b *job.Body, tc Compiler, text []byte) error {
	if tc.Family == compile.TidyFamily {
		return refuse(job.CausePolicy, "text for clang-tidy")
	}
	if b.Name == "" || b.Name[0] == '-' || b.Name[0] == '@' {
		return refuse(job.CausePolicy, "source name %q would be taken for an option", b.Name)
	}
	if _, ok := languages[b.Language]; !ok {
		return refuse(job.CausePolicy, "language %q", b.Language)
	}
	if len(b.Outputs) == 0 {
		return refuse(job.CauseMalformed, "no output")
	}
	for i, o := range b.Outputs {
		if i > 0 && o.Kind != unit.OutputStackUsage || i == 0 && o.Kind != unit.OutputObject && o.Kind != unit.OutputAssembly {
			return refuse(job.CauseMalformed, "outputs of a wrong kind or in a wrong order")
		}
	}
	if err := checkArgs(b, tc); err != nil {
		return err
	}
	return checkText(b.Language, tc, text)
}

// languages has the -x values of text that is preprocessed, or nearly so, each with the suffix of such a
// source and a label for metrics. Assembly is not included, as it names files of this host.
var languages = map[string]struct{ suffix, label string }{
	"c":                        {".c", "c"},
	"c++":                      {".cc", "c++"},
	"objective-c":              {".m", "objective-c"},
	"objective-c++":            {".mm", "objective-c++"},
	"cpp-output":               {".c", "c"},
	"c++-cpp-output":           {".cc", "c++"},
	"objective-c-cpp-output":   {".m", "objective-c"},
	"objective-c++-cpp-output": {".mm", "objective-c++"},
	"objc-cpp-output":          {".m", "objective-c"},
	"objc++-cpp-output":        {".mm", "objective-c++"},
}

// Label returns a word for a language in metrics, such as "c" for "cpp-output": one of a few, and "other"
// for a language that Text would not accept, whatever a client sends.
func Label(language string) string {
	if l, ok := languages[language]; ok {
		return l.label
	}
	return "other"
}

// Labels returns the values that Label can return, in order.
func Labels() []string {
	list := []string{"other"}
	for _, l := range languages {
		list = append(list, l.label)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// checkArgs accepts an argument list if it is one that our own wrapper makes: our option table, applied to
// the list as to a user's command, finds nothing that would have to stay at home and gives exactly the same
// list for the remote half. So an option unknown here is rejected, one that the table keeps at home is
// rejected when it arrives, and each value must be one that the table permits. What the daemon adds follows
// all that.
func checkArgs(b *job.Body, tc Compiler) error {
	args := b.Args
	if what := compile.TooLong(args); what != "" {
		return refuse(job.CausePolicy, "a command that is %s", what)
	}
	d := compile.Driver{Family: compile.GCC, CXX: strings.HasPrefix(languages[b.Language].label, "c++")}
	if tc.Family == "clang" {
		d.Family = compile.Clang
	} else if len(args) >= 2 && args[0] == "-fpreprocessed" && args[1] == "-fdirectives-only" {
		args = args[2:]
	}
	mode := "-c"
	if b.Outputs[0].Kind == unit.OutputAssembly {
		mode = "-S"
	}
	p := compile.ParseUnlisted(append(slices.Clone(args), mode, "x"+languages[b.Language].suffix), d, nil)
	if p.Local {
		return refuse(job.CausePolicy, "%s", p.Reason)
	}
	if err := checkUnlisted(&p, tc); err != nil {
		return err
	}
	if p.Text != "" && !p.Inexact {
		return refuse(job.CausePolicy, "%s", reason.NotReproducible+p.Text)
	}
	if w := p.NamesFile(); w != "" {
		return refuse(job.CausePolicy, "option %q names a path", w)
	}
	if p.Machine() != nil {
		return refuse(job.CausePolicy, "native, which is another processor here")
	}
	same, _ := p.Remote(tc.Major, "/")
	if len(same) >= 2 && same[0] == "-fpreprocessed" && same[1] == "-fdirectives-only" {
		same = same[2:]
	}
	for i, a := range args {
		if i >= len(same) || same[i] != a {
			return refuse(job.CausePolicy, "option %q", a)
		}
	}
	return nil
}

// checkUnlisted refuses words that are in no table unless the compiler takes them for flags.
func checkUnlisted(p *compile.Plan, tc Compiler) error {
	for _, w := range p.Unlisted {
		if tc.Flag == nil || !tc.Flag(w) {
			return Unlisted(w)
		}
	}
	return nil
}

// Unlisted returns the refusal of a word that is in no table, and that the compiler does not take for a flag.
func Unlisted(word string) *job.Refusal {
	return refuse(job.CausePolicy, "%s", reason.UnknownOption+word)
}

// TextVariables returns those of a client's variables, NAME=value each, with which its text may be
// compiled: they can choose the language of messages and the date of __DATE__, no more. If they choose no
// language, it adds one that is always available.
func TextVariables(client []string) ([]string, error) {
	env, err := allowed(client, compile.GoesWithText)
	if err == nil && !slices.ContainsFunc(env, func(e string) bool { name, _, _ := strings.Cut(e, "="); return compile.IsLocale(name) }) {
		env = append(env, "LC_ALL=C")
	}
	return env, err
}

// SourcesVariables does the same for a compile of the sources form.
func SourcesVariables(client []string) ([]string, error) {
	return allowed(client, compile.GoesWithSources)
}

// TidyVariables does the same for clang-tidy.
func TidyVariables(client []string) ([]string, error) {
	return allowed(client, compile.GoesWithTidy)
}

// maxVariables is more than the number of variables that can go along.
const maxVariables = 64

// allowed returns a copy of a client's variables, if all of them may go along and each has a permitted value.
func allowed(client []string, goes func(name string) bool) ([]string, error) {
	if len(client) > maxVariables {
		return nil, refuse(job.CausePolicy, "%d variables", len(client))
	}
	for _, e := range client {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !goes(name) {
			return nil, refuse(job.CausePolicy, "variable %q", name)
		}
		if !compile.FitsTidyEnvironment(name, value) {
			return nil, refuse(job.CausePolicy, "value of the variable %s", name)
		}
	}
	return slices.Clone(client), nil
}
