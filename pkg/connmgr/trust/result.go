// Package trust decides what the connection manager accepts from others. A host's result must be inside its
// bounds (Packed, Result) and must be something that the compiler could have made (Contents); an audit
// compares it with the result of another host (Differ). A wrapper of another user may name only compilers
// that this user cannot have installed (MayRun, Installed).
//
// The package has no state and takes no locks. It only judges what it is given; the manager acts on it.
package trust

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// maxRules is the largest dependency file that is checked, in bytes. Real ones are smaller.
const maxRules = 8 << 20

// Packed returns an error if a packed result is larger than its buffer of window bytes, or if it is packed
// although zstd is false.
func Packed(r *job.Result, window uint64, zstd bool) error {
	switch {
	case r.Packed != 0 && !zstd:
		return errors.New("result is packed, which was not asked for")
	case r.Packed > window:
		return errors.New("result lies outside its buffer")
	}
	return nil
}

// Result returns an error if a result does not fit its job: if parts of it are outside its buffer of window
// bytes, if it has files that the job does not name, or if a successful one lacks its main file. Such a
// daemon is faulty or hostile. The other functions rely on this check.
func Result(r *job.Result, body *job.Body, window uint64) error {
	inside := func(s job.Segment) bool { return s.Len <= window && s.Off <= window-s.Len }
	if !inside(r.Stdout) || !inside(r.Stderr) {
		return errors.New("result lies outside its buffer")
	}
	var seen [job.MaxOutputs]bool
	for i := range r.Files {
		f := &r.Files[i]
		switch {
		case int(f.Index) >= len(body.Outputs) || seen[f.Index]:
			return fmt.Errorf("result has a file %d, which was not asked for", f.Index)
		case !inside(f.Segment):
			return errors.New("result lies outside its buffer")
		}
		seen[f.Index] = true
	}
	if r.Exit == 0 && r.Signal == 0 && len(body.Outputs) > 0 && !body.Outputs[0].Optional && !seen[0] {
		return errors.New("result of a compile that went well lacks its file")
	}
	return nil
}

// Contents checks the files and messages of a result, unpacked in mem, against what the compiler here would
// have made of body. object waits for the kind of object that it makes, and returns false if that is not
// known; m are the names of C++ modules that its rules for make may have. If there is an error, what names the
// part that it is about, such as "dependency file"; the error wraps outputs.ErrForged or outputs.ErrDoubt, and
// may be ErrInode.
func Contents(r *job.Result, mem []byte, body *job.Body, m modules.Rules, object func() (outputs.Object, bool)) (what string, err error) {
	if what, err = files(r, mem, body, m, object); err != nil {
		return what, err
	}
	style := outputs.StyleOf(body.Args)
	for _, s := range [...]job.Segment{r.Stdout, r.Stderr} {
		if err := outputs.CheckWords(part(mem, s), style); err != nil {
			return "messages", err
		}
		if err := inode(body, part(mem, s)); err != nil {
			return "messages", err
		}
	}
	for i := range r.Files {
		if err := inode(body, part(mem, r.Files[i].Segment)); err != nil {
			return kindWords[body.Outputs[r.Files[i].Index].Kind], err
		}
	}
	return "", nil
}

// files checks the files of a result. what names the file that an error is about.
func files(r *job.Result, mem []byte, body *job.Body, m modules.Rules, object func() (outputs.Object, bool)) (what string, err error) {
	for i := range r.Files {
		out := &body.Outputs[r.Files[i].Index]
		content := part(mem, r.Files[i].Segment)
		head := content[:min(len(content), 4096)]
		what = kindWords[out.Kind]
		suffix := out.Name[strings.LastIndexByte(out.Name, '.')+1:]
		switch {
		case out.Kind == unit.OutputObject || out.Kind == unit.OutputSide && (suffix == "o" || suffix == "dwo") && !named(body.Args, out.Name):
			if len(content) == 0 && (r.Exit != 0 || out.Kind == unit.OutputSide && body.Outputs[0].Kind == unit.OutputAssembly) {
				continue // clang makes an empty .dwo beside assembly
			}
			want, ok := object()
			err = outputs.CheckObject(head[:min(len(head), outputs.HeadLen)], want, ok)
		case out.Kind == unit.OutputAssembly || out.Kind == unit.OutputStackUsage:
			err = outputs.CheckText(head)
		case out.Kind == unit.OutputDependency:
			err = rules(content, body, m)
			if errors.Is(err, outputs.ErrForged) && r.Exit != 0 && !bytes.HasSuffix(content, []byte("\n")) {
				err = fmt.Errorf("half a line (%w)", outputs.ErrDoubt) // the compiler has died
			}
		}
		if err != nil {
			return what, err
		}
	}
	return "", nil
}

