// Command tests runs the project's tests by the go command, for `make test` and its relatives. It says as packages end how
// far it is, sums up what was skipped and why, and holds the CPU time of each package against what a file grants it.
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

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == "measure" { // as the go command's -exec
		status, err := measure(os.Args[2], os.Args[3:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "tests: measure:", err)
		}
		os.Exit(status)
	}
	var o options
	flag.IntVar(&o.part, "part", 0, "have large suites run one of `N` parts of their cases, another one each day; 0: everything, 1: everything in one way")
	flag.StringVar(&o.which, "packages", "all", "all, or machine: those whose tests meet the machine: start programs, or need a tool or a right; or part: these but for the laboratory and programs of tests, and the part of the others")
	flag.StringVar(&o.budget, "budget", "", "`file` with the CPU seconds of each package, by which the longest begin first")
	flag.StringVar(&o.first, "first", "", "`packages`, with commas between, that begin first, whatever they use: those that wait longest")
	flag.BoolVar(&o.hold, "hold", false, "a package that uses more than its budget fails")
	flag.StringVar(&o.grants, "grants", "", "`file` that gets a line for each package with what it used, to make a budget of")
	flag.StringVar(&o.flags, "flags", "", "of go test, with blanks between")
	flag.StringVar(&o.hint, "hint", "", "how to run what a part leaves out, for people")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, o); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "tests:", err)
		}
		os.Exit(1)
	}
}

type options struct {
	part                               int
	which                              string
	budget, first, grants, flags, hint string
	hold                               bool
	packages                           []string
}

// errFailed is returned when tests have failed, which has been said.
var errFailed = errors.New("tests failed")

// aDay is how long a part is the same.
const aDay = 24 * time.Hour

func run(ctx context.Context, o options) (err error) {
	granted := budget{}
	if o.budget != "" {
		if granted, err = readBudget(o.budget); err != nil {
			return err
		}
	}
	value := os.Getenv(part.Variable)
	if value == "" && o.part > 0 {
		value = fmt.Sprintf("%d/%d", time.Now().Unix()/int64(aDay/time.Second), o.part)
	}
	if value != "" {
		left := ""
		if o.hint != "" {
			left = "; " + o.hint
		}
		fmt.Printf("of what is large a part runs, %s=%s, another one tomorrow%s\n", part.Variable, value, left)
	}
	today, err := part.Parse(value)
	if err != nil {
		return err
	}
	chosen := map[string]func(listed) bool{
		"all":     func(listed) bool { return true },
		"machine": listed.meetsMachine,
		"part":    func(p listed) bool { return p.meetsMachine() && !p.beside() || today.Has(p.ImportPath) },
	}[o.which]
	if chosen == nil {
		return fmt.Errorf("-packages %s: it takes all, machine or part", o.which)
	}
	root, names, err := list(ctx, o.packages, chosen)
	if err != nil {
		return err
	}
	granted.longestFirst(names, strings.Split(o.first, ",")...)
	dir, err := os.MkdirTemp("", "rdistcc-tests-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	used := filepath.Join(dir, "used")
	args := []string{"test", "-json"}
	if o.hold || o.grants != "" { // the go command takes no earlier result for what it starts so
		args = append(args, "-exec", self+" measure "+used)
	}
	args = append(args, strings.Fields(o.flags)...)
	for _, n := range names {
		args = append(args, "./"+n)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// At an interrupt the go command ends its tests by itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = os.Environ()
	if value != "" {
		cmd.Env = append(cmd.Env, part.Variable+"="+value)
	}
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := newWatcher(os.Stdout, len(names), value, func(pkg string) (usage, bool) {
		all, err := readUsage(used, root)
		u, ok := all[pkg]
		return u, ok && err == nil
	})
	rerr := w.read(events)
	werr := cmd.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	all, uerr := readUsage(used, root)
	if err := errors.Join(rerr, uerr); err != nil {
		return err
	}
	if o.grants != "" {
		if err := writeBudget(o.grants, all); err != nil {
			return err
		}
	}
	var over []usage
	if o.hold {
		over = granted.over(all)
	}
	w.sum(granted, all, over)
	if exit := new(exec.ExitError); werr != nil && !errors.As(werr, &exit) {
		return werr
	}
	if werr != nil || w.failed > 0 || slices.ContainsFunc(over, granted.fails) {
		return errFailed
	}
	return nil
}
