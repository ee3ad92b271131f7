// Package interop runs our stack against the Linux kernel's soft-iWARP driver and
// the programs of rdma-core, in a small QEMU guest (siw-vm/README.md). `make
// interop` starts it; without RDISTCC_INTEROP in the environment every test is
// skipped.
package interop

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// Addresses: of the guest in itself, and of the host's 127.0.0.1 in the guest.
const (
	GuestAddr = "10.0.2.15"
	HostAddr  = "10.0.2.2"
)

// Ports of the guest that the host can reach: QEMU wants to know them beforehand.
const (
	firstPort = 7001
	portCount = 24
)

// Guest is a running guest. Tests of this package share one and run one after the
// other: the driver's settings are the guest's.
type Guest struct {
	name  string
	dir   string         // what the host keeps of it
	ports map[int]string // guest port: address on the host
	next  int            // guest port that Port gives next, less firstPort
}

// full reports whether the sizes are those of `make interop`, not those of continuous integration.
func full() bool { return os.Getenv("RDISTCC_INTEROP") != "ci" }

// pick is a size: that of `make interop`, or the small one.
func pick[T any](all, ci T) T {
	if full() {
		return all
	}
	return ci
}

// ciBudget is how long continuous integration goes on with further tests. A machine
// of its own takes less.
const ciBudget = 7 * time.Minute

var (
	begun   = time.Now()
	skipped int // tests
)

// shared is the guest of all tests, booted by the first of them.
var shared struct {
	guest *Guest
	err   error
}

// Boot returns the guest of all tests. The test is skipped when the interop tests
// were not asked for, or when this machine cannot boot one.
func Boot(t *testing.T) *Guest {
	t.Helper()
	if os.Getenv("RDISTCC_INTEROP") == "" {
		t.Skip("needs a guest with the kernel's siw: make interop")
	}
	if name, _, _ := strings.Cut(t.Name(), "/"); !part.Of(t).Has(name) { // many ask in each of their subtests
		t.Skip("its turn is another day")
	}
	if shared.guest == nil && shared.err == nil {
		removeStale()
		shared.guest, shared.err = start(fmt.Sprintf("%s%d", guestPrefix, os.Getpid()))
	}
	if shared.err != nil {
		t.Skip("no guest: " + shared.err.Error())
	}
	if !full() && time.Since(begun) > ciBudget {
		skipped++
		t.Skipf("the %v of continuous integration are over", ciBudget)
	}
	g := shared.guest
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		j := g.begin(t, "dmesg | grep -v 'speed is unknown\\|SoftiWARP'", time.Minute)
		answers := j.wait(time.Minute, j.done)
		log := j.Output()
		t.Logf("kernel log of the guest:\n%s", kernelLog(log))
		if !answers || strings.Contains(log, "kernel BUG") || strings.Contains(log, "Oops") {
			t.Log("the guest's kernel has crashed: the next test gets another one")
			g.stop()
			shared.guest = nil
		}
	})
	return g
}

// kernelLog is the end of a kernel's log, from its first complaint on where it has one.
func kernelLog(log string) string {
	for _, begin := range []string{"cut here", "BUG: ", "Oops", "general protection"} {
		if i := strings.Index(log, begin); i >= 0 {
			return log[i:]
		}
	}
	return tail(log, 8)
}

// guestPrefix begins the names of our guests; the number of the process that uses it follows.
const guestPrefix = "interop-"

// removeStale stops guests whose users were killed.
func removeStale() {
	dir, err := exec.Command(script(), "dir", guestPrefix).Output()
	if err != nil {
		return
	}
	left, _ := filepath.Glob(strings.TrimSpace(string(dir)) + "*") // the pattern is good
	for _, d := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), guestPrefix), "-")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			(&Guest{name: filepath.Base(d), dir: d}).stop()
		}
	}
}

// script is siw-vm.
func script() string {
	p, err := filepath.Abs("siw-vm/siw-vm")
	if err != nil {
		panic(err)
	}
	return p
}

