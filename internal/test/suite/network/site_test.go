// Package network has tests of whole farms in a network of their own (lab/netlab), with a
// compiler that only takes its time: many hosts, hosts that are far away, and trouble
// while a build runs. `make netns`
package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/lab/netlab"
)

// patience ends a test that waits for what does not happen.
const patience = 2 * time.Minute

// TestMain leaves all out where there can be no such network.
func TestMain(m *testing.M) {
	if os.Getenv("RDISTCC_NETNS") != "" {
		if err := netlab.Available(); err != nil {
			fmt.Println("make netns: all tests are left out:", err)
			os.Exit(0)
		}
		switchFirst()
	}
	os.Exit(m.Run())
}

// site is a network with a farm in it, whose compiler is the stand-in: managers on the first hosts, a
// daemon on each of the others.
type site struct {
	*netlab.Lab
	t        *testing.T
	root     string
	cc       string       // the stand-in
	managers []*farm.Farm // each with nothing but a manager
	daemons  *farm.Farm   // with nothing but daemons
	slots    int          // compiles at a time, of all daemons together
}

// newSite starts a farm, or leaves the test out. RDISTCC_NETNS says that these
// tests, which take minutes, are wanted.
func newSite(t *testing.T, managers, daemons, jobs int) *site {
	t.Helper()
	return newSiteAway(t, managers, daemons, jobs, 0)
}

// newSiteAway returns a site whose managers are a round trip away.
func newSiteAway(t *testing.T, managers, daemons, jobs int, rtt time.Duration) *site {
	t.Helper()
	if os.Getenv("RDISTCC_NETNS") == "" {
		t.Skip("left out: farms in a network of their own are run by `make netns`")
	}
	part.Skip(t)
	for _, tool := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "left out: no %s", tool)
		}
	}
	lab, err := netlab.New(managers+daemons, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Close)
	s := &site{Lab: lab, t: t, root: farmtest.Dir(t), cc: farmtest.StandIn(t), slots: daemons * jobs}
	for _, h := range s.Hosts[:managers] {
		if err := h.Set(netlab.Line{Delay: rtt / 2}, netlab.Line{Delay: rtt / 2}); err != nil {
			t.Fatal(err)
		}
	}
	s.daemons = s.farm("daemons")
	s.certificates()
	settings := s.file("daemon.yaml", fmt.Sprintf("toolchains: {dirs: [%q]}\n", filepath.Dir(s.cc)))
	errs := make(chan error)
	var hosts []string
	for i, h := range s.Hosts[managers:] {
		addr := netip.AddrPortFrom(h.Addr, 7632).String()
		hosts = append(hosts, addr)
		go func() {
			_, err := s.daemons.StartDaemonAt(t.Context(), device{h, daemonAhead}, "rdistccd-"+strconv.Itoa(i+1), addr, "127.0.0.1:7633", "--config", settings,
				"--jobs", strconv.Itoa(jobs), "--tls-cert", s.at("daemon.crt"), "--tls-key", s.at("daemon.key"), "--tls-ca", s.at("ca.crt"), "--nice", "0")
			errs <- err
		}()
	}
	for range s.Hosts[managers:] {
		if e := <-errs; e != nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(s.daemons.Daemons, func(a, b farm.Process) int {
		return netip.MustParseAddrPort(a.Addr).Compare(netip.MustParseAddrPort(b.Addr))
	})
	for i, h := range s.Hosts[:managers] {
		f := s.farm("manager-" + strconv.Itoa(i+1))
		s.managers = append(s.managers, f)
		if err := f.StartManagerAt(t.Context(), device{h, managerAhead}, "127.0.0.1:7634", "--hosts", strings.Join(hosts, " "),
			"--tls-cert", s.at("client.crt"), "--tls-key", s.at("client.key"), "--tls-ca", s.at("ca.crt")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// certificates makes those with which daemons and managers prove their identity: beyond loopback no peer is
// served without.
func (s *site) certificates() {
	s.t.Helper()
	now := time.Now()
	ca, pair, err := authority.New("netlab", now, 24*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	s.secret("ca.crt", pair.Cert)
	for _, r := range []authority.Request{{Role: identity.Daemon, Names: []string{identity.Anyone}}, {Role: identity.Client, Names: []string{"manager"}}} {
		r.From, r.To = ca.Valid(now, 24*time.Hour)
		if pair, err = ca.Issue(r); err != nil {
			s.t.Fatal(err)
		}
		name := map[identity.Role]string{identity.Daemon: "daemon", identity.Client: "client"}[r.Role]
		s.secret(name+".crt", pair.Cert)
		s.secret(name+".key", pair.Key)
	}
}

func (s *site) at(name string) string { return filepath.Join(s.root, name) }

// secret writes a file for this user alone.
func (s *site) secret(name string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.at(name), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// farm is one with a directory of its own.
func (s *site) farm(name string) *farm.Farm {
	s.t.Helper()
	if err := os.Mkdir(s.at(name), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return farmtest.New(s.t, s.at(name))
}

func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// device is a machine that its processes have for themselves, as far as that can be where
// all share one: they go before what goes less far ahead.
type device struct {
	*netlab.Host
	ahead int // niceness, from 0 down to -20
}

// Enter implements farm.Place.
func (d device) Enter() error {
	if err := d.Host.Enter(); err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, d.ahead) // on Linux: this thread, and what it starts
}

// In a real farm hundreds of wrappers would not keep a daemon from the processor, nor
// another build host's manager. Here they would, for seconds, and a host that is silent
// for that long is lost. Nor would 32 daemons keep a manager from it.
const (
	daemonAhead  = -10
	managerAhead = -15
	switchAhead  = -19
)

// switchFirst lets all threads of this process go before what the network carries. The switch's own do so anyway, but
// they need the runtime's leave to run Go code, of which there is one per processor: kept by a thread that is
// itself kept from the processor, by hundreds of wrappers that start at once, no packet passes, for seconds.
func switchFirst() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, switchAhead) // later ones have it of the thread that starts them
		}
	}
}

// startBehind starts a command with the niceness that commands have, of which this process has less.
func startBehind(cmd *exec.Cmd) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: it ends with this goroutine
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
		result <- cmd.Start()
	}()
	return <-result
}

