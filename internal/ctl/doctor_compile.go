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

const doctorSource = "int x;\n"

// compile has the host compile one line by a compiler that it has under that name, and compares its object with that of the compiler here.
func (d *doctor) compile(ctx context.Context, f *findings, c *rawjob.Client, t *localTool, id unit.ToolchainID) {
	ctx, cancel := context.WithTimeout(ctx, max(compileTime, d.timeout))
	defer cancel()
	name := filepath.Base(t.Exec)
	language := "cpp-output"
	if strings.Contains(name, "++") {
		language = "c++-cpp-output"
	}
	var want []byte
	var err error
	d.alongside(ctx, c, beat, func() { want, err = d.compileHere(ctx, t, language) })
	if err != nil {
		f.fail("compile", fmt.Sprintf("%s here does not compile a line: %v", name, err), "the compiler here is broken: install it anew")
		return
	}
	begin := time.Now()
	r, err := c.Run(ctx, &rawjob.Job{
		Toolchain: id, Text: []byte(doctorSource),
		Body: &job.Body{Argv0: name, Language: language, Name: "x.c", Cwd: "/", Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}},
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
	f.ok("compile", "%s gives the same object as here, in %s", name, figure.Micros(uint64(max(took.Microseconds(), 1))))
}

// compileHere returns the object of the compiler here.
func (d *doctor) compileHere(ctx context.Context, t *localTool, language string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "rdistcc-doctor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(doctorSource), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, t.Exec, "-x", language, "-c", "x.c", "-o", "x.o")
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