// named reports whether a word of a command names a side file, which is then of any kind: -fopt-info=x.o.
func named(args []string, name string) bool {
	return slices.ContainsFunc(args, func(w string) bool { return w == name || strings.HasSuffix(w, "="+name) })
}

// kindWords are the names of output kinds in messages to the user.
var kindWords = [...]string{unit.OutputObject: "object", unit.OutputAssembly: "assembly", unit.OutputStackUsage: "stack usage file",
	unit.OutputSide: "side file", unit.OutputDependency: "dependency file", unit.OutputModule: "compiled module"}

// rules checks that a dependency file names only files that the job brought, and modules of m.
func rules(content []byte, b *job.Body, m modules.Rules) error {
	if len(content) > maxRules {
		return outputs.ErrDoubt
	}
	main := ""
	if k := b.Outputs[0].Kind; k == unit.OutputObject || k == unit.OutputAssembly || k == unit.OutputModule {
		main = b.Outputs[0].Name
	}
	targets := outputs.Targets(b.Args, main, b.Name)
	files := make(map[string]bool, len(b.Files)+1)
	files["/dev/null"] = true // a command can include it, which reads nothing
	for i := range b.Files {
		files[b.Files[i].Name] = true
	}
	// Nearly all names are spelled as in the job. If a file has several names, the job has one of them, and
	// the others are resolved only if one of them is used.
	var meant *names
	err := outputs.CheckRules(string(content), m, func(w string) bool { return targets[w] }, func(name string) bool {
		if files[name] {
			return true
		}
		if meant == nil {
			meant = namesOf(b)
		}
		return meant.brought(name)
	})
	if errors.Is(err, outputs.ErrForged) && (odd(b.Name) || slices.ContainsFunc(b.Args, odd) || slices.ContainsFunc(b.Files, func(f unit.File) bool { return odd(f.Name) })) {
		return fmt.Errorf("%s (%w)", err.Error(), outputs.ErrDoubt) // an honest compiler writes such names as they are
	}
	return err
}

// odd reports whether a word has a byte that a rule for make cannot name, or that compilers quote in different ways.
func odd(w string) bool {
	return strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r == 0x7f || r == '$' || r == '\\' })
}

// part returns a segment of a result, which must have passed Result.
func part(mem []byte, s job.Segment) []byte { return mem[s.Off:][:s.Len] }

// varies reports whether an output is another one each time: a time trace of the compiler, or clang's optimization record, which
// (up to 22 at least) names one of several reasons by the order of addresses in the compiler's memory.
func varies(body *job.Body, out *unit.Output) bool {
	if out.Kind != unit.OutputSide {
		return false
	}
	for _, w := range body.Args {
		if strings.HasPrefix(w, "-fsave-optimization-record") && strings.Contains(path.Base(out.Name), ".opt.") ||
			w == "-foptimization-record-file="+out.Name {
			return true
		}
		rest, ok := strings.CutPrefix(w, "-ftime-trace")
		if ok && (rest == "" && strings.HasSuffix(out.Name, ".json") || strings.HasPrefix(rest, "=") && strings.HasPrefix(out.Name, rest[1:])) {
			return true
		}
	}
	return false
}

// Differ returns in a word or two what differs between two hosts' results x and y for the same body, or "" if
// they are equal; time traces, optimization records of clang and the order of imports in rules for make do not count, nor do the contents of
// compiled modules, which gcc dates, and of which clang does not always make the same. Their data are in memX and memY; both must have passed Result.
func Differ(body *job.Body, x *job.Result, memX []byte, y *job.Result, memY []byte) string {
	same := func(s, t job.Segment) bool { return bytes.Equal(part(memX, s), part(memY, t)) }
	switch {
	case x.Exit != y.Exit:
		return "exit status"
	// In the text form, messages may name directories of the host.
	case len(body.Files) > 0 && !same(x.Stdout, y.Stdout):
		return "output"
	case len(body.Files) > 0 && !same(x.Stderr, y.Stderr):
		return "messages"
	case len(x.Files) != len(y.Files):
		return "number of files"
	}
	for _, f := range x.Files {
		found := false
		for _, g := range y.Files {
			if f.Index != g.Index {
				continue
			}
			found = true
			out := &body.Outputs[f.Index]
			if f.Exec != g.Exec || !same(f.Segment, g.Segment) && !varies(body, out) && out.Kind != unit.OutputModule &&
				(out.Kind != unit.OutputDependency || !outputs.SameRules(part(memX, f.Segment), part(memY, g.Segment))) {
				return out.Name
			}
		}
		if !found {
			return body.Outputs[f.Index].Name
		}
	}
	return ""
}
