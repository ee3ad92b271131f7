package ctl

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// buildVariable is the variable by which commands say which build they belong to.
const buildVariable = "RDISTCC_BUILD"

// ownBuild begins the names that `rdistcc build` gives to builds.
const ownBuild = "rdistcc-build-"

// Exit statuses of shells for a command that cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func (c *ctl) buildCommand() *cobra.Command {
	var noProgress bool
	var most limits
	var page string
	cmd := &cobra.Command{
		Use:   "build [--] COMMAND [ARG]...",
		Short: "Run a build, and say at its end what the farm has gained",
		Long: "Runs a command that builds something with rdistcc, such as make. When it has ended, standard error gets a\n" +
			"summary: how long it took and would have taken without the farm (an estimate), where its compiles ran, what came\n" +
			"from the cache, and why the rest ran locally, with remedies. On a terminal, the last line shows the progress.\n" +
			"The exit status is the command's. If that is 0 and more of the build's compiles ran here, or were missing in the cache,\n" +
			"than --max-local and --max-misses allow, it is 120, and a line says why. rdistcc builds lists past\n" +
			"builds; docs/builds.md explains the figures.",
		Example: "  rdistcc build -- make -j32 CC=\"rdistcc gcc\"\n  rdistcc build ninja\n  rdistcc build --max-local 10% --max-misses 20% -- make -j32",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return failf(reason.ExitArguments, "build needs a COMMAND, as in: rdistcc build -- make -j32")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.build(args, !noProgress, &most, page) },
	}
	cmd.Flags().BoolVar(&noProgress, "no-progress", false, "show no progress")
	cmd.Flags().StringVar(&page, "report", "", "write a page on the build to `FILE`, as rdistcc builds does")
	cmd.Flags().Var(&most.local, "max-local", "exit with 120 if a larger `SHARE` of the compiles ran here, as in 10%")
	cmd.Flags().Var(&most.misses, "max-misses", "exit with 120 if a larger `SHARE` was missing in the cache, as in 20%")
	cmd.Flags().SetInterspersed(false) // options of the command are its own
	return cmd
}

// buildStore returns the store of past builds.
func (c *ctl) buildStore() *builds.Store {
	return builds.Open(filepath.Join(cmp.Or(config.StateHome(c.getenv), ipc.StateDir(c.getenv)), "builds"))
}

// build runs a command, says what became of the compiles in it, and writes the page on it if that names a file. Its error has the
// command's exit status, or says which of the limits most it has exceeded.
func (c *ctl) build(words []string, progress bool, most *limits, page string) error {
	child, err := c.child(words)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = c.getenv("PWD")
	}
	log := c.buildStore().New(builds.Build{Command: words, Dir: dir, Began: time.Now(), Cores: c.cores})
	name := c.getenv(buildVariable)
	// A build inside another one belongs to that, whose figures would lack its commands otherwise.
	inner := strings.HasPrefix(name, ownBuild)
	if name == "" {
		name = ownBuild + strconv.Itoa(log.Build.ID) + "-" + rand.Text()
	}
	child.Env = append(slices.DeleteFunc(c.environ(), func(kv string) bool { return strings.HasPrefix(kv, buildVariable+"=") }), buildVariable+"="+name)

	follow := c.follow(name)
	var line *progressLine
	if progress && !inner {
		line = c.progressLine()
	}
	exit, err := c.attend(child, log, follow, line)
	if err != nil {
		log.Build.Exit = exit
		log.Finish(time.Now())
		return err
	}
	ended := time.Now()
	log.Add(follow.rest())
	log.Build.Exit, log.Build.Lost = exit, follow.lost
	log.Finish(ended)
	c.tell(log, follow)
	if page != "" && log.Err() == nil {
		if err := c.writePage([]string{strconv.Itoa(log.Build.ID)}, page); err != nil {
			fmt.Fprintf(c.err, "rdistcc: no page was written: %v\n", err) // the status is the build's
		}
	}
	if exit != 0 {
		return &exitError{code: exit}
	}
	if most.set() && log.Build.Gain.Jobs == 0 && follow.err != nil && !errors.Is(follow.err, errNoManager) {
		return failf(reason.ExitLimit, "whether the build keeps to its limits is not known, as the manager gave no answer")
	}
	if over := most.judge(&log.Build.Gain); len(over) > 0 {
		return failf(reason.ExitLimit, "%s", strings.Join(over, "; and "))
	}
	return nil
}

// child returns the command to run, with this process's standard streams.
func (c *ctl) child(words []string) (*exec.Cmd, error) {
	file, err := exec.LookPath(words[0])
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // as shells do
	case errors.Is(err, fs.ErrPermission):
		return nil, failf(exitNotExecutable, "%s: not executable", words[0])
	default:
		return nil, failf(exitNotFound, "%s: no such command", words[0])
	}
	return &exec.Cmd{Path: file, Args: words, Stdin: os.Stdin, Stdout: c.out, Stderr: c.err}, nil
}

