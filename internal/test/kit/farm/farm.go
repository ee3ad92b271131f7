// Package farm runs a small farm on this machine: daemons and a connection manager as real processes on
// loopback ports of their own, with a state directory of their own, so that nothing of the user's is
// touched.
package farm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a process may take until it answers, and until it is gone.
const (
	// A daemon first examines every compiler, and runs a canary in every place: at a load of 10, with a
	// hundred places, that took more than two minutes.
	startTimeout = 10 * time.Minute
	stopTimeout  = 15 * time.Second
)

// settings is the farm's configuration: all jobs go to its hosts, and only once. Results do not outlive a daemon, as
// several farms may have one cache directory.
const (
	settingsFile = "farm.yaml"
	settings     = "local: {share: false}\nscheduler: {audit: 0, connect-grace: 20s}\nlinks: {idle: 1s}\nstore: {results-disk: 0}\n"
)

// Farm is a running farm.
type Farm struct {
	Dir     string    // RDISTCC_DIR: socket, logs
	Wrapper string    // path of rdistcc
	Daemons []Process // Addr is the host's name in traces and metrics
	Manager Process
	Bin     string   // directory of the programs; those that are started later take another one
	Vars    []string // further NAME=VALUE for the farm's processes
	Hidden  string   // directory that daemons see as empty, as on another machine; "": none
	Root    string   // directory that daemons see as their root, with Dir and the programs in it, which requires root; "": the machine's
	Meminfo string   // file that daemons see as /proc/meminfo, which requires root; "": the machine's

	daemonFile string     // the daemons' own settings, in Dir; "": the farm's
	mu         sync.Mutex // guards Daemons while several are started at a time
	others     []Process
}

// Process is one program of the farm.
type Process struct {
	Name string
	Addr string // iWARP, host:port; daemons only
	HTTP string // status page and metrics, host:port
	Log  string // file

	program string // its path; daemons only
	place   Place
	run     *running
}

// Place is another network in which processes can run.
type Place interface {
	// Enter moves the calling goroutine there, on a thread of its own.
	Enter() error
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}

// running is a process that was started.
type running struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // what Wait returned; set before done is closed
	settled bool          // Stop or Kill has handled its end
}

// New returns a farm without processes, for the programs in bin and with files in dir, which must exist.
// Stop ends what is started later.
func New(bin, dir string) *Farm {
	// Otherwise the user's own would be read. If it cannot be written, the programs report it.
	_ = os.WriteFile(filepath.Join(dir, settingsFile), []byte(settings), 0o600)
	return &Farm{Dir: dir, Wrapper: filepath.Join(bin, "rdistcc"), Bin: bin}
}

// Start starts n daemons of jobs jobs each, and a manager that has them as its hosts;
// they prove who they are, and confine compiles, as sec says. It returns when all are
// ready. Those that were started before an error are the caller's to Stop, too.
func (f *Farm) Start(ctx context.Context, n, jobs int, sec Security) error {
	if sec != (Security{}) {
		if err := f.Secure(ctx, sec); err != nil {
			return err
		}
	}
	var hosts []string
	for i := range n {
		d, err := f.StartDaemon(ctx, "rdistccd-"+strconv.Itoa(i+1), "--jobs", strconv.Itoa(jobs))
		if err != nil {
			return err
		}
		hosts = append(hosts, d.Addr)
	}
	return f.StartManager(ctx, "--hosts", strings.Join(hosts, " "))
}

// StartDaemon starts a daemon with free ports and args, and waits until it is ready.
func (f *Farm) StartDaemon(ctx context.Context, name string, args ...string) (Process, error) {
	ports, err := FreePorts(2)
	if err != nil {
		return Process{}, err
	}
	return f.StartDaemonAt(ctx, nil, name, ports[0], ports[1], args...)
}

// StartDaemonUnready starts a daemon as StartDaemon does, and waits only until it answers: it takes no jobs yet.
func (f *Farm) StartDaemonUnready(ctx context.Context, name string, args ...string) (Process, error) {
	ports, err := FreePorts(2)
	if err != nil {
		return Process{}, err
	}
	p, err := f.startDaemonAt(ctx, nil, name, ports[0], ports[1], args...)
	if err != nil {
		return p, err
	}
	return p, p.WaitReady(ctx, "/healthz")
}

// StartDaemonAt starts a daemon with addresses, in another network if place is not nil.
// Several may be started at a time; Daemons has them in no order then.
func (f *Farm) StartDaemonAt(ctx context.Context, place Place, name, addr, page string, args ...string) (Process, error) {
	p, err := f.startDaemonAt(ctx, place, name, addr, page, args...)
	if err != nil {
		return p, err
	}
	return p, p.WaitReady(ctx, "/readyz")
}

