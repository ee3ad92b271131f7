// Package farm runs a small farm on this machine: daemons and a connection
// manager as real processes on loopback ports of their own, with a state
// directory of their own, so that nothing of the user's is touched.
package farm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long a process may take until it answers, and until it is gone.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// Farm is a running farm.
type Farm struct {
	Dir     string    // RDISTCC_DIR: socket, logs
	Wrapper string    // path of rdistcc
	Daemons []Process // of rdistccd, Addr is the host's name in traces and metrics
	Manager Process

	others []Process
}

// Process is one program of the farm.
type Process struct {
	Name string
	Addr string // iWARP, host:port; daemons only
	HTTP string // status page and metrics, host:port
	Log  string // file

	cmd  *exec.Cmd
	done chan error // receives what Wait returned
}

// Start starts n daemons of jobs jobs each and a manager that has them as its
// hosts, from the programs in bin, with files in dir. It returns when all are
// ready. Stop ends them.
func Start(ctx context.Context, bin, dir string, n, jobs int) (f *Farm, err error) {
	f = &Farm{Dir: dir, Wrapper: filepath.Join(bin, "rdistcc")}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	ports, err := freePorts(2*n + 1)
	if err != nil {
		return f, err
	}
	var hosts []string
	for i := range n {
		addr, page := ports[2*i], ports[2*i+1]
		p, err := f.launch(ctx, "rdistccd-"+strconv.Itoa(i+1), page, os.Environ(), filepath.Join(bin, "rdistccd"),
			"--listen", addr, "--http", page, "--jobs", strconv.Itoa(jobs))
		if err != nil {
			return f, err
		}
		p.Addr = addr
		f.Daemons = append(f.Daemons, p)
		hosts = append(hosts, addr)
	}
	page := ports[2*n]
	f.Manager, err = f.launch(ctx, "rdistcc-cm", page, f.Env(), filepath.Join(bin, "rdistcc-cm"),
		"--hosts", strings.Join(hosts, " "), "--http", page)
	if err != nil {
		return f, err
	}
	for _, p := range append(slices.Clone(f.Daemons), f.Manager) {
		if err := p.WaitReady(ctx, "/readyz"); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Env is the environment for commands that are to use this farm: the caller's
// without any setting of rdistcc or distcc, and the farm's own directory.
func (f *Farm) Env() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "RDISTCC_") || strings.HasPrefix(s, "DISTCC_")
	})
	return append(env, "RDISTCC_DIR="+f.Dir)
}

// Launch starts another program beside the farm, which Stop ends with it.
func (f *Farm) Launch(ctx context.Context, name, page, program string, args ...string) (Process, error) {
	p, err := f.launch(ctx, name, page, os.Environ(), program, args...)
	if err == nil {
		f.others = append(f.others, p)
	}
	return p, err
}

func (f *Farm) launch(ctx context.Context, name, page string, env []string, program string, args ...string) (Process, error) {
	p := Process{Name: name, HTTP: page, Log: filepath.Join(f.Dir, name+".log"), done: make(chan error, 1)}
	log, err := os.Create(p.Log)
	if err != nil {
		return p, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, log, log
	// A group of its own, so that an interrupt at the terminal reaches us only
	// and the farm is stopped in order; should we be killed, it ends as well.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return p, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, ctx.Err()
}

// WaitReady returns when path of the process's HTTP address answers 200.
func (p Process) WaitReady(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if Get(ctx, "http://"+p.HTTP+path) == nil {
			return nil
		}
		select {
		case err := <-p.done:
			p.done <- err // for Stop
			return fmt.Errorf("%s ended: %v: %s", p.Name, err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer on http://%s%s: %w: %s", p.Name, p.HTTP, path, ctx.Err(), p.tail())
		case <-tick.C:
		}
	}
}

// Get fetches a page and returns an error unless it answers 200.
func Get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// tail is the last line of the log.
func (p Process) tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// Stop ends everything, the manager first, and waits for it. A manager or daemon
// that does not end with status 0 is an error.
func (f *Farm) Stop() error {
	http.DefaultClient.CloseIdleConnections()
	var errs []error
	for _, p := range slices.Concat([]Process{f.Manager}, f.Daemons) {
		if err := p.stop(); err != nil {
			errs = append(errs, fmt.Errorf("%s did not end well: %w: %s", p.Name, err, p.tail()))
		}
	}
	for _, p := range f.others {
		_ = p.stop() // their exit status is their own affair
	}
	return errors.Join(errs...)
}

func (p Process) stop() error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already: Wait tells
	select {
	case err := <-p.done:
		return err
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("still running %v after SIGTERM", stopTimeout)
	}
}

// Kill ends a process at once.
func (p Process) Kill() error { return p.cmd.Process.Kill() }

// freePorts returns n different loopback addresses that nobody listens on now.
func freePorts(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