// start builds the image if need be and boots a guest with further options of
// siw-vm start. The error is one line.
func start(name string, options ...string) (*Guest, error) {
	if out, err := exec.Command(script(), "build").CombinedOutput(); err != nil {
		return nil, lastLine(out, err)
	}
	var err error
	for range 3 { // a port may be taken in between
		var out []byte
		g := &Guest{name: name, ports: make(map[int]string)}
		args := append([]string{"start"}, options...)
		for i, port := range freePorts(portCount) {
			args = append(args, "--fwd", fmt.Sprintf("%d:%d", port, firstPort+i))
			g.ports[firstPort+i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		out, err = exec.Command(script(), append(args, name)...).CombinedOutput()
		if err == nil {
			dir, err := exec.Command(script(), "dir", name).Output()
			g.dir = strings.TrimSpace(string(dir))
			return g, err
		}
		err = lastLine(out, err)
		if !bytes.Contains(out, []byte("host forwarding")) {
			break
		}
	}
	return nil, err
}

// stop ends the guest and forgets it.
func (g *Guest) stop() {
	err := exec.Command(script(), "stop", g.name).Run()
	if err == nil {
		err = os.RemoveAll(g.dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "interop: stopping the guest: %v\n", err)
	}
}

// lastLine is what a failed command said at the end.
func lastLine(out []byte, err error) error {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return errors.New(strings.TrimPrefix(last, "siw-vm: "))
	}
	return err
}

// tail is the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePorts finds n ports below those that the kernel gives to outgoing connections, where they are not
// taken by chance.
func freePorts(n int) []int {
	var ports []int
	for len(ports) < n {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close() // none is found twice
		ports = append(ports, port)
	}
	return ports
}

// Port returns a port of the guest and the address on the host that leads to it.
func (g *Guest) Port() (guest int, host string) {
	guest = firstPort + g.next%portCount
	g.next++
	return guest, g.ports[guest]
}

// Load reloads the driver with the arguments of siw-load, "param
// mpa_crc_required=1"; the test's end brings back the driver as it is.
func (g *Guest) Load(t *testing.T, args string) {
	t.Helper()
	g.Run(t, "siw-load "+args)
	t.Cleanup(func() { g.Run(t, "siw-load stock") })
}

// Put copies a file into the guest and returns its path there.
func (g *Guest) Put(t *testing.T, file string) string {
	t.Helper()
	if out, err := exec.Command(script(), "put", g.name, file).CombinedOutput(); err != nil {
		t.Fatal(lastLine(out, err))
	}
	return "/share/" + filepath.Base(file)
}

// Run runs a command of the shell in the guest, which must succeed within a minute.
func (g *Guest) Run(t *testing.T, cmd string) string {
	t.Helper()
	out, status := g.Exec(t, cmd, time.Minute)
	if status != 0 {
		t.Fatalf("in the guest: %.200s: exit status %d\n%s", cmd, status, tail(out, 30))
	}
	return out
}

// Exec runs a command in the guest and returns what it printed and its exit status:
// 137 when it took longer than limit.
func (g *Guest) Exec(t *testing.T, cmd string, limit time.Duration) (out string, status int) {
	t.Helper()
	return g.begin(t, cmd, limit).Wait(t)
}

// Job is a command that runs in the guest.
type Job struct {
	g     *Guest
	cmd   string
	file  string // its files on the host, without what follows the dot
	limit time.Duration
}

var jobs int

// Start starts a command in the background. It ends with the test at the latest, or
// after limit; if the test fails, what it printed is logged.
func (g *Guest) Start(t *testing.T, cmd string, limit time.Duration) *Job {
	t.Helper()
	j := g.begin(t, cmd, limit)
	t.Cleanup(func() {
		if _, done := j.status(); !done {
			j.Kill(t)
		}
		if t.Failed() {
			t.Logf("in the guest: %.200s\n%s", cmd, tail(j.Output(), 30))
		}
	})
	return j
}

func (g *Guest) begin(t *testing.T, cmd string, limit time.Duration) *Job {
	t.Helper()
	jobs++
	j := &Job{g: g, cmd: cmd, file: filepath.Join(g.dir, "share", "cmd", fmt.Sprintf("%d-%d", os.Getpid(), jobs)), limit: limit}
	j.write(t, ".limit", fmt.Sprint(int(limit.Seconds())))
	j.write(t, ".new", cmd+"\n")
	if err := os.Rename(j.file+".new", j.file+".run"); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *Job) write(t *testing.T, ext, s string) {
	t.Helper()
	if err := os.WriteFile(j.file+ext, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Output is what the job has printed so far.
func (j *Job) Output() string {
	b, _ := os.ReadFile(j.file + ".out") // nothing yet
	return string(b)
}

func (j *Job) status() (status int, done bool) {
	b, err := os.ReadFile(j.file + ".rc")
	if err != nil {
		return 0, false
	}
	status, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return status, err == nil
}

func (j *Job) done() bool {
	_, done := j.status()
	return done
}

// Wait waits for the job's end.
func (j *Job) Wait(t *testing.T) (out string, status int) {
	t.Helper()
	j.until(t, j.limit+10*time.Second, "end", func() (done bool) {
		status, done = j.status()
		return done
	})
	return j.Output(), status
}

// Kill ends the job and all that it started.
func (j *Job) Kill(t *testing.T) {
	t.Helper()
	j.write(t, ".kill", "")
	j.Wait(t)
}

// until is wait, for what must happen.
func (j *Job) until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !j.wait(limit, ok) {
		t.Fatalf("in the guest: %.200s: does not %s within %v\n%s", j.cmd, what, limit, tail(j.Output(), 30))
	}
}

// wait looks repeatedly for an event in the guest: files in the shared folder cause no notification.
func (j *Job) wait(limit time.Duration, ok func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			return false
		}
	}
	return true
}

// Listen starts a server in the guest and waits until it listens on port.
func (g *Guest) Listen(t *testing.T, cmd string, port int, limit time.Duration) *Job {
	t.Helper()
	j := g.Start(t, cmd, limit)
	// It may be long in coming where the guest is slow, or stood still: what counts is that it lives.
	end := time.Now().Add(limit)
	for {
		_, status := g.Exec(t, fmt.Sprintf("for i in $(seq 100); do grep -q ':%04X 00000000:0000 0A' /proc/net/tcp && exit 0; usleep 20000; done; exit 1", port), time.Minute)
		if status == 0 {
			return j
		}
		if j.done() || time.Now().After(end) {
			t.Fatalf("in the guest: %.200s: nobody listens on port %d\n%s", cmd, port, tail(j.Output(), 30))
		}
	}
}