func (f *Farm) startDaemonAt(ctx context.Context, place Place, name, addr, page string, args ...string) (Process, error) {
	line := slices.Concat(f.apart(), []string{filepath.Join(f.Bin, "rdistccd"), "--listen", addr, "--http", page}, args)
	env := f.Env()
	if f.daemonFile != "" {
		env = append(env, "RDISTCC_CONFIG="+filepath.Join(f.Dir, f.daemonFile))
	}
	p, err := f.launch(ctx, place, name, page, env, line[0], line[1:]...)
	if err != nil {
		return p, err
	}
	p.Addr, p.program = addr, filepath.Join(f.Bin, "rdistccd")
	f.mu.Lock()
	f.Daemons = append(f.Daemons, p)
	f.mu.Unlock()
	return p, nil
}

// StartDaemonAgain restarts a daemon that has ended, as it was started: with the same ports, words and log, but the program that
// Bin has now. It returns when the daemon is ready.
func (f *Farm) StartDaemonAgain(ctx context.Context, i int) error {
	old := f.Daemons[i]
	line := slices.Clone(old.run.cmd.Args)
	line[slices.Index(line, old.program)] = filepath.Join(f.Bin, "rdistccd")
	p, err := f.launch(ctx, old.place, old.Name, old.HTTP, old.run.cmd.Env, line[0], line[1:]...)
	if err != nil {
		return err
	}
	p.Addr, p.program = old.Addr, filepath.Join(f.Bin, "rdistccd")
	f.Daemons[i] = p
	return p.WaitReady(ctx, "/readyz")
}

// apart returns the words before a daemon's that hide Hidden from it, or show it Meminfo: a mount namespace
// of its own, with an empty file system there, or with that file. It remains a single process.
func (f *Farm) apart() []string {
	if f.Root != "" {
		// A tree replaces the root, which has to be a mount for that.
		return []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", `
root=$0 dir=$1 bin=$2; shift 2
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root$dir" "$root$bin"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$dir" "$root$dir"
mount --bind "$bin" "$root$bin"
exec chroot "$root" "$@"`, f.Root, f.Dir, f.Bin}
	}
	if f.Meminfo != "" {
		return []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount --bind "$0" /proc/meminfo && exec "$@"`, f.Meminfo}
	}
	if f.Hidden == "" {
		return nil
	}
	words := []string{"unshare", "--mount", "--propagation", "private"}
	if os.Geteuid() != 0 {
		words = append(words, "--map-root-user")
	}
	return append(words, "sh", "-c", `mount -t tmpfs hidden "$0" && exec "$@"`, f.Hidden)
}

// CanHide returns why a directory cannot be hidden from daemons here, or nil.
func CanHide(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "rdistcc-hidden-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	words := append((&Farm{Hidden: dir}).apart(), "true")
	if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("no mount namespace: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// StartManager starts the manager with a free port and args, and waits until it
// is ready.
func (f *Farm) StartManager(ctx context.Context, args ...string) error {
	ports, err := FreePorts(1)
	if err != nil {
		return err
	}
	return f.StartManagerAt(ctx, nil, ports[0], args...)
}

// StartManagerAt starts the manager with an address for its page, in another network if place is not nil.
func (f *Farm) StartManagerAt(ctx context.Context, place Place, page string, args ...string) (err error) {
	f.Manager, err = f.launch(ctx, place, "rdistcc-cm", page, f.Env(), filepath.Join(f.Bin, "rdistcc-cm"),
		append([]string{"--http", page}, args...)...)
	if err != nil {
		return err
	}
	return f.Manager.WaitReady(ctx, "/readyz")
}

// Env returns the environment for commands that should use this farm: the caller's without any setting of
// rdistcc or distcc, and with the farm's own directory and configuration. Equal commands compile each time, unless Vars
// sets RDISTCC_CACHE.
func (f *Farm) Env() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "RDISTCC_") || strings.HasPrefix(s, "DISTCC_")
	})
	env = append(env, "RDISTCC_DIR="+f.Dir, "XDG_STATE_HOME="+f.Dir, "XDG_CACHE_HOME="+f.Dir, "RDISTCC_CACHE=off", "RDISTCC_CONFIG="+filepath.Join(f.Dir, settingsFile))
	return append(env, f.Vars...)
}

// Launch starts another program beside the farm, which Stop ends with the farm.
func (f *Farm) Launch(ctx context.Context, name, page, program string, args ...string) (Process, error) {
	p, err := f.launch(ctx, nil, name, page, os.Environ(), program, args...)
	if err == nil {
		f.others = append(f.others, p)
	}
	return p, err
}