// followEvery is how often the manager is asked, and the progress shown.
const followEvery = 500 * time.Millisecond

// followPatience is how long the manager may take for an answer: a build that has ended does not wait longer for it.
const followPatience = 3 * time.Second

// passed are the signals that the command gets as well, if they reach this process alone.
var passed = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// attend starts child and returns its exit status when it has ended; meanwhile it notes what becomes of its compiles.
// An error means that it could not be started.
func (c *ctl) attend(child *exec.Cmd, log *builds.Log, follow *follower, line *progressLine) (exit int, err error) {
	signals := make(chan os.Signal, 16)
	for _, s := range passed {
		if !signal.Ignored(s) { // otherwise it stays so, for the command too
			signal.Notify(signals, s)
		}
	}
	if line != nil {
		signal.Notify(signals, unix.SIGWINCH)
		if !signal.Ignored(unix.SIGTSTP) {
			signal.Notify(signals, unix.SIGTSTP)
		}
	}
	defer signal.Stop(signals)
	// A reader of ours that has gone, such as head, must not take away the command's exit status.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)

	if err := child.Start(); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC) {
			return exitNotExecutable, failf(exitNotExecutable, "%s: %v", child.Args[0], errors.Unwrap(err))
		}
		return exitNotFound, failf(exitNotFound, "%s: %v", child.Args[0], cmp.Or(errors.Unwrap(err), err))
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	answers := make(chan answer, 1)
	asking := false
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !asking { // a manager may take its time
				asking = true
				go func() { answers <- follow.ask() }()
			}
		case a := <-answers:
			asking = false
			log.Add(a.jobs)
			line.show(log, a.running)
		case s := <-signals:
			switch {
			case s == unix.SIGWINCH:
				line.resize()
			case s == unix.SIGTSTP: // the command gets it too
				line.clear()
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			case !fromTerminal(s):
				_ = child.Process.Signal(s) // it may have ended just now
			}
		case <-ended:
			line.clear()
			if asking {
				log.Add((<-answers).jobs)
			}
			return statusOf(child.ProcessState), nil
		}
	}
}

// statusOf returns the exit status that a shell gives for a process that has ended.
func statusOf(p *os.ProcessState) int {
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.ExitCode()
}

// fromTerminal reports whether a signal was typed, as far as that can be known: then the command has it as well, being
// in the same process group.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// follower asks the manager what becomes of a build's commands. Its methods are called one at a time.
type follower struct {
	c    *ctl
	name string

	known bool // a manager has answered: pid and since
	pid   int
	since time.Time
	next  uint64
	lost  uint64
	err   error // why the last question had no answer
}

// answer is what has become of a build since the last time.
type answer struct {
	jobs    []report.JobRecord
	running int
}

// follow begins to follow a build: what the manager has noted before does not count.
func (c *ctl) follow(name string) *follower {
	f := &follower{c: c, name: name}
	var b report.BuildJobs
	if _, f.err = c.askWithin(followPatience, &b, "build", name); f.err == nil {
		f.meet(&b, b.Next)
	}
	return f
}

// meet takes note of the manager that has answered b, and of where to continue.
func (f *follower) meet(b *report.BuildJobs, next uint64) {
	f.known, f.pid, f.since, f.next = true, b.PID, b.Since, next
}

// ask returns what is new. A manager that has started since is asked from its beginning.
func (f *follower) ask() (a answer) {
	for {
		var b report.BuildJobs
		if _, f.err = f.c.askWithin(followPatience, &b, "build", f.name, strconv.FormatUint(f.next, 10)); f.err != nil {
			return a
		}
		if !f.known || b.PID != f.pid || !b.Since.Equal(f.since) {
			again := f.next != 0
			f.meet(&b, 0)
			if again {
				continue
			}
		}
		f.next = b.Next
		f.lost += b.Lost
		a.jobs, a.running = append(a.jobs, b.Jobs...), b.Running
		if !b.More {
			return a
		}
	}
}

// lastOnes is how long the manager may take to note the end of commands that have ended. More than that may be under
// way: what the build has left running.
const lastOnes = 2 * time.Second

// rest returns what is new when the build has ended.
func (f *follower) rest() (jobs []report.JobRecord) {
	for end := time.Now().Add(lastOnes); ; time.Sleep(20 * time.Millisecond) {
		a := f.ask()
		jobs = append(jobs, a.jobs...)
		if a.running == 0 || f.err != nil || time.Now().After(end) {
			return jobs
		}
	}
}
