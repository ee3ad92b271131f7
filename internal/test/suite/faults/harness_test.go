// Package faults shows with the real programs the outcome of bad input and trouble: a right object or one
// clear line and the documented exit status, and nothing left behind: no process, temporary file,
// descriptor, slot, queue pair or memory registration.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// patience ends a test that waits for what does not happen.
const patience = 2 * time.Minute

// soon are limits by which a peer that is silent is found out soon, but not one that only waits for a busy processor.
const soon = "limits: {heartbeat: 200ms, silence: 3s, connect-timeout: 3s}\n"

// site is a farm with a directory of its own, below which lies all that it may
// leave: each of its processes has the directory's name in its environment, its
// command line or as its working directory.
type site struct {
	*farm.Farm
	t    *testing.T
	root string
	work string // where commands run
	tmp  string // TMPDIR of all programs; the daemons' work areas are in it

	levels map[string]level // by process, at rest
}

// local has the objects made here, by command and source: tests compile the same units.
// Those with debug information name the directory, and are a site's own.
var local sync.Map // of []byte

// level is what a process holds.
type level struct{ descriptors, qps, regions int }

func newSite(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a farm")
	}
	part.Skip(t)
	for _, tool := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "no %s", tool)
		}
	}
	s := &site{t: t, root: farmtest.Dir(t), levels: make(map[string]level)}
	s.work, s.tmp = filepath.Join(s.root, "work"), filepath.Join(s.root, "tmp")
	if err := os.Mkdir(s.work, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Farm = farmtest.New(t, s.root)
	t.Cleanup(s.finish)
	return s
}