func (f *Farm) launch(ctx context.Context, place Place, name, page string, env []string, program string, args ...string) (Process, error) {
	p := Process{Name: name, HTTP: page, Log: filepath.Join(f.Dir, name+".log"), place: place}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return p, err
	}
	defer log.Close()
	r := &running{cmd: exec.Command(program, args...), done: make(chan struct{})}
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = env, log, log
	// A group of its own, so that an interrupt at the terminal reaches only us, and the farm is stopped in
	// order; if we are killed, it ends as well.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		defer close(r.done)
		// The kernel means the death of the forking thread, and the runtime ends threads that other
		// goroutines have locked: this thread must stay.
		err := error(nil)
		if place != nil {
			err = place.Enter()
		} else {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		if err == nil {
			err = r.cmd.Start()
		}
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return p, fmt.Errorf("start %s: %w", name, err)
	}
	p.run = r
	return p, ctx.Err()
}

// WaitReady returns when path of the process's HTTP address answers 200.
func (p Process) WaitReady(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// A daemon reports that it is ready while it still identifies compilers; measurements and tests
		// should not be disturbed by that.
		if b, err := p.Get(ctx, path); err == nil && !bytes.Contains(b, []byte("being identified")) {
			return nil
		}
		select {
		case <-p.run.done:
			return fmt.Errorf("%s ended: %v: %s", p.Name, p.run.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer on http://%s%s: %w: %s", p.Name, p.HTTP, path, ctx.Err(), p.tail())
		case <-tick.C:
		}
	}
}

// Get fetches a page of the process; any answer but 200 is an error.
func (p Process) Get(ctx context.Context, path string) ([]byte, error) {
	if p.place == nil {
		return Get(ctx, "http://"+p.HTTP+path)
	}
	client := http.Client{Transport: &http.Transport{DialContext: p.place.Dial, DisableKeepAlives: true}}
	return get(ctx, &client, "http://"+p.HTTP+path)
}

// Get fetches a page; any answer but 200 is an error.
func Get(ctx context.Context, url string) ([]byte, error) { return get(ctx, http.DefaultClient, url) }

// get fetches a page. On a machine that is busy enough an answer takes longer than the programs' servers permit, and is cut: it is asked
// for again.
func get(ctx context.Context, client *http.Client, url string) (page []byte, err error) {
	for range 20 {
		page, err = getOnce(ctx, client, url)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
	}
	return page, err
}

func getOnce(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return page, err
}

// tail returns the last line of the log.
func (p Process) tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// Stop ends everything, the manager first, and waits for it. A manager or daemon that does not end with
// status 0 is an error.
func (f *Farm) Stop() error {
	http.DefaultClient.CloseIdleConnections()
	var errs []error
	for _, p := range slices.Concat([]Process{f.Manager}, f.Daemons) {
		errs = append(errs, p.Stop())
	}
	for _, p := range f.others {
		_ = p.Stop() // their exit status does not matter
	}
	return errors.Join(errs...)
}

// Stop asks the process to end and waits for it; any status but 0 is an error, unless the process was
// killed or stopped before.
func (p Process) Stop() error {
	if p.run == nil || p.run.settled {
		return nil
	}
	_ = p.run.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already: Wait tells
	select {
	case <-p.run.done:
		p.run.settled = true
		if p.run.err != nil {
			return fmt.Errorf("%s did not end well: %w: %s", p.Name, p.run.err, p.tail())
		}
		return nil
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s still runs %v after SIGTERM: %s", p.Name, stopTimeout, p.tail())
	}
}

// Kill ends the process at once and waits until it is gone.
func (p Process) Kill() {
	p.run.settled = true
	_ = p.run.cmd.Process.Kill() // it may be gone already
	<-p.run.done
}

// PID returns the process's number.
func (p Process) PID() int { return p.run.cmd.Process.Pid }

// Running reports whether the process was started and has not ended.
func (p Process) Running() bool {
	if p.run == nil {
		return false
	}
	select {
	case <-p.run.done:
		return false
	default:
		return true
	}
}

// Ended returns the exit status once the process has ended by itself; Stop does not report it then. It
// waits until ctx ends.
func (p Process) Ended(ctx context.Context) (status int, err error) {
	select {
	case <-p.run.done:
		p.run.settled = true
		return p.run.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Signal sends sig to the process only.
func (p Process) Signal(sig syscall.Signal) error { return p.run.cmd.Process.Signal(sig) }

// The farm's ports are below those that Linux gives to connections (32768 on,
// net.ipv4.ip_local_port_range): otherwise one that is free now may be used for a connection a moment
// later, or while a daemon that will be restarted is down.
const firstPort, portRange = 10000, 22000

// FreePorts returns n different loopback addresses on which nothing listens now.
func FreePorts(n int) (addrs []string, err error) {
	for tries := 0; len(addrs) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(portRange)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && tries < 1000:
			continue
		case err != nil:
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
