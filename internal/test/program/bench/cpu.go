package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/lab/netlab"
)

// accounting measures the CPU time of groups of processes, including daemons. The best way is a cpuacct
// control group for each: the scheduler counts in nanoseconds, and no process escapes by having another
// parent. Otherwise it uses the children's own rusage and /proc/PID/stat of the daemons, in clock ticks:
// then only means over many rounds are meaningful.
type accounting struct {
	source string
	root   string // directory of our groups; empty: no control groups
	shared string // directory of the group in which all share the processors; empty: none
	exact  bool
}

// group is a set of processes whose CPU time is counted together.
type group struct {
	a       *accounting
	dir     string
	place   *netlab.Host // in whose network its processes run; nil: this process's
	daemons []*daemon
	waited  time.Duration // without control groups: of children that have ended
}

func newAccounting() *accounting {
	a := &accounting{source: "rusage and /proc/PID/stat (no writable cpuacct control group)"}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return a
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "cgroup" {
			continue
		}
		options := "," + f[3] + ","
		dir := filepath.Join(f[1], fmt.Sprintf("rdistcc-bench-%d", os.Getpid()))
		switch {
		case strings.Contains(options, ",cpuacct,"):
			if os.Mkdir(dir, 0o755) == nil {
				a.root, a.exact, a.source = dir, true, "cpuacct control groups"
			}
		case strings.Contains(options, ",cpu,"):
			a.share(dir)
		}
	}
	return a
}

// share makes a group of this process and all that it starts. Outside of groups the kernel gives every
// session a share of the processors, and a daemon whose workers are sessions of their own would get more of
// a busy machine than its rivals.
func (a *accounting) share(dir string) {
	if os.Mkdir(dir, 0o755) != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		_ = os.Remove(dir)
		return
	}
	a.shared = dir
}

// close removes the groups. Their processes have ended; the last threads may take a moment.
func (a *accounting) close() {
	if a.shared != "" {
		_ = os.WriteFile(filepath.Join(filepath.Dir(a.shared), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
		for range 100 {
			if os.Remove(a.shared) == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if a.root == "" {
		return
	}
	for range 100 {
		for _, depth := range []string{"*/*", "*"} {
			dirs, _ := filepath.Glob(filepath.Join(a.root, depth, "tasks"))
			for _, t := range dirs {
				_ = os.Remove(filepath.Dir(t))
			}
		}
		if os.Remove(a.root) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "bench: control groups are left below %s\n", a.root)
}

// group makes a group; "a/b" is a part of "a" and counts towards it too.
func (a *accounting) group(name string) (*group, error) {
	g := &group{a: a}
	if a.root == "" {
		return g, nil
	}
	g.dir = filepath.Join(a.root, name)
	if err := os.Mkdir(g.dir, 0o755); err != nil && !os.IsExist(err) {
		return nil, err
	}
	return g, nil
}

// start starts cmd as a member of the group: a fresh thread joins the group first, is never used for
// anything else, and forks within the group.
func (g *group) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		if err := g.join(); err != nil {
			result <- err
			return
		}
		result <- cmd.Start()
	}()
	return <-result
}

// join makes the calling goroutine's thread a member of the group, in its network; the thread ends with the
// goroutine.
func (g *group) join() error {
	if g.place == nil {
		runtime.LockOSThread()
	} else if err := g.place.Enter(); err != nil {
		return err
	}
	if g.dir == "" {
		return nil
	}
	tid := strconv.Itoa(syscall.Gettid())
	return os.WriteFile(filepath.Join(g.dir, "tasks"), []byte(tid), 0o644)
}

// usage returns the CPU time that the group has used so far; 0 for a nil group.
func (g *group) usage() time.Duration {
	if g == nil {
		return 0
	}
	if g.dir != "" {
		b, err := os.ReadFile(filepath.Join(g.dir, "cpuacct.usage"))
		if err != nil {
			return 0
		}
		n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return time.Duration(n)
	}
	t := g.waited
	for _, d := range g.daemons {
		t += d.treeTicks()
	}
	return t
}

// runner runs commands one after the other on one thread of a group, so that a sample includes only fork,
// exec and wait.
type runner struct {
	g      *group
	jobs   chan func()
	limit  time.Duration // for one command
	stderr *os.File
}

func newRunner(g *group, tmp string) (*runner, error) {
	stderr, err := os.CreateTemp(tmp, "stderr")
	if err != nil {
		return nil, err
	}
	r := &runner{g: g, jobs: make(chan func()), limit: commandLimit, stderr: stderr}
	ready := make(chan error)
	go func() {
		ready <- g.join()
		for f := range r.jobs {
			f()
		}
	}()
	return r, <-ready
}

func (r *runner) close() {
	close(r.jobs)
	_ = r.stderr.Close()
}

// commandLimit ends a command that hangs.
const commandLimit = 60 * time.Second

// lastLines returns the end of a program's output as one line.
func lastLines(out []byte, n int) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// took is the cost of one command.
type took struct {
	wall, cpu, self time.Duration // cpu: the whole group; self: the command and what it waited for
}

// run runs one command to its end. settle is the time that daemons get for their work after the answer,
// before their CPU time is read.
func (r *runner) run(ctx context.Context, settle time.Duration, env []string, dir string, argv ...string) (took, error) {
	var t took
	done := make(chan error, 1)
	_ = r.stderr.Truncate(0)
	_, _ = r.stderr.Seek(0, 0)
	ctx, cancel := context.WithTimeout(ctx, r.limit) // distcc without fallback tries for ever
	defer cancel()
	r.jobs <- func() {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env, cmd.Dir, cmd.Stderr = env, dir, r.stderr
		before := r.g.usage()
		t0 := time.Now()
		err := cmd.Start()
		if err == nil {
			err = cmd.Wait()
		}
		t.wall = time.Since(t0)
		if s := cmd.ProcessState; s != nil {
			t.self = s.UserTime() + s.SystemTime()
			r.g.waited += t.self
		}
		if settle > 0 {
			time.Sleep(settle)
		}
		t.cpu = r.g.usage() - before
		if err != nil {
			said, _ := os.ReadFile(r.stderr.Name())
			err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, lastLines(said, 2))
		}
		done <- err
	}
	return t, <-done
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
