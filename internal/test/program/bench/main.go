// Command bench measures rdistcc side by side with distcc and with raw TCP and
// prints a table of ratios. Rounds are interleaved, figures are medians, CPU time
// is that of everything that took part: client, manager, daemon and compilers.
//
//	go run ./internal/test/program/bench [-bin bin] [-out bench] [-rounds N] [-only P1,P10]
//
// Its own daemons and managers run on loopback ports of their own. It does not
// judge: the exit status is non-zero only if something could not be measured
// that should have been.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
)

// bench is one run of the program.
type bench struct {
	ctx     context.Context
	bin     string // directory of our programs
	tmp     string
	rounds  int
	turns   int // rounds of whole builds
	sources *debsrc.Archives
	gcc     string // the compiler
	units   int    // number of sources made so far
	headers int    // of P21's large tree
	acct    *accounting
	log     *samples
	table   table
}

func main() {
	if text := os.Getenv(hostileVar); text != "" {
		if err := beHostile(text); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if times := os.Getenv(backendsVar); times != "" {
		if err := beBackends(times, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bin := flag.String("bin", "bin", "directory of rdistcc, rdistccd, rdistcc-cm and rdistcc-perf")
	out := flag.String("out", "bench", "directory that the raw samples are kept in")
	rounds := flag.Int("rounds", 60, "rounds of the compile figures")
	turns := flag.Int("turns", 3, "rounds of whole builds")
	sources := flag.String("sources", "", "directory of Debian's source packages, which are fetched by apt-get if need be; by default in the user's cache")
	seconds := flag.Float64("seconds", 1, "length of one transport sample")
	size := flag.Int("headers", 20000, "headers of P21's large tree")
	only := flag.String("only", "", "only these figures, by comma: P1,P3,P5,P6,P7,P8,P9,P10,P12,P13,P14,P15,P16,P17,P18,P19,P20,P21,P27,P28,P29,P30,P31,P32,S6,S7,S8,scaling,edits,worktrees,peers (P2, P4 and S4 come with P1, P11 with P10, P22 to P24 with P21; these, scaling, edits, worktrees and peers are left out otherwise)")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}

	b := &bench{ctx: ctx, rounds: *rounds, turns: *turns, headers: *size}
	var err error
	if b.sources, err = debsrc.New(*sources); err != nil {
		return err
	}
	if b.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	for _, p := range []string{"rdistcc", "rdistccd", "rdistcc-cm", "rdistcc-perf"} {
		if _, err := os.Stat(filepath.Join(b.bin, p)); err != nil {
			return fmt.Errorf("%s is not built: run make first", filepath.Join(b.bin, p))
		}
	}
	if b.gcc, err = exec.LookPath("gcc"); err != nil {
		return errors.New("gcc is not installed: apt-get install gcc")
	}
	if b.tmp, err = os.MkdirTemp("", "rdistcc-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	// distccd gives up root: its new user must be able to get there, and to write somewhere.
	if err := os.Chmod(b.tmp, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(b.scratch(), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(b.scratch(), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if b.log, err = newSamples(*out); err != nil {
		return err
	}
	b.acct = newAccounting()
	defer b.acct.close()

	fmt.Printf("# %s; %s; CPU from %s\n", machine(), time.Now().UTC().Format(time.DateTime), b.acct.source)
	parts := []struct {
		name string
		run  func() error
	}{
		{"P1", b.compiles},
		{"P3", b.wrapper},
		{"P5", b.farEmpty},
		{"P6", b.farSource},
		{"P7", b.farBuild},
		{"P8", b.builds},
		{"P9", b.roundTrips},
		{"P10", func() error { return b.goodput(*seconds) }},
		{"P12", b.latency},
		{"P13", b.big},
		{"P14", b.client},
		{"P15", b.equality},
		{"P16", b.traffic},
		{"P17", b.feed},
		{"P18", func() error { return errors.Join(b.cached(), b.cachedBuilds()) }},
		{"P19", b.shelved},
		{"P20", func() error { return errors.Join(b.start(), b.knows()) }},
		{"P21", b.trees},
		{"P27", b.thinLinks},
		{"P28", b.gccLinks},
		{"P29", b.waiting},
		{"P30", b.ahead},
		{"P31", b.clusters},
		{"P32", b.puts},
		{"S6", func() error { return b.secrecy(*seconds) }},
		{"S7", b.neighbour},
		{"S8", b.answered},
		{"edits", b.edits},
		{"worktrees", b.worktrees},
		{"peers", b.peers},
		{"scaling", func() error { return b.scaling(*seconds) }},
	}
	want := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	var errs []error
	for _, p := range parts {
		if !slices.Contains(want, p.name) && (len(want) > 0 || p.name == "P21" || p.name == "scaling" || p.name == "edits" || p.name == "worktrees" || p.name == "peers") {
			continue
		}
		if err := p.run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.table.print(os.Stdout)
	fmt.Printf("# raw samples: %s\n", b.log.path)
	return errors.Join(append(errs, b.log.close())...)
}

// scratch returns where all programs put their temporary files.
func (b *bench) scratch() string { return filepath.Join(b.tmp, "scratch") }

// machine describes in a few words the machine on which the figures were taken.
func machine() string {
	model := "unknown CPU"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(b), "\n") {
			if v, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimLeft(v, "\t :")
				break
			}
		}
	}
	var u syscall.Utsname
	release := ""
	if syscall.Uname(&u) == nil {
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			release += string(rune(c))
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	l, _, _ := strings.Cut(string(load), " ")
	cc, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	return fmt.Sprintf("%s x %d, Linux %s, load %s, TCP %s", model, cpus(), release, l, strings.TrimSpace(string(cc)))
}
