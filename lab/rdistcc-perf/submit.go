package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Exit codes of submit.
const (
	exitCompilerFailed = 1
	exitRefused        = 3
	exitProtocol       = 109
)

// submitOptions holds the command line of submit.
type submitOptions struct {
	argv, env, source, object, stderr string
	timeout                           time.Duration

	unsourced     bool
	limit, cancel time.Duration
	repeat        int
	raw           rawOptions
}

func submitCommand() *cobra.Command {
	var o submitOptions
	c := &cobra.Command{
		Use:   "submit HOST:PORT --argv F --source F",
		Short: "Send one raw job to a daemon, to see what it makes of it",
		Long: `Sends one job to a daemon without the wrapper's checks and without falling back.

--argv names a file with the words of the command, each ended by a NUL; the first one
is what the compiler is called. The protocol has fields of its own for what -c, -S,
-x LANG, -o FILE and the source's name say, so these are taken out; the source's name is
a word that ends like --source, or a last word that is no option. All other words go as
they stand, and so do those of --env. The source is sent as it is: it should be
preprocessed. --no-source sends none.

With --form sources the command runs in a tree with the files that are named and no
others: --file NAME=PATH is a file of that name with the content of PATH (NAME=@N: the
same as the Nth, a hard link), --link NAME=TARGET a symbolic link, --dir a directory;
--source, if given, is one more file under its base name. No word is taken out then, or
with --raw: what the fields of the protocol say is told by --lang, --name, --cwd,
--front, --compiler and --output [object:|assembly:|stack-usage:|side:|dependency:]NAME.

The compiler is the one that the first word names here, or gcc when it names none: the
daemon must have the same. --toolchain names another one. --repeat sends the job so many
times at once over one connection, --cancel takes it back after a time.

Exit status: 0 the compile ran, 1 the compiler failed, 3 the daemon refused the job.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &exitError{exitArguments, errors.New("submit: one HOST:PORT is needed")}
			}
			if o.argv == "" || o.source == "" && !o.unsourced && o.raw.form != formSources {
				return &exitError{exitArguments, errors.New("submit: --argv and --source are needed")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return submit(cmd.Context(), args[0], &o) },
	}
	f := c.Flags()
	f.StringVar(&o.argv, "argv", "", "`file` with the command's words, each ended by a NUL")
	f.StringVar(&o.env, "env", "", "`file` with NAME=VALUE words, each ended by a NUL")
	f.StringVar(&o.source, "source", "", "`file` with the preprocessed source")
	f.BoolVar(&o.unsourced, "no-source", false, "send no source")
	f.StringVar(&o.object, "object", "", "`file` that the object is written to")
	f.StringVar(&o.stderr, "stderr", "", "`file` that the compiler's messages are written to")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the answer")
	f.DurationVar(&o.limit, "limit", 0, "wall time that the daemon is asked to give the compile; 0: its own limit")
	f.DurationVar(&o.cancel, "cancel", 0, "take the job back after `so long`")
	f.IntVar(&o.repeat, "repeat", 1, "send it `N` times at once")
	o.raw.flags(f)
	return c
}

// submit runs the subcommand.
func submit(ctx context.Context, addr string, o *submitOptions) error {
	j, err := o.job(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	id, err := identityOf(ctx, identity.Client)
	if err != nil {
		return err
	}
	dev, err := iwarp.Open(deviceConfig(ctx, id))
	if err != nil {
		return err
	}
	defer dev.Close()
	c, err := rawjob.DialWith(ctx, dev, addr, rawjob.Options{Want: o.repeat, Key: id.Key()})
	if err != nil {
		return exitOf(err)
	}
	defer c.Close()
	r, err := o.send(ctx, c, j)
	if err != nil {
		return exitOf(err)
	}
	return o.report(r)
}

// exitOf wraps an error of the connection with its exit status.
func exitOf(err error) error {
	var rejected *rawjob.Rejected
	switch {
	case errors.As(err, &rejected):
		return &exitError{exitRefused, err}
	case errors.Is(err, rawjob.ErrConnect):
		return &exitError{exitConnect, err}
	case errors.Is(err, rawjob.ErrProtocol):
		return &exitError{exitProtocol, err}
	}
	return err
}

// job returns the job that the command line describes.
func (o *submitOptions) job(ctx context.Context) (*rawjob.Job, error) {
	argv, err := words(o.argv)
	if err != nil {
		return nil, err
	}
	if len(argv) == 0 {
		return nil, &exitError{exitArguments, fmt.Errorf("%s holds no word", o.argv)}
	}
	j := &rawjob.Job{Timeout: o.limit}
	if o.source != "" {
		if j.Text, err = os.ReadFile(o.source); err != nil {
			return nil, &exitError{exitArguments, err}
		}
	}
	if o.raw.form == formSources || o.raw.words {
		j.Body = &job.Body{Argv0: argv[0], Args: argv[1:]}
	} else {
		j.Body = parseArgv(argv, filepath.Base(o.source))
	}
	b := j.Body
	if o.env != "" {
		if b.Env, err = words(o.env); err != nil {
			return nil, err
		}
	}
	if err := o.raw.fill(j, filepath.Base(o.source)); err != nil {
		return nil, &exitError{exitArguments, err}
	}
	if b.Name == "" {
		b.Name = filepath.Base(o.source)
	}
	if b.Language == "" {
		b.Language = "cpp-output"
		if strings.Contains(filepath.Base(b.Argv0), "++") {
			b.Language = "c++-cpp-output"
		}
	}
	if b.Cwd == "" {
		if b.Cwd, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	of := b.Argv0
	if o.raw.toolchain != "" {
		of = o.raw.toolchain
	}
	j.Toolchain, err = identify(ctx, of)
	return j, err
}

// send sends the job as often as requested. It returns the first answer that is not a success, else the last one.
func (o *submitOptions) send(ctx context.Context, c *rawjob.Client, j *rawjob.Job) (*rawjob.Result, error) {
	var all []*rawjob.Pending
	for range max(o.repeat, 1) {
		p, err := c.Start(ctx, j)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if o.cancel > 0 {
		select {
		case <-time.After(o.cancel):
		case <-ctx.Done():
		}
		if err := c.Cancel(all...); err != nil {
			return nil, err
		}
	}
	var answer *rawjob.Result
	for _, p := range all {
		r, err := c.Wait(ctx, p)
		if err != nil {
			return nil, err
		}
		if answer == nil || answer.Status == job.StatusRan && answer.Exit == 0 && answer.Signal == 0 {
			answer = r
		}
	}
	return answer, nil
}

// report writes the files and turns the result into an exit status.
func (o *submitOptions) report(r *rawjob.Result) error {
	switch r.Status {
	case job.StatusRefused:
		return &exitError{exitRefused, fmt.Errorf("refused (%v): %s", r.Cause, r.Detail)}
	case job.StatusFailed:
		return &exitError{exitCompilerFailed, fmt.Errorf("failed (%v): %s", r.Cause, r.Detail)}
	}
	if o.stderr != "" {
		if err := os.WriteFile(o.stderr, r.Segment(r.Stderr), 0o666); err != nil {
			return err
		}
	}
	if o.object != "" {
		for _, f := range r.Files {
			if f.Index != 0 {
				continue
			}
			if err := os.WriteFile(o.object, r.Segment(f.Segment), 0o666); err != nil {
				return err
			}
		}
	}
	switch {
	case r.Signal != 0:
		return &exitError{exitCompilerFailed, fmt.Errorf("the compiler was killed by signal %d", r.Signal)}
	case r.Exit != 0:
		return &exitError{exitCompilerFailed, fmt.Errorf("the compiler ended with status %d", r.Exit)}
	}
	return nil
}

// words reads a file of NUL-terminated words; the last NUL may be missing.
func words(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, &exitError{exitArguments, err}
	}
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(string(bytes.TrimSuffix(b, []byte{0})), "\x00"), nil
}

// parseArgv moves those parts of a command that have a field of their own in the protocol into it. source
// is the base name by which the command may refer to its source.
func parseArgv(argv []string, source string) *job.Body {
	b := &job.Body{Argv0: argv[0]}
	out := unit.Output{Kind: unit.OutputObject, Name: "out.o"}
	rest := argv[1:]
	if n := len(rest); n > 0 && !strings.HasPrefix(rest[n-1], "-") && (n < 2 || rest[n-2] != "-o" && rest[n-2] != "-x") {
		b.Name = filepath.Base(rest[n-1])
		rest = rest[:n-1]
	}
	for i := 0; i < len(rest); i++ {
		switch w := rest[i]; {
		case w == "-c":
		case w == "-S":
			out.Kind = unit.OutputAssembly
		case w == "-o" && i+1 < len(rest):
			i++
			out.Name = rest[i]
		case w == "-x" && i+1 < len(rest):
			i++
			b.Language = rest[i]
		case b.Name == "" && filepath.Base(w) == source:
			b.Name = source
		default:
			b.Args = append(b.Args, w)
		}
	}
	b.Outputs = []unit.Output{out}
	return b
}

// identify returns the ID of the compiler with that name, or of gcc: an unknown name must still reach the daemon.
func identify(ctx context.Context, argv0 string) (unit.ToolchainID, error) {
	var cache toolchain.Cache
	var first error
	for _, name := range []string{filepath.Base(argv0), "gcc", "cc"} {
		path, err := exec.LookPath(name)
		if err == nil {
			var tc toolchain.Toolchain
			if tc, err = cache.Identify(ctx, path); err == nil {
				return tc.ID, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return unit.ToolchainID{}, fmt.Errorf("no compiler here to name to the daemon: %w", first)
}
