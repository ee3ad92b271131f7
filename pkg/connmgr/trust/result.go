// Package trust is what the connection manager believes of others: of a host's results
// only what is inside their bounds (Packed, Result), what a compiler could have made
// (Contents) and what another host makes as well (Differ), and of a wrapper that is another
// user's only programs which that user cannot have put there (Installed).
//
// It judges what it is given: it asks no host, holds nothing and takes no lock. What
// follows from a judgement is the manager's.
package trust

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// maxRules is more than a file of make's rules takes, in bytes.
const maxRules = 8 << 20

// Packed holds a packed result against its place, of window bytes; zstd: it may be packed.
func Packed(r *job.Result, window uint64, zstd bool) error {
	switch {
	case r.Packed != 0 && !zstd:
		return errors.New("result is packed, which was not asked for")
	case r.Packed > window:
		return errors.New("result lies outside its buffer")
	}
	return nil
}

// Result holds a result against what was asked: parts outside the sink, or
// files that the job does not name, are a daemon's fault or worse. All else here
// relies on it.
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

// Contents holds what a result that went well has brought, plain in mem, against what the
// compiler here would have made of body: files and messages. object waits for what kind of
// object that is; false: nobody knows. An error is about what, say "dependency file", and wraps
// artifact.ErrForged or artifact.ErrDoubt.
func Contents(r *job.Result, mem []byte, body *job.Body, object func() (outputs.Object, bool)) (what string, err error) {
	if what, err = files(r, mem, body, object); err != nil {
		return what, err
	}
	style := outputs.StyleOf(body.Args)
	for _, s := range [...]job.Segment{r.Stdout, r.Stderr} {
		if err := outputs.CheckWords(part(mem, s), style); err != nil {
			return "messages", err
		}
	}
	return "", nil
}

// files looks at the files of a result; what is the one that an error is about.
func files(r *job.Result, mem []byte, body *job.Body, object func() (outputs.Object, bool)) (what string, err error) {
	for i := range r.Files {
		out := &body.Outputs[r.Files[i].Index]
		content := part(mem, r.Files[i].Segment)
		head := content[:min(len(content), 4096)]
		what = kindWords[out.Kind]
		suffix := out.Name[strings.LastIndexByte(out.Name, '.')+1:]
		switch {
		case out.Kind == unit.OutputObject || out.Kind == unit.OutputSide && (suffix == "o" || suffix == "dwo"):
			if len(content) == 0 && r.Exit != 0 {
				continue
			}
			want, ok := object()
			err = outputs.CheckObject(head[:min(len(head), outputs.HeadLen)], want, ok)
		case out.Kind == unit.OutputAssembly || out.Kind == unit.OutputStackUsage:
			err = outputs.CheckText(head)
		case out.Kind == unit.OutputDependency:
			err = rules(content, body)
		}
		if err != nil {
			return what, err
		}
	}
	return "", nil
}

// kindWords name outputs in the line that a user reads.
var kindWords = [...]string{unit.OutputObject: "object", unit.OutputAssembly: "assembly", unit.OutputStackUsage: "stack usage file",
	unit.OutputSide: "side file", unit.OutputDependency: "dependency file"}

// rules holds a dependency file against the files that the job brought.
func rules(content []byte, b *job.Body) error {
	if len(content) > maxRules {
		return outputs.ErrDoubt
	}
	targets := outputs.Targets(b.Args, b.Outputs[0].Name, b.Name)
	files := make(map[string]bool, len(b.Files))
	for i := range b.Files {
		files[b.Files[i].Name] = true
	}
	// Nearly all names are spelled as the job has them. A file that has several has one
	// there: what the others mean is found out only when one of them comes.
	var meant *names
	return outputs.CheckRules(string(content), func(w string) bool { return targets[w] }, func(name string) bool {
		if files[name] {
			return true
		}
		if meant == nil {
			meant = namesOf(b)
		}
		return meant.brought(name)
	})
}

// part is a segment of a result, which Result has found inside.
func part(mem []byte, s job.Segment) []byte { return mem[s.Off:][:s.Len] }

// Differ says what differs of two hosts' results x and y for the same body, which lie in
// memX and memY, or is empty.
func Differ(body *job.Body, x *job.Result, memX []byte, y *job.Result, memY []byte) string {
	same := func(s, t job.Segment) bool { return bytes.Equal(part(memX, s), part(memY, t)) }
	switch {
	case x.Exit != y.Exit:
		return "exit status"
	// In the text form words may name directories of the host.
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
			if f.Exec != g.Exec || !same(f.Segment, g.Segment) {
				return body.Outputs[f.Index].Name
			}
		}
		if !found {
			return body.Outputs[f.Index].Name
		}
	}
	return ""
}
