// Package policy decides whether a command that came over the network may be handed to
// a compiler: whether it is one that our own wrapper would send, each option with a value that it
// may have, and nothing in it that runs or loads code (docs/policy.md). It does no I/O: a job's
// body and what is known of the compiler are all that it looks at.
//
// What it refuses it refuses with a *job.Refusal. There is a check for each form of a job, Text and
// Sources, and one for the environment of each.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Compiler is what is known of the one that a job is for.
type Compiler struct {
	Family string // "gcc" or "clang"
	Major  int    // of its version
	Exec   string // the name to run it by, absolute
	Path   string // the same, links resolved
}

func refuse(cause job.Cause, format string, args ...any) *job.Refusal {
	return &job.Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...)}
}

// Text decides whether a job of the text form may be handed to a compiler: what a client
// names is neither run, nor read, nor written. The caller's own words, which name the
// language, the source and the output, have to stand behind b.Args.
func Text(b *job.Body, tc Compiler, text []byte) error {
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
		if i > 0 && o.Kind != job.OutputStackUsage || i == 0 && o.Kind != job.OutputObject && o.Kind != job.OutputAssembly {
			return refuse(job.CauseMalformed, "outputs of a wrong kind or in a wrong order")
		}
	}
	if err := checkArgs(b, tc); err != nil {
		return err
	}
	return checkText(b.Language, tc, text)
}

// languages are the -x values of text that is preprocessed, or all but: each with
// the suffix of such a source and a label for metrics. Assembly is not among them,
// as it names files of this host.
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

// Label is a language in a word for metrics, "c" for "cpp-output" say: one of a few, and
// "other" for what Text would not take, whatever a client says.
func Label(language string) string {
	if l, ok := languages[language]; ok {
		return l.label
	}
	return "other"
}

// Labels are the values that Label can have, in order.
func Labels() []string {
	list := []string{"other"}
	for _, l := range languages {
		list = append(list, l.label)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// checkArgs takes an argument list if it is one that our own wrapper makes: its
// option table, applied to the list as to a user's command, finds nothing that
// would have to stay at home and gives the very same list for the far half. So
// an option that is not known here is refused, and one that the table keeps from
// leaving is refused when it comes; and each value is one that the table has a rule
// for. What the daemon adds stands behind it all.
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
	if b.Outputs[0].Kind == job.OutputAssembly {
		mode = "-S"
	}
	p := compile.Parse(append(slices.Clone(args), mode, "x"+languages[b.Language].suffix), d, nil)
	if p.Local {
		return refuse(job.CausePolicy, "%s", p.Reason)
	}
	if p.Text != "" {
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

// TextVariables are those of a client's variables, NAME=value each, that its text may be
// compiled with: they can choose the language of messages and the date of __DATE__, no
// more. Where they choose no language, one that is always there is added.
func TextVariables(client []string) ([]string, error) {
	env, err := allowed(client, compile.GoesWithText)
	if err == nil && !slices.ContainsFunc(env, func(e string) bool { name, _, _ := strings.Cut(e, "="); return compile.IsLocale(name) }) {
		env = append(env, "LC_ALL=C")
	}
	return env, err
}

// SourcesVariables are the same for a compile of the sources form.
func SourcesVariables(client []string) ([]string, error) {
	return allowed(client, compile.GoesWithSources)
}

// maxVariables is more than there are names of variables that go along.
const maxVariables = 64

// allowed gives a client's variables anew, if all of them go along and each has a value
// that it may have.
func allowed(client []string, goes func(name string) bool) ([]string, error) {
	if len(client) > maxVariables {
		return nil, refuse(job.CausePolicy, "%d variables", len(client))
	}
	for _, e := range client {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !goes(name) {
			return nil, refuse(job.CausePolicy, "variable %q", name)
		}
		if !compile.FitsEnvironment(name, value) {
			return nil, refuse(job.CausePolicy, "value of the variable %s", name)
		}
	}
	return slices.Clone(client), nil
}