// host is the one that a daemon runs on.
func (s *site) host(d farm.Process) *netlab.Host {
	addr := netip.MustParseAddrPort(d.Addr).Addr()
	return s.Hosts[slices.IndexFunc(s.Hosts, func(h *netlab.Host) bool { return h.Addr == addr })]
}

// build is one `make` of many compiles by one manager.
type build struct {
	s      *site
	dir    string
	n      int
	output int // bytes of an object
	began  time.Time
	took   time.Duration
	cmd    *exec.Cmd
	out    bytes.Buffer
	ended  chan struct{} // closed when make has ended
	err    error         // what became of it; set before ended is closed
}

// job says what each compile of a build takes.
type job struct {
	sleep  time.Duration
	spread time.Duration // that some sleep longer, and others shorter
	cpu    time.Duration
	memory int // KiB
	source int // bytes
	output int // bytes
}

// start begins `make -jJOBS` of n compiles by manager m.
func (s *site) start(m *farm.Farm, n, jobs int, j job, env ...string) *build {
	s.t.Helper()
	b := s.prepare(m, n, jobs, j, env...)
	b.start()
	return b
}

// prepare writes what start builds.
func (s *site) prepare(m *farm.Farm, n, jobs int, j job, env ...string) *build {
	s.t.Helper()
	dir, err := os.MkdirTemp(s.root, "build-")
	if err != nil {
		s.t.Fatal(err)
	}
	b := &build{s: s, dir: dir, n: n, output: j.output, ended: make(chan struct{})}
	var objects strings.Builder
	filler := strings.Repeat("/* nothing to be compiled here */\n", j.source/34)
	for i := range n {
		text := fmt.Sprintf("/* stand-in: sleep %d cpu %d memory %d output %d */\nint unit_%d;\n%s",
			(j.sleep + j.spread*time.Duration(i%5-2)/2).Milliseconds(), j.cpu.Milliseconds(), j.memory, j.output, i, filler)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("u%d.c", i)), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&objects, " u%d.o", i)
	}
	rules := "all:" + objects.String() + "\n%.o: %.c\n\t@$(CC) -c $< -o $@\n"
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(rules), 0o644); err != nil {
		s.t.Fatal(err)
	}
	b.cmd = exec.Command("make", "-r", "-k", "-j"+strconv.Itoa(jobs), "CC="+m.Wrapper+" "+s.cc)
	b.cmd.Dir = dir
	b.cmd.Env = append(append(m.Env(), "RDISTCC_TRACE="+b.trace(), "RDISTCC_VERBOSE=1"), env...)
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return b
}

