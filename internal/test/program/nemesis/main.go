// Command nemesis runs a farm of real processes (daemons behind relays of their own, a manager that
// wrappers start, wrappers that a driver starts as make does) and strikes it with faults while it works:
// killed, stopped and ended programs, broken links, full disks. It compares every object, accounts for
// every job, and looks for anything left behind.
//
//	go run ./internal/test/program/nemesis [-seed N] [-seeds N] [-jobs N] [-every N] [-svg FILE] [-plan]
//
// A seed determines the jobs and the faults; -plan prints them. Exit status 1 means that a promise was not
// kept; the farm's directory is then kept for inspection.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := options{log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	bin := flag.String("bin", "bin", "directory of rdistcc, rdistccd and rdistcc-cm")
	seed := flag.Uint64("seed", 1, "the first seed; odd ones send sources, even ones preprocessed text")
	seeds := flag.Int("seeds", 5, "how many seeds")
	flag.IntVar(&o.jobs, "jobs", 2000, "compiles for each seed")
	flag.IntVar(&o.every, "every", 20, "jobs from one fault to the next")
	flag.IntVar(&o.hosts, "hosts", 4, "compile hosts, of two places each")
	flag.IntVar(&o.width, "j", 8, "compiles at a time")
	flag.DurationVar(&o.settle, "settle", 10*time.Second, "how long all may take to come to rest after the last job")
	svg := flag.String("svg", "", "file for a plot of the farm's utilisation")
	flag.BoolVar(&o.keep, "keep", false, "leave the farm's directory even if nothing went wrong")
	flag.BoolVar(&o.cache, "cache", false, "with the cache of results, and each job twice")
	show := flag.Bool("plan", false, "print each seed's faults")
	only := flag.String("only", "", "only faults of these kinds, by comma, as the report calls them")
	flag.Parse()
	for name := range strings.SplitSeq(*only, ",") {
		k, err := kindOf(name)
		if err != nil {
			return err
		}
		if name != "" {
			o.only = append(o.only, k)
		}
	}
	var err error
	if o.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.bin, "rdistccd")); err != nil {
		return fmt.Errorf("%w; run make first", err)
	}
	var results []*result
	for i := range *seeds {
		r, err := runSeed(ctx, o, *seed+uint64(i))
		if r != nil && *show {
			fmt.Printf("seed %d:\n", r.plan.seed)
			for _, s := range r.plan.strikes {
				fmt.Println("  " + s.String())
			}
		}
		if err != nil {
			return fmt.Errorf("seed %d: %w", *seed+uint64(i), err)
		}
		results = append(results, r)
		s := r.sum()
		o.log("seed %d: %d jobs in %.1f s, %d local, %d from the cache, %d things wrong", r.plan.seed, s.jobs, r.took.Seconds(), s.local, s.cached, s.wrong)
	}
	report(os.Stdout, results)
	if *svg != "" {
		err = os.WriteFile(*svg, plot(results[0]), 0o644)
	}
	return errors.Join(verdict(results), err)
}

func kindOf(name string) (kind, error) {
	for k := range numKinds {
		if name == "" || k.String() == name {
			return k, nil
		}
	}
	return 0, fmt.Errorf("no kind of fault is called %q", name)
}
