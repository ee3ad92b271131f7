package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/lab/netlab"
)

// daemon is a process that runs during a measurement.
type daemon struct {
	name string
	cmd  *exec.Cmd
	log  string // its output
	done chan struct{}
}

// startDaemon starts argv in a group, with its output in a file.
func (b *bench) startDaemon(g *group, name string, env []string, argv ...string) (*daemon, error) {
	logFile, err := os.CreateTemp(b.tmp, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	d := &daemon{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: logFile.Name(), done: make(chan struct{})}
	d.cmd.Env, d.cmd.Dir = env, b.tmp
	d.cmd.Stdout, d.cmd.Stderr = logFile, logFile
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.start(d.cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = d.cmd.Wait() // how it ended matters only when a measurement failed
		close(d.done)
	}()
	g.daemons = append(g.daemons, d)
	return d, nil
}

// stop ends the daemon and what it started.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(5 * time.Second):
	}
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	<-d.done
}

// trouble returns err with the end of the daemon's output.
func (d *daemon) trouble(err error) error {
	out, _ := os.ReadFile(d.log)
	return fmt.Errorf("%s: %w: %s", d.name, err, lastLines(out, 3))
}

// await waits until ready returns true.
func (d *daemon) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-d.done:
			return d.trouble(fmt.Errorf("it ended"))
		case <-ctx.Done():
			return d.trouble(fmt.Errorf("it does not get ready"))
		}
	}
	return nil
}

// listening returns a function that reports whether a process accepts connections at addr, on a host's
// network if one is given.
func listening(on *netlab.Host, network, addr string) func() bool {
	dial := new(net.Dialer).DialContext
	if on != nil {
		dial = on.Dial
	}
	return func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
}

// said returns a function that reports whether the daemon's output contains the text.
func (d *daemon) said(text string) func() bool {
	return func() bool {
		out, _ := os.ReadFile(d.log)
		return strings.Contains(string(out), text)
	}
}

// freeAddr returns an address with a currently free port, on a host's network if one is given, else on loopback.
func freeAddr(on *netlab.Host) (string, error) {
	listen, addr := net.Listen, "127.0.0.1:0"
	if on != nil {
		listen, addr = on.Listen, netip.AddrPortFrom(on.Addr, 0).String()
	}
	ln, err := listen("tcp4", addr)
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// ownCPU returns the CPU time of the daemon itself: of the processes of its tree that run the daemon's own
// program, without the compilers. The scheduler counts it in nanoseconds. It is 0 for a nil daemon.
func (d *daemon) ownCPU() time.Duration {
	if d == nil {
		return 0
	}
	exe, err := os.Readlink(procPath(d.cmd.Process.Pid, "exe"))
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, pid := range tree(d.cmd.Process.Pid) {
		if e, err := os.Readlink(procPath(pid, "exe")); err != nil || e != exe {
			continue
		}
		stats, _ := filepath.Glob(procPath(pid, "task/*/schedstat"))
		for _, s := range stats {
			b, err := os.ReadFile(s)
			if err != nil {
				continue // that thread has ended
			}
			ns, _, _ := strings.Cut(string(b), " ")
			n, _ := strconv.ParseInt(ns, 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// treeTicks returns the CPU time of the daemon's tree, including all children that it has waited for, in
// clock ticks of 10 ms.
func (d *daemon) treeTicks() time.Duration {
	var ticks int64
	for _, pid := range tree(d.cmd.Process.Pid) {
		f := statFields(pid)
		if len(f) < 15 {
			continue
		}
		for _, x := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(x, 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// tree lists a process and its descendants.
func tree(root int) []int {
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		lists, _ := filepath.Glob(procPath(pids[i], "task/*/children"))
		for _, l := range lists {
			b, _ := os.ReadFile(l)
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					pids = append(pids, n)
				}
			}
		}
	}
	return pids
}

// statFields returns the fields of /proc/PID/stat from the state on.
func statFields(pid int) []string {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return nil
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}
