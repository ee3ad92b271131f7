package run

import (
	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
)

// text is a job of the text form: the compiler runs on preprocessed text, with words that name no file.
type text struct {
	p    *Place
	j    *Job
	vars []string // environment variables that the client chose and the policy lets through
}

func (x *text) check() (err error) {
	if err := policy.Text(x.j.body, x.p.compilerOf(x.j.Toolchain), x.j.text); err != nil {
		return err
	}
	x.vars, err = policy.TextVariables(x.j.body.Env)
	return err
}

// environment returns the environment of the compile: our own PATH and TMPDIR, and the variables that the
// policy lets a client choose.
func (x *text) environment(tmp string) []string {
	return append([]string{"PATH=" + SearchPath, "TMPDIR=" + tmp}, x.vars...)
}

// names returns the file names that the compiler is given, the same in both kinds of place. None of them
// reaches an object.
func (x *text) names() driver.Names {
	return driver.Names{Source: x.j.body.Name, Output: "../out/" + outputName(x.j.body.Outputs[0].Kind), Temp: "../tmp/cc.s"}
}

// recipe returns what the driver would run, or nil if the driver has to run. It has to if there are side
// files, which the driver names.
func (x *text) recipe(dir string) *driver.Recipe {
	if x.j.Toolchain.Family != "gcc" || len(x.j.body.Outputs) != 1 {
		return nil
	}
	return x.p.ask(x.j.Toolchain, arguments(x.j.body), dir, false)
}

// arguments returns the driver's arguments, with placeholders for the file names. The output comes last.
func arguments(b *job.Body) []string {
	mode := "-c"
	if b.Outputs[0].Kind == unit.OutputAssembly {
		mode = "-S"
	}
	argv := make([]string, 0, len(b.Args)+6)
	argv = append(argv, b.Args...)
	return append(argv, "-x", b.Language, mode, driver.Source, "-o", driver.Output)
}

// outputName returns the name that an output of kind k has in the output directory.
func outputName(k unit.OutputKind) string {
	switch k {
	case unit.OutputAssembly:
		return "o.s"
	case unit.OutputStackUsage:
		return "o.su"
	default:
		return "o.o"
	}
}

// compilerOf returns what the policy needs to know of a compiler. Whether that takes a word for a flag is asked later, where
// it is confined (noFlag).
func (p *Place) compilerOf(tc *toolchain.Toolchain) policy.Compiler {
	later := func(word string) bool {
		p.unlisted = append(p.unlisted, word)
		return true
	}
	return policy.Compiler{Family: tc.Family, Major: tc.Major, Exec: tc.Exec, Path: tc.Path, Loads: tc.Loads, Flag: later}
}
