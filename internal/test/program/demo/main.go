// Command demo shows rdistcc at its main job without any setup: it starts two daemons and a connection
// manager on loopback, compiles real code (two code bases, and a part of a third) through them with no local share,
// compares every object with what the local compiler makes of the same command, links and runs the results, and removes
// everything again. It fails if one object differs or one job was compiled here, unless that is by rule on a
// machine that permits no private trees, as containers mostly do: then it names the right that is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of the programs")
	flag.BoolVar(&o.keep, "keep", false, "leave everything running, with Prometheus where it is installed, until interrupted")
	flag.IntVar(&o.jobs, "jobs", 2*runtime.NumCPU(), "jobs at a time")
	o.security.Flags(flag.CommandLine)
	flag.BoolVar(&o.whole, "whole", false, "compile every source of all code bases")
	flag.StringVar(&o.only, "only", "", "one code base, for a short look: libwebp, zstd or flatbuffers")
	flag.BoolVar(&o.fetch, "fetch", false, "only fetch the code bases, for a machine that has no network later")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type options struct {
	bin   string
	keep  bool
	jobs  int
	only  string
	whole bool
	fetch bool

	security farm.Security
}

// deadline ends a demo that hangs; on two cores it takes a minute or two, with all sources some five.
const deadline = 45 * time.Minute

func run(ctx context.Context, o options) (err error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	for _, tool := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing (on Debian: apt-get install gcc g++)", tool)
		}
	}
	dir, err := os.MkdirTemp("", "rdistcc-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	out := newScreen(os.Stdout)
	bases, err := fetch(ctx, out, dir, o.only, o.whole)
	if err != nil || o.fetch {
		return err
	}

	fmt.Fprintln(out, "starting two daemons and a connection manager")
	f := farm.New(bin, dir)
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := f.Start(ctx, 2, runtime.NumCPU(), o.security); err != nil {
		return err
	}
	graphs := ""
	if o.keep {
		if graphs, err = monitor(ctx, f); err != nil {
			return err
		}
	}

	building, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var results []result
	for _, base := range bases {
		r, err := build(building, out, f, base, o.jobs)
		switch {
		case errors.Is(building.Err(), context.DeadlineExceeded):
			return fmt.Errorf("%s: not done after %v, which is far too long", base.name, deadline)
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case err != nil:
			return fmt.Errorf("%s: %w", base.name, err)
		}
		results = append(results, r)
	}
	noTree, err := lackOfTrees(ctx, f)
	if err != nil {
		return err
	}
	if err := report(out, f, results, noTree, o.only == ""); err != nil {
		return err
	}
	if o.keep {
		describe(out, f, graphs)
		<-ctx.Done()
	}
	return nil
}
