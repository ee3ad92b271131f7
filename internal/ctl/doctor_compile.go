package ctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// compileTime bounds the compile of one line, here or on a host.
const compileTime = 30 * time.Second

// doctorSource has a macro, as debug information shows where its parts are.
const doctorSource = "#define TWICE(x) ((x) + (x))\nint twice(int y) { return TWICE(y); }\n"

// doctorText is the same, preprocessed.
const doctorText = "int twice(int y) { return ((y) + (y)); }\n"

// compile has the host compile two lines by a compiler that it has under that name, and compares its object with that of the compiler
// here: with debug information if the host has private trees, as such compiles are not sent to others.
func (d *doctor) compile(ctx context.Context, f *findings, c *rawjob.Client, t *localTool, id unit.ToolchainID, tree bool) {
	ctx, cancel := context.WithTimeout(ctx, max(compileTime, d.timeout))
	defer cancel()
	name := filepath.Base(t.Exec)
	dir, err := os.MkdirTemp("", "rdistcc-doctor-")
	if err != nil {
		f.warn("compile", fmt.Sprintf("nothing was compared: %v", err), "make room for temporary files here (TMPDIR)")
		return
	}
	defer os.RemoveAll(dir)
	cxx := strings.Contains(name, "++")
	language, text := "cpp-output", doctorText
	switch {
	case tree && cxx:
		language, text = "c++", doctorSource
	case tree:
		language, text = "c", doctorSource
	case cxx:
		language = "c++-cpp-output"
	}
	args := []string{"-x", language, "-c", "x.c", "-o", "x.o"}
	body := &job.Body{Argv0: name, Language: language, Name: "x.c", Cwd: "/", Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}}
	if tree {
		args = append(args, "-g")
		body.Args, body.Cwd, body.Files = args, dir, []unit.File{{Name: "x.c", Len: uint64(len(text))}}
	}
	var want []byte
	d.alongside(ctx, c, beat, func() { want, err = compileHere(ctx, t, dir, text, args) })
	if err != nil {
		f.fail("compile", fmt.Sprintf("%s here does not compile a line: %v", name, err), "the compiler here is broken: install it anew")
		return
	}
	begin := time.Now()
	r, err := c.Run(ctx, &rawjob.Job{
		Toolchain: id, Text: []byte(text), Body: body,
	})
	took := time.Since(begin)
	const log = "see the log of rdistccd there"
	switch {
	case err != nil && isLate(err):
		f.fail("compile", fmt.Sprintf("no result within %v: it gives no place, or is overloaded", max(compileTime, d.timeout)), "rdistcc hosts, and its status page, say what it does; "+log)
		return
	case err != nil:
		f.fail("compile", "the connection broke: "+lastWord(err), log)
		return
	case r.Status == job.StatusRefused:
		f.fail("compile", fmt.Sprintf("refused (%v): %s", r.Cause, r.Detail), log)
		return
	case r.Status == job.StatusFailed:
		f.fail("compile", fmt.Sprintf("failed (%v): %s", r.Cause, r.Detail), log)
		return
	case r.Exit != 0 || r.Signal != 0 || len(r.Files) == 0:
		f.fail("compile", fmt.Sprintf("%s there ended with status %d, signal %d: %s", name, r.Exit, r.Signal, firstLine(r.Segment(r.Stderr))), "the compiler there is broken: install it anew")
		return
	}
	if got := r.Segment(r.Files[0].Segment); !bytes.Equal(got, want) {
		f.fail("compile", fmt.Sprintf("the object of %s is another one than here (%d and %d bytes)", name, len(got), len(want)), "take the host out of the list: it is not to be trusted until it is known why")
		return
	}
	what := "the same object as here"
	if tree {
		what += ", with -g"
	}
	f.ok("compile", "%s gives %s, in %s", name, what, figure.Micros(uint64(max(took.Microseconds(), 1))))
}

// compileHere returns the object that the compiler here makes of text in dir.
func compileHere(ctx context.Context, t *localTool, dir, text string, args []string) ([]byte, error) {
	if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, t.Exec, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, firstLine(out))
	}
	return os.ReadFile(filepath.Join(dir, "x.o"))
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return job.Clip(line, job.MaxDetail)
}