// finish ends all that runs and wants nothing left of it.
func (s *site) finish() {
	if err := s.Stop(); err != nil {
		s.t.Error(err)
	}
	// A manager that a wrapper started is not our child.
	_ = s.command(nil, s.Wrapper, "stop").Run() // there need not be one
	s.eventually("end of all processes", func() string {
		if left := s.processes(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
	left, err := os.ReadDir(s.tmp)
	if err != nil || len(left) > 0 {
		s.t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

// daemon starts a daemon with the settings of a yaml text.
func (s *site) daemon(name, settings string, args ...string) farm.Process {
	s.t.Helper()
	if !strings.Contains(settings, "toolchains:") {
		settings += "toolchains: {dirs: [" + s.compilers() + "]}\n" // two are identified sooner than all
	}
	// Farms share a cache directory. What only one daemon at a time can have is elsewhere: a daemon that starts again would
	// otherwise get it, or not, as the daemons of other tests have ended.
	settings = strings.Replace(settings, "toolchains: {", "toolchains: {dir: "+filepath.Join(s.root, name+"-toolchains")+", ", 1)
	settings += "store: {results-dir: " + filepath.Join(s.root, name+"-results") + "}\n"
	p, err := s.StartDaemon(s.t.Context(), name, append(s.settings(name, settings), args...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// compilers is a directory with the compilers that the tests use.
func (s *site) compilers() string {
	s.t.Helper()
	dir := filepath.Join(s.root, "compilers")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return dir // there already
	}
	for _, name := range []string{"gcc", "g++"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// manager starts the manager with hosts and the settings of a yaml text. As the farm's
// own it gives its hosts all jobs, and each once: tests count them. A job waits until a
// host that is there is connected.
func (s *site) manager(hosts, settings string, args ...string) {
	s.t.Helper()
	switch {
	case settings == "" || strings.Contains(settings, "share:"):
	case strings.Contains(settings, "local: {"):
		settings = strings.Replace(settings, "local: {", "local: {share: false, ", 1)
	default:
		settings += "local: {share: false}\n"
	}
	switch {
	case settings == "" || strings.Contains(settings, "connect-grace:"):
	case strings.Contains(settings, "scheduler: {"):
		settings = strings.Replace(settings, "scheduler: {", "scheduler: {connect-grace: 20s, ", 1)
	default:
		settings += "scheduler: {audit: 0, connect-grace: 20s}\n"
	}
	if settings != "" && !strings.Contains(settings, "links:") {
		settings += "links: {idle: 1s}\n" // at rest there is one a host again
	}
	args = append(s.settings("cm", settings), args...)
	if hosts != "" {
		args = append(args, "--hosts", hosts)
	}
	if err := s.StartManager(s.t.Context(), args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) settings(name, text string) []string {
	if text == "" {
		return nil
	}
	return []string{"--config", s.file("../"+name+".yaml", text)}
}

// file writes a file of the work directory and returns its path.
func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.work, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// command is a command of the site.
func (s *site) command(env []string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.work, append(s.Env(), env...)
	return cmd
}

// outcome is what a command came to.
type outcome struct {
	status         int // 128+N for signal N
	stdout, stderr string
	report         string // its line, if it wrote one
}

// running is a command under way.
type running struct {
	s      *site
	cmd    *exec.Cmd
	out    bytes.Buffer
	err    bytes.Buffer
	report string
}

// start begins a command through rdistcc, as a build of its own: a build is told only once what applies to
// all its compiles, and the tests examine each command.
func (s *site) start(env []string, args ...string) *running {
	s.t.Helper()
	j := &running{s: s}
	f, err := os.CreateTemp(s.root, "report-")
	if err != nil {
		s.t.Fatal(err)
	}
	f.Close()
	j.report = f.Name()
	j.cmd = s.command(append([]string{"RDISTCC_REPORT=" + j.report, "RDISTCC_BUILD=" + j.report}, env...), append([]string{s.Wrapper}, args...)...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	if err := j.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return j
}

// wait returns what a command came to; one that hangs ends the test.
func (j *running) wait() outcome {
	j.s.t.Helper()
	hung := time.AfterFunc(patience, func() { _ = j.cmd.Process.Kill() })
	err := j.cmd.Wait()
	if !hung.Stop() {
		j.s.t.Fatalf("%q hung", j.cmd.Args)
	}
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		j.s.t.Fatal(err)
	}
	o := outcome{status: exitStatus(j.cmd.ProcessState), stdout: j.out.String(), stderr: j.err.String()}
	report, err := os.ReadFile(j.report)
	if err != nil {
		j.s.t.Fatal(err)
	}
	o.report = strings.TrimSpace(string(report))
	return o
}

func exitStatus(p *os.ProcessState) int {
	if ws := p.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.ExitCode()
}

// run runs a command through rdistcc.
func (s *site) run(env []string, args ...string) outcome {
	s.t.Helper()
	return s.start(env, args...).wait()
}

// remote compiles hello.c through rdistcc until a host has done it, which a host
// that just comes back needs not do at once, and wants the right object.
func (s *site) remote(host string) {
	s.t.Helper()
	s.file("hello.c", "int hello(int x) { return x + 1; }\n")
	s.eventually("a compile on "+host, func() string {
		o := s.run([]string{"RDISTCC_VERBOSE=0", "RDISTCC_BACKOFF_PERIOD=0"}, "gcc", "-O2", "-c", "hello.c")
		if o.status != 0 {
			s.t.Fatalf("exit status %d: %s", o.status, o.stderr)
		}
		s.sameObject("hello.o", "gcc", "-O2", "-c", "hello.c")
		if o.report == "remote:"+host || host == "" && strings.HasPrefix(o.report, "remote:") {
			return ""
		}
		return o.report
	})
}

// sameObject wants file to be what the command makes here, -o added.
func (s *site) sameObject(file string, argv ...string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.work, file))
	if err != nil {
		s.t.Error(err)
		return
	}
	if want := s.here(argv); !bytes.Equal(got, want) {
		s.t.Errorf("%s has %d bytes and is not what %q makes here (%d bytes)", file, len(got), argv, len(want))
	}
}

// here is the object that a command makes here, -o added.
func (s *site) here(argv []string) []byte {
	s.t.Helper()
	key := strings.Join(argv, " ")
	for _, a := range argv {
		if strings.HasSuffix(a, ".c") || strings.HasSuffix(a, ".cc") {
			text, err := os.ReadFile(filepath.Join(s.work, a))
			if err != nil {
				s.t.Fatal(err)
			}
			key += string(text)
		}
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.HasPrefix(a, "-g") }) {
		key += s.root
	}
	if object, ok := local.Load(key); ok {
		return object.([]byte)
	}
	file := filepath.Join(s.root, "local.o")
	if out, err := s.command(nil, append(argv, "-o", file)...).CombinedOutput(); err != nil {
		s.t.Fatalf("%q: %v: %s", argv, err, out)
	}
	object, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	local.Store(key, object)
	return object
}

// oneLine wants a single line of rdistcc's own that matches.
func (s *site) oneLine(stderr, pattern string) {
	s.t.Helper()
	if strings.Count(stderr, "\n") != 1 || !regexp.MustCompile("^"+pattern+"\n$").MatchString(stderr) {
		s.t.Errorf("stderr %q, want one line %q", stderr, pattern)
	}
}

// A compile that takes as long as it is let run, and its quick version: a test
// puts that in its place before the command begins again here.
const (
	longSource  = "constexpr unsigned long f(unsigned n) { unsigned long s = 0; for (unsigned i = 0; i < n; i++) s += s * i + 1; return s; }\nstatic_assert(f(2000000000) != 1);\n"
	quickSource = "int quick;\n"
)

var longFlags = []string{"-fconstexpr-ops-limit=99999999999", "-fconstexpr-loop-limit=2147483647"}

// startLong begins a compile that does not end, and returns when it runs on a host.
func (s *site) startLong(env []string, name string) *running {
	s.t.Helper()
	path := s.file(name+".cc", longSource)
	j := s.start(env, append([]string{"g++", "-c", name + ".cc"}, longFlags...)...)
	s.eventually("a remote compiler", func() string {
		for _, p := range s.processes() {
			if p.name == "cc1plus" && strings.Contains(p.line, name+".cc") && (p.tree || strings.HasPrefix(p.cwd, s.tmp)) {
				return ""
			}
		}
		return "none runs"
	})
	// Not written over: the preprocessor has read it, but it shall stay what it was.
	if err := os.Remove(path); err != nil {
		s.t.Fatal(err)
	}
	s.file(name+".cc", quickSource)
	return j
}

// eventually waits until wrong returns "": what is still wrong.
func (s *site) eventually(what string, wrong func() string) {
	s.t.Helper()
	pause := 2 * time.Millisecond // and then longer: to look costs processor time that what is waited for needs
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		pause = min(pause*5/4, 50*time.Millisecond)
		w := wrong()
		if w == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %s after %v: %s", what, patience, w)
		}
	}
}

// process is a process of the site.
type process struct {
	pid             int
	name, line, cwd string
	tree            bool // in namespaces of its own
}

func (p process) String() string { return fmt.Sprintf("[%d %s in %s]", p.pid, p.line, p.cwd) }

// processes returns all processes that belong to the site, whatever started them.
func (s *site) processes() (all []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		// Any of these may have ended meanwhile.
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		if len(line) == 0 || !bytes.Contains(line, []byte(s.root)) && !bytes.Contains(env, []byte(s.root)) && !strings.HasPrefix(cwd, s.root) {
			continue
		}
		p := process{line: strings.ReplaceAll(string(line), "\x00", " "), cwd: cwd}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		there, err := os.Readlink(dir + "/ns/mnt")
		here, _ := os.Readlink("/proc/self/ns/mnt")
		p.tree = err == nil && there != here
		comm, _ := os.ReadFile(dir + "/comm")
		p.name = strings.TrimSpace(string(comm))
		all = append(all, p)
	}
	return all
}

// members are the farm's own processes.
func (s *site) members() []farm.Process {
	var all []farm.Process
	for _, p := range append(slices.Clone(s.Daemons), s.Manager) {
		if p.Running() {
			all = append(all, p)
		}
	}
	return all
}

// atRest notes what the processes hold when nothing is under way.
func (s *site) atRest() {
	s.t.Helper()
	s.eventually("rest", s.busy)
	for _, p := range s.members() {
		s.proven(p)
		var last level
		s.eventually("stable level of "+p.Name, func() string {
			now := s.level(p)
			same := now == last
			last = now
			if same {
				return ""
			}
			time.Sleep(50 * time.Millisecond)
			return fmt.Sprint(now)
		})
		s.levels[p.Name] = last
	}
}

// proven waits until every place of a daemon has been proven to confine compiles: only then
// does each have the process that it keeps.
func (s *site) proven(p farm.Process) {
	s.t.Helper()
	page, err := farm.Get(s.t.Context(), "http://"+p.HTTP+"/status.json")
	if err != nil {
		s.t.Fatalf("%s: %v", p.Name, err)
	}
	var st struct {
		Load    struct{ Jobs float64 }
		Sandbox struct{ Mode string }
	}
	if err := json.Unmarshal(page, &st); err != nil {
		s.t.Fatalf("%s: %v", p.Name, err)
	}
	if st.Sandbox.Mode == "" || st.Sandbox.Mode == "off" {
		return // no daemon, or one that proves nothing
	}
	s.eventually("proof of all places of "+p.Name, func() string {
		m := s.metrics(p)
		n := m[`rdistccd_sandbox_canaries_total{result="passed"}`] + m[`rdistccd_sandbox_canaries_total{result="failed"}`]
		if n < st.Load.Jobs {
			return fmt.Sprint(n, " canaries")
		}
		return ""
	})
}

// clean wants that nothing is under way any more and that no process holds more
// than at rest.
func (s *site) clean() {
	s.t.Helper()
	s.eventually("rest", s.busy)
	for _, p := range s.members() {
		most, known := s.levels[p.Name]
		if !known {
			continue
		}
		s.eventually("return of "+p.Name+" to what it held at rest", func() string {
			if now := s.level(p); now.descriptors > most.descriptors || now.qps > most.qps || now.regions > most.regions {
				return fmt.Sprintf("%+v, at rest %+v", now, most)
			}
			return ""
		})
	}
}

// busy says what is still under way: slots, jobs, compilers, temporary files.
func (s *site) busy() string {
	var wrong []string
	own := map[int]bool{}
	for _, p := range s.members() {
		own[p.PID()] = true
		m := s.metrics(p)
		for _, name := range []string{
			`rdistcc_cm_slots{state="leased"}`, `rdistcc_cm_waiting{for="credit"}`, `rdistcc_cm_waiting{for="local"}`,
			`rdistcc_cm_waiting{for="preprocess"}`, "rdistccd_jobs_running", "rdistccd_jobs_queued", "rdistccd_fetched_ahead",
			"rdistcc_cm_large_bytes", "rdistccd_large_bytes",
		} {
			if m[name] != 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %s %v", p.Name, name, m[name]))
			}
		}
	}
	for _, p := range s.processes() {
		switch {
		case own[p.pid], strings.HasPrefix(p.line, "rdistccd-guard "), strings.HasPrefix(p.line, "rdistccd-tree"):
		case strings.HasPrefix(p.line, filepath.Join(filepath.Dir(s.Wrapper), "rdistcc-cm")): // started by a wrapper
		default:
			wrong = append(wrong, p.String())
		}
	}
	_ = filepath.WalkDir(s.tmp, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			wrong = append(wrong, path)
		}
		return nil
	})
	return strings.Join(wrong, "; ")
}

// metrics are a process's series by name and labels.
func (s *site) metrics(p farm.Process) map[string]float64 {
	page, err := farm.Get(s.t.Context(), "http://"+p.HTTP+"/metrics")
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

// level reads what a process holds. Slots that are kept ready do not count, as their number is bounded; nor
// do descriptors of the runtime, or of connections that read metrics.
func (s *site) level(p farm.Process) level {
	m := s.metrics(p)
	l := level{qps: int(m["iwarp_qps"]), regions: int(m["iwarp_memory_regions"])}
	dir := fmt.Sprintf("/proc/%d/fd", p.PID())
	names, err := os.ReadDir(dir)
	if err != nil && (os.Geteuid() == 0 || !errors.Is(err, os.ErrPermission)) {
		s.t.Fatal(err) // only root sees the descriptors of what is not dumpable
	}
	kept := make(map[string]bool)
	for _, n := range names {
		to, err := os.Readlink(filepath.Join(dir, n.Name()))
		if err != nil || strings.HasPrefix(to, "anon_inode:[event") || strings.HasPrefix(to, "/memfd:") {
			continue
		}
		// Results stay open for a while after the last connection (store.keep), each file once.
		if strings.HasPrefix(to, filepath.Join(s.root, p.Name+"-results")+"/") && !kept[to] {
			kept[to] = true
			continue
		}
		l.descriptors++
	}
	return l
}

// read is a file of the work directory.
func (s *site) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.work, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
