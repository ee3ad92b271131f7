package distcc

import (
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/proto"
)

// preprocessed has the language of what a client has preprocessed, by that of the source.
var preprocessed = map[string]string{
	"c": "cpp-output", "c++": "c++-cpp-output", "objective-c": "objective-c-cpp-output", "objective-c++": "objective-c++-cpp-output",
}

// parse reads a command as our own wrapper would, and refuses what would not be sent to a host, or would come back incomplete:
// distcc's protocol brings back one object, and make's rules.
func parse(args []string, tc *toolchain.Toolchain) (*compile.Plan, error) {
	d, ok := compile.DriverOf(args[0], tc.Path)
	if !ok || d.Tidy {
		return nil, job.Refuse(job.CausePolicy, "compiler's name %q", args[0])
	}
	for _, w := range args[1:] {
		// Whether there is a program in that directory is known to the client only, and distcc sends the command anyway.
		if strings.HasPrefix(w, "-B") || strings.HasPrefix(w, "--prefix") {
			return nil, job.Refuse(job.CausePolicy, "%q, which may name other programs", w)
		}
	}
	p := compile.Parse(args[1:], d, nil)
	switch {
	case p.Local:
		return nil, job.Refuse(job.CausePolicy, "%s", p.Reason)
	case p.Machine() != nil:
		return nil, job.Refuse(job.CausePolicy, "native, which is another processor here")
	case p.Expand, p.Syntax, len(p.Outputs) == 0:
		return nil, job.Refuse(job.CausePolicy, "a command that makes no object")
	case p.Outputs[0].Kind != unit.OutputObject && p.Outputs[0].Kind != unit.OutputAssembly:
		return nil, job.Refuse(job.CausePolicy, "a command that makes neither an object nor assembly")
	}
	for _, o := range p.Outputs[1:] {
		if o.Kind != unit.OutputDependency && !o.Optional {
			return nil, job.Refuse(job.CausePolicy, "a command that makes %q too, which distcc would lose", path.Base(o.Name))
		}
	}
	return &p, nil
}

// textBody returns the job for a source that the client has preprocessed.
func textBody(q *proto.Request, tc *toolchain.Toolchain) (*job.Body, error) {
	p, err := parse(q.Args, tc)
	if err != nil {
		return nil, err
	}
	if p.Text != "" && !p.Inexact {
		return nil, job.Refuse(job.CausePolicy, "%s", reason.NotReproducible+p.Text)
	}
	b := &job.Body{Name: path.Base(p.Source), Outputs: p.TextOutputs()}
	if !p.Raw {
		// The compiler would quote lines of a file that has the name of the source, but has other lines.
		b.Name += ".i"
	}
	if len(b.Outputs) > 1 {
		return nil, job.Refuse(job.CausePolicy, "a command that makes %q too, which distcc would lose", path.Base(b.Outputs[1].Name))
	}
	b.Args, b.Language = p.Remote(tc.Major, "/")
	if len(b.Args) >= 2 && b.Args[0] == "-fpreprocessed" && b.Args[1] == "-fdirectives-only" {
		b.Args = b.Args[2:] // the client has expanded its macros
	}
	if done, ok := preprocessed[b.Language]; ok {
		b.Language = done
	}
	return b, nil
}

// sourcesBody returns the job for files that the client has sent, and their contents, one after the other. headers are the
// directories that this host shows itself: clients in pump mode expect the same headers everywhere.
func sourcesBody(q *proto.Request, tc *toolchain.Toolchain, headers []string) (*job.Body, []byte, error) {
	p, err := parse(q.Args, tc)
	if err != nil {
		return nil, nil, err
	}
	if p.Sources != "" {
		return nil, nil, job.Refuse(job.CausePolicy, "%s", reason.NotReproducible+p.Sources)
	}
	if !path.IsAbs(q.Cwd) {
		return nil, nil, job.Refuse(job.CauseMalformed, "working directory %q", q.Cwd)
	}
	b := &job.Body{
		Argv0: calledAs(q.Args[0], tc), Args: q.Args[1:], Language: p.Language, Name: path.Base(p.Source), Cwd: path.Clean(q.Cwd), Outputs: p.Outputs,
	}
	n := 0
	for _, f := range q.Files {
		n += len(f.Text)
	}
	text := make([]byte, 0, n)
	seen := make(map[string]bool, len(q.Files))
	for _, f := range q.Files {
		if !path.IsAbs(f.Name) {
			return nil, nil, job.Refuse(job.CauseMalformed, "file %q without a directory", f.Name)
		}
		if within(headers, f.Name) || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		if f.Target != "" {
			b.Links = append(b.Links, unit.Link{Name: f.Name, Target: f.Target})
			continue
		}
		b.Files = append(b.Files, unit.File{Name: f.Name, Len: uint64(len(f.Text))})
		text = append(text, f.Text...)
	}
	return b, text, nil
}

// calledAs returns the name by which the compiler is called. It is in messages, so it is the client's, unless the compiler looks
// for its parts from where a link of the name leads to: a tree shows only the name that is offered.
func calledAs(name string, tc *toolchain.Toolchain) string {
	if path.Dir(tc.Exec) != path.Dir(tc.Path) {
		name = tc.Exec
	}
	return path.Base(name)
}

// within reports whether a name lies in one of dirs, or is one.
func within(dirs []string, name string) bool {
	name = path.Clean(name)
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}
