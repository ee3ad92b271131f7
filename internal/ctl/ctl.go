// Package ctl implements `rdistcc status` and all other subcommands of rdistcc that do not compile. The
// wrapper, which is kept small, runs `rdistcc-cm ctl WORD...` for them.
package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// ctl is one run of a subcommand.
type ctl struct {
	version  string                      // of this build
	lookup   func(string) (string, bool) // of the environment
	environ  func() []string             // all of it
	in       io.Reader                   // only top's keys are read from it
	out, err io.Writer
	self     string // this program's file
	cores    int
	terminal bool // out is one

	tools *toolchain.Cache // doctor's knowledge of compilers; nil: nothing yet
}

// exitError ends a subcommand with one of rdistcc's exit codes and a line.
type exitError struct {
	code  int
	line  string // empty: it was said already
	cause error  // nil: the line says it all
}

func (e *exitError) Error() string { return e.line }
func (e *exitError) Unwrap() error { return e.cause }

func failf(code int, format string, args ...any) error {
	return &exitError{code: code, line: fmt.Sprintf(format, args...)}
}

// Run runs a subcommand of rdistcc and returns the exit status. version is that of this build.
func Run(args []string, version string, out, errOut io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	c := &ctl{version: version, lookup: os.LookupEnv, environ: os.Environ, in: os.Stdin, out: out, err: errOut, self: self, cores: runtime.NumCPU(), terminal: isTerminal(out)}
	return c.run(args)
}

// isTerminal reports whether w is a terminal, or at least obeys the escape codes of terminals.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (c *ctl) run(args []string) int {
	// These two come from distcc and do not fit cobra.
	if len(args) > 0 && (args[0] == "-j" || args[0] == "--show-hosts") {
		args = append([]string{strings.TrimLeft(args[0], "-")}, args[1:]...)
	}
	root := c.command()
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if e := new(exitError); errors.As(err, &e) && e.line == "" {
		return e.code
	}
	fmt.Fprintf(c.err, "rdistcc: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", " "))
	return exitCodeOf(err)
}

// exitCodeOf returns the exit status of a subcommand that ends with err, which is not nil.
func exitCodeOf(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return reason.ExitArguments // an error of cobra's
}

// getenv is lookup for variables where empty and unset are the same.
func (c *ctl) getenv(name string) string {
	v, _ := c.lookup(name)
	return v
}

func (c *ctl) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "rdistcc",
		Short:         "Compile C and C++ on a farm of machines",
		Version:       c.version, // for a wrapper that does not know its own version
		Long:          "Subcommands of rdistcc. Any other first word is a compiler: rdistcc gcc -c x.c",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(_ *cobra.Command, args []string) error {
			return failf(reason.ExitArguments, "no subcommand %q; rdistcc help names them", strings.Join(args, " "))
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("rdistcc {{.Version}}\n")
	root.SetHelpCommand(helpCommand())
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(c.statusCommand(), c.hostsCommand(), c.configCommand(), c.stopCommand(), c.linksCommand(),
		c.statsCommand(), c.whyCommand(), c.reloadCommand(), c.drainCommand(), c.undrainCommand(), c.doctorCommand(), c.logsCommand(), c.topCommand(), c.cacheCommand(), c.toolchainCommand(), c.buildCommand(), c.buildsCommand(), c.traceCommand(), c.costsCommand(),
		c.certsCommand(), c.migrateCommand(), c.dtltoCommand(), c.completionCommand(), c.slotsCommand(), c.showHostsCommand())
	return root
}

// one is the rule for a command with one argument, a what; its error has an example.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		problem := "needs a " + what
		if len(args) > 1 {
			problem = "takes one " + what
		}
		example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
		return failf(reason.ExitArguments, "%s %s, as in: %s", cmd.Name(), problem, example)
	}
}

// helpCommand is `rdistcc help COMMAND`; without an argument rdistcc itself answers.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "help [COMMAND]",
		DisableFlagParsing: true, // help -j
		Short:              "Show what a command does",
		Args:               cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				return root.Help()
			}
			word := strings.TrimLeft(args[0], "-") // -j and --show-hosts come from distcc
			for _, sub := range root.Commands() {
				if sub.Name() == word || sub.HasAlias(word) {
					return sub.Help()
				}
			}
			if near := root.SuggestionsFor(word); len(near) > 0 {
				return failf(reason.ExitArguments, "no command %q; did you mean %q?", args[0], near[0])
			}
			return failf(reason.ExitArguments, "no command %q; rdistcc help names them", args[0])
		},
	}
}