func (b *build) start() {
	b.s.t.Helper()
	b.began = time.Now()
	if err := startBehind(b.cmd); err != nil {
		b.s.t.Fatal(err)
	}
	go func() {
		b.err = b.cmd.Wait()
		b.took = time.Since(b.began)
		close(b.ended)
	}()
}

func (b *build) trace() string { return filepath.Join(b.dir, "trace") }

// wait waits for the build's end, wants every object to be right, and returns what
// became of its compiles.
func (b *build) wait(limit time.Duration) []compiled {
	b.s.t.Helper()
	select {
	case <-b.ended:
		if b.err != nil {
			b.s.t.Errorf("make: %v: %s", b.err, tail(b.out.String(), 1000))
		}
	case <-time.After(limit):
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
		<-b.ended
		b.s.t.Fatalf("the build has not ended after %v; %d of %d compiles have: %s", limit, len(b.compiles()), b.n, tail(b.out.String(), 1000))
	}
	wrong := 0
	for i := range b.n {
		name := filepath.Join(b.dir, fmt.Sprintf("u%d", i))
		if err := rightObject(name, b.output); err != nil {
			if wrong++; wrong < 5 {
				b.s.t.Error(err)
			}
		}
	}
	if wrong > 0 {
		b.s.t.Errorf("%d of %d objects are not right", wrong, b.n)
	}
	all := b.compiles()
	if len(all) != b.n && !b.s.t.Failed() {
		b.s.t.Errorf("%d compiles are on record, %d were made", len(all), b.n)
	}
	return all
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// rightObject compares name.o with what the stand-in makes of name.c.
func rightObject(name string, size int) error {
	text, err := os.ReadFile(name + ".c")
	if err != nil {
		return err
	}
	object, err := os.ReadFile(name + ".o")
	if err != nil {
		return err
	}
	h := fnv.New64a()
	h.Write(text)
	x := h.Sum64()
	want := fmt.Appendf(nil, "object %016x\n", x)
	for len(want) < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for i := 0; i < 8 && len(want) < size; i++ {
			want = append(want, byte(x>>(8*i)))
		}
	}
	if !bytes.Equal(object, want) {
		return fmt.Errorf("%s.o has %d bytes and is not what the compiler makes (%d bytes)", name, len(object), len(want))
	}
	return nil
}

// compiled is one line of a trace.
type compiled struct {
	Source, Where, Host, Reason string
	Attempts                    int
	Start                       float64 // milliseconds since 1970
	MS                          struct {
		Lease, Preprocess, Submit, Credit, Write, Queue, Compile, Return, Place, Local, Total float64
	}
}

// span is when its compiler ran, in milliseconds since 1970, as far as the wrapper
// can tell.
func (c *compiled) span() (from, to float64) {
	to = c.Start + c.MS.Total - c.MS.Place
	if c.Where == "local" {
		return to - c.MS.Local, to
	}
	to -= c.MS.Return
	return to - c.MS.Compile, to
}

// compiles reads the trace.
func (b *build) compiles() (all []compiled) {
	text, err := os.ReadFile(b.trace())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var c compiled
		if err := json.Unmarshal(line, &c); err != nil {
			b.s.t.Fatalf("trace: %v: %s", err, line)
		}
		all = append(all, c)
	}
	return all
}

// places counts compiles by host, or by the reason why they ran here.
func places(all []compiled) map[string]int {
	n := make(map[string]int)
	for i := range all {
		if c := &all[i]; c.Where == "remote" {
			n[c.Host]++
		} else {
			n["local:"+c.Reason]++
		}
	}
	return n
}

// metrics are a process's series by name and labels.
func (s *site) metrics(p farm.Process) map[string]float64 {
	s.t.Helper()
	page, err := p.Get(s.t.Context(), "/metrics")
	if err != nil {
		s.t.Fatalf("%s: %v", p.Name, err)
	}
	m := make(map[string]float64)
	for line := range strings.Lines(string(page)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			m[name] = v
		}
	}
	return m
}

// connected waits until a manager has its connections to so many hosts.
func (s *site) connected(manager farm.Process, hosts int) {
	s.t.Helper()
	s.eventually("connection of "+manager.Name+" to every host", func() string {
		if up := s.metrics(manager)[`rdistcc_cm_hosts{state="up"}`]; up != float64(hosts) {
			return fmt.Sprintf("%v of %d", up, hosts)
		}
		return ""
	})
}

// eventually waits until wrong returns "": what is still wrong.
func (s *site) eventually(what string, wrong func() string) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		w := wrong()
		if w == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %s after %v: %s", what, patience, w)
		}
	}
}
