// Command rdistcc-perf measures the transport: bandwidth and latency of RDMA
// Write, Read and Send over our verbs, and of raw TCP for comparison. Server and
// client run the same test:
//
//	rdistcc-perf write_bw -s [--listen ADDR:PORT] [--once]
//	rdistcc-perf write_bw -c ADDR:PORT [--size 1MiB] [--duration 2s] [--json]
//
// With --perftest the other side is perftest's program of that name, started with
// -R. rping and example play the programs of librdmacm, idle measures what
// connections without work use, submit sends one job to a daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/release"
)

// version is set by the Makefile.
var version string

// Exit codes, from the list that all our programs share.
const (
	exitGeneral   = 100
	exitArguments = 101
	exitAddress   = 102
	exitConnect   = 103
	exitIO        = 107
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "rdistcc-perf",
		Short:         "Measure the iWARP transport of rdistcc",
		Version:       release.Of(version).Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &exitError{exitArguments, fmt.Errorf("no test is called %q: see rdistcc-perf --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	endCapture := commonFlags(root, stderr)
	for i := range tests {
		root.AddCommand(testCommand(&tests[i]))
	}
	root.AddCommand(rpingCommand(), exampleCommand(), idleCommand(), submitCommand(), expCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitArguments, err} })
	err := root.ExecuteContext(ctx)
	if end := endCapture(); err == nil && end != nil {
		err = &exitError{exitIO, end}
	}
	if err == nil {
		return 0
	}
	say(stderr, "%v", err)
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitGeneral
}
