package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// dosTime is what jobs that want the machine ask for: the daemon would give them more. An
// answer may take graceTime longer.
const (
	dosTime   = 1500 * time.Millisecond
	graceTime = 15 * time.Second
)

// Bounds of what jobs may have: the limits, with what is counted twice.
const (
	memoryBound = jobMemoryLimit * 3 / 2
	outputBound = 3 * outputLimit
	diskBound   = 3 << 30 / 2
)

// verdict is what came of a trial.
type verdict struct {
	what     string // refused, ran, failed, with the cause or status
	breaches []string
	said     []byte // by the last job, on stderr
}

// site is a daemon with its canaries and what is needed to send jobs to it.
type site struct {
	*daemon
	c       *canaries
	dev     iwarp.Device
	tcs     map[string]toolchain.Toolchain
	client  *rawjob.Client
	tenants []*rawjob.Client
	trees   bool // it takes the sources form
	beside  int  // a process that is no job's, which attacks are aimed at; 0: none
}

// identify finds the compilers that are here.
func identify(t *testing.T) (map[string]toolchain.Toolchain, map[string]bool) {
	t.Helper()
	var cache toolchain.Cache
	tcs, have := map[string]toolchain.Toolchain{}, map[string]bool{}
	for _, cc := range compilers {
		name := cc
		if v := os.Getenv("RDISTCC_ATTACKS_" + strings.ToUpper(strings.ReplaceAll(cc, "++", "xx"))); v != "" { // GCC, GXX, CLANG, CLANGXX
			name = v
		}
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		tc, err := cache.Identify(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		tcs[cc], have[cc] = tc, true
	}
	return tcs, have
}

// newSite plants canaries and starts a daemon.
func newSite(t *testing.T, m mode, bin string, tcs map[string]toolchain.Toolchain) *site {
	t.Helper()
	// A process that loses its parent becomes our child, and is found.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	seen, uid := dir, os.Geteuid()
	if uid == 0 {
		seen = shown
		if m.user {
			uid = plainUser
		}
	}
	s := &site{c: plant(t, dir, seen, uid), tcs: tcs}
	s.daemon = startDaemon(t, m, s.c, bin)
	var err error
	if s.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.hangUp()
		s.endTenants()
		s.dev.Close()
	})
	if m.sent {
		s.receive(t)
	}
	return s
}

func (s *site) hangUp() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// dial gives the connection for attacks.
func (s *site) dial(ctx context.Context) (*rawjob.Client, error) {
	if s.client == nil {
		var err error
		if s.client, err = rawjob.Dial(ctx, s.dev, s.addr, 8); err != nil {
			return nil, err
		}
	}
	return s.client, nil
}

// rest waits for a moment. The connection answers meanwhile, as a client that does not is dropped.
func (s *site) rest() {
	time.Sleep(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.client != nil && s.client.Echo(ctx) != nil {
		s.hangUp()
	}
}

// about makes the places of a compiler known: where its driver is and how it is called, where its parts
// are, and what it compiles for.
func (s *site) about(tc *toolchain.Toolchain) {
	s.c.names["DRIVERDIR"], s.c.names["CALLDIR"], s.c.names["TARGET"] = filepath.Dir(tc.Path), filepath.Dir(tc.Exec), tc.Target
	s.c.names["PARTS"] = filepath.Join("/usr/lib/gcc", tc.Target, strconv.Itoa(tc.Major))
}

// job makes what is sent.
func (s *site) job(t trial) (*rawjob.Job, error) {
	a, tc := t.attack, s.tcs[t.cc]
	s.about(&tc)
	b := &job.Body{Argv0: t.cc, Language: "cpp-output", Name: "in.c", Cwd: "/src", Outputs: []unit.Output{{Name: "out.o"}}}
	if strings.HasSuffix(t.cc, "++") {
		b.Language, b.Name = "c++-cpp-output", "in.cc"
	}
	for field, v := range map[*string]*string{&b.Argv0: a.argv0, &b.Language: a.lang, &b.Name: a.name, &b.Cwd: a.cwd} {
		if v != nil {
			*field = s.c.fill(*v)
		}
	}
	b.Args, b.Env = s.fillAll(a.args[t.cc]), s.fillAll(a.env)
	text := a.source
	if text == "" && a.sourcefile == "" && !a.nosource {
		text = "int x;\n"
	}
	j := &rawjob.Job{Body: b, Text: []byte(s.c.fill(repeated(text))), Toolchain: s.tcs[t.cc].ID, Timeout: a.limit, Sink: 8 << 20}
	if a.sourcefile != "" {
		var err error
		if j.Text, err = os.ReadFile(s.here(s.c.fill(a.sourcefile))); err != nil {
			return nil, err
		}
	}
	if a.sources {
		if err := s.sourcesForm(t, j); err != nil {
			return nil, err
		}
	}
	if len(a.outputs) > 0 {
		b.Outputs = outputs(s.fillAll(a.outputs))
	}
	if a.sink > 0 {
		j.Sink = a.sink
	}
	if j.Timeout == 0 && a.class == "dos" {
		j.Timeout = dosTime
	}
	switch a.toolchain {
	case "unknown":
		j.Toolchain = unit.ToolchainID{1, 2, 3}
	case "other":
		other := map[string]string{"gcc": "clang", "clang": "gcc"}[t.cc]
		j.Toolchain = s.tcs[other].ID
	}
	if a.encoded != nil {
		switch *a.encoded {
		case "garbage":
			j.Encoded = []byte(strings.Repeat("\xff\x01garbage", 1000))
		case "counts":
			j.Encoded = append(b.Append(nil), 0xff, 0xff, 0xff, 0xff)
		default:
			j.Encoded = []byte(*a.encoded)
		}
	}
	return j, nil
}

// here is where the judge finds what the daemon calls name.
func (s *site) here(name string) string {
	if rest, ok := strings.CutPrefix(name, s.c.seen+"/"); ok {
		return filepath.Join(s.c.dir, rest)
	}
	return name
}

func (s *site) fillAll(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = s.c.fill(w)
	}
	return all
}

func outputs(words []string) []unit.Output {
	kinds := []string{unit.OutputObject: "object", unit.OutputAssembly: "assembly", unit.OutputStackUsage: "stack-usage", unit.OutputSide: "side", unit.OutputDependency: "dependency"}
	var all []unit.Output
	for _, w := range words {
		if w == "none" {
			return nil
		}
		kind, name, _ := strings.Cut(w, ":")
		all = append(all, unit.Output{Kind: unit.OutputKind(max(0, slices.Index(kinds, kind))), Name: name})
	}
	return all
}

// sourcesForm adds what a job of the sources form has: its files, and the outputs
// that a client would declare for the command.
func (s *site) sourcesForm(t trial, j *rawjob.Job) error {
	a, b := t.attack, j.Body
	j.Text = nil
	for i := range a.files {
		f := &a.files[i]
		text := []byte(s.c.fill(repeated(f.text)))
		if f.bring != "" {
			var err error
			if text, err = os.ReadFile(s.here(s.c.fill(f.bring))); err != nil {
				return err
			}
		}
		sf := unit.File{Name: s.c.fill(f.name), MTime: 1e18, Same: uint32(f.same), Exec: f.bring != ""}
		if f.same == 0 {
			sf.Len = uint64(len(text))
			j.Text = append(j.Text, text...)
		}
		b.Files = append(b.Files, sf)
	}
	for _, l := range a.links {
		b.Links = append(b.Links, unit.Link{Name: s.c.fill(l[0]), Target: s.c.fill(l[1])})
	}
	b.Dirs = s.fillAll(a.dirs)
	b.Front, b.Compiler = uint32(a.front), s.c.fill(a.compiler)
	if a.lang == nil {
		b.Language = "c"
		if strings.HasSuffix(t.cc, "++") {
			b.Language = "c++"
		}
	}
	if a.name == nil {
		b.Name = "in.c"
	}
	if !slices.Contains(b.Args, "-c") && !slices.Contains(b.Args, "-S") && !slices.Contains(b.Args, "-E") {
		b.Args = append(b.Args, "-c", b.Files[0].Name, "-o", "out.o")
	}
	d, ok := compile.DriverOf(t.cc, s.tcs[t.cc].Path)
	if p := compile.Parse(b.Args, d, func(string) (string, bool) { return "", false }); ok && len(p.Outputs) > 0 {
		b.Outputs = p.Outputs
	}
	return nil
}

// try sends a job and judges what comes of it.
func (s *site) try(t testing.TB, tr trial) (v verdict) {
	t.Helper()
	if tr.tenant {
		if err := s.startTenants(t.Context()); err != nil {
			t.Fatalf("%v: the other tenant: %v", tr, err)
		}
	} else if len(s.tenants) > 0 {
		s.endTenants()
		s.left()
	}
	j, err := s.job(tr)
	if err != nil {
		t.Fatalf("%v: %v", tr, err)
	}
	return s.tryJob(t, tr, j)
}

// tryJob does it with a job that is made already.
func (s *site) tryJob(t testing.TB, tr trial, j *rawjob.Job) (v verdict) {
	t.Helper()
	limit := j.Timeout
	if limit == 0 {
		limit = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit*time.Duration(tr.repeat)+graceTime)
	defer cancel()
	watch := func() (int64, int64) { return 0, 0 }
	if tr.class == "dos" {
		watch = s.watch(nil)
	}
	results, err := s.send(ctx, tr, j)
	most, room := watch()
	if err != nil {
		s.hangUp()
		v.what = "lost"
		if ctx.Err() != nil {
			v.breaches = append(v.breaches, "time: no answer")
		} else if tr.encoded == nil {
			v.breaches = append(v.breaches, "daemon: "+err.Error())
		}
	}
	for _, r := range results {
		what, breaches := s.judge(tr, r)
		v.what, v.said = what, r.Segment(r.Stderr)
		v.breaches = append(v.breaches, breaches...)
	}
	v.breaches = append(v.breaches, s.c.fired(s.root())...)
	if most > memoryBound {
		v.breaches = append(v.breaches, fmt.Sprintf("memory: %d MiB", most>>20))
	}
	if room > diskBound {
		v.breaches = append(v.breaches, fmt.Sprintf("disk: %d MiB", room>>20))
	}
	if !tr.tenant {
		v.breaches = append(v.breaches, s.left()...)
	}
	if !s.alive() {
		v.breaches = append(v.breaches, "daemon: it has ended")
		t.Fatalf("%v has ended the daemon: %v: %s", tr, s.err, s.tail())
	}
	return v
}

// send sends a job as often as the attack says and waits for the answers.
func (s *site) send(ctx context.Context, tr trial, j *rawjob.Job) ([]*rawjob.Result, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	var all []*rawjob.Pending
	for range tr.repeat {
		p, err := c.Start(ctx, j)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if tr.cancel > 0 {
		time.Sleep(tr.cancel) // it is to run by then; if not, that is cancelled as well
		if err := c.Cancel(all...); err != nil {
			return nil, err
		}
	}
	var results []*rawjob.Result
	for _, p := range all {
		r, err := c.Wait(ctx, p)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// judge looks at one result.
func (s *site) judge(tr trial, r *rawjob.Result) (what string, breaches []string) {
	back := []byte(r.Detail + "\n")
	words := 0
	for _, seg := range []job.Segment{r.Stdout, r.Stderr} {
		back = append(back, r.Segment(seg)...)
		words += int(seg.Len)
	}
	for _, f := range r.Files {
		back = append(append(back, '\n'), r.Segment(f.Segment)...)
	}
	leaks := tr.leaks[tr.cc]
	if !s.bare {
		leaks = append(slices.Clone(leaks), tr.oracles...)
	}
	breaches = s.c.leaked(back, leaks)
	if words > outputBound {
		breaches = append(breaches, fmt.Sprintf("output: %d KiB", words>>10))
	}
	switch r.Status {
	case job.StatusRefused:
		what = fmt.Sprintf("refused %v (%s)", r.Cause, r.Detail)
		switch r.Cause {
		case job.CausePolicy, job.CauseMalformed, job.CauseToolchain, job.CauseTree, job.CauseTooBig, job.CauseMemory:
		default:
			breaches = append(breaches, "refused: "+what)
		}
	case job.StatusFailed:
		what = fmt.Sprintf("failed %v (%s)", r.Cause, r.Detail)
		if r.Cause == job.CauseInternal {
			breaches = append(breaches, "daemon: "+what)
		}
	default:
		what = fmt.Sprintf("ran, status %d, signal %d", r.Exit, r.Signal)
	}
	if tr.must == "reject" && r.Status != job.StatusRefused {
		breaches = append(breaches, "reject: "+what)
	}
	return what, breaches
}

// watch observes how much memory the jobs take together, and how much room on the file system they work in,
// until the function that it returns is called. seen, if it is not nil, is called each time.
func (s *site) watch(seen func(memory, room int64)) func() (memory, room int64) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	var most, room int64
	before := s.room()
	all.Go(func() {
		tick := time.NewTicker(60 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			sum := int64(0)
			for pid, p := range processes() {
				if !s.own(pid) {
					sum += p.rss
				}
			}
			most, room = max(most, sum), max(room, s.room()-before)
			if seen != nil {
				seen(most, room)
			}
		}
	})
	return func() (int64, int64) {
		close(stop)
		all.Wait()
		return most, room
	}
}

// room is how many bytes the work directory's own file system holds.
func (s *site) room() int64 {
	if s.root() == "" {
		return 0
	}
	var st unix.Statfs_t
	if unix.Statfs(s.root()+shown+"/work", &st) != nil {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// own says that a process is one of the daemon's program, or no job's.
func (s *site) own(pid int) bool {
	if pid == s.beside {
		return true
	}
	dir := "/proc/" + strconv.Itoa(pid)
	fi, err := os.Stat(dir + "/exe")
	if errors.Is(err, os.ErrPermission) {
		// An ordinary user cannot look into its own daemon, which is not dumpable, nor into what that starts from /proc/self/exe,
		// and can into every compile.
		name, err := os.ReadFile(dir + "/comm")
		return err == nil && (string(name) == "rdistccd\n" || string(name) == "exe\n")
	}
	return err == nil && os.SameFile(fi, s.exe)
}

// canary says that a process is what a place proves itself with, or on: the probe, and the process that it
// may not reach. On a busy machine that takes seconds.
func canary(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	arg0, _, _ := bytes.Cut(line, []byte{0})
	return err == nil && string(arg0) == probe.Arg0
}

// left are the processes and the bytes that are there when no job is. A daemon may need a moment.
func (s *site) left() []string {
	var all []string
	for range 150 {
		all = nil
		for pid, p := range processes() {
			if !s.own(pid) && !canary(pid) {
				if _, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); errors.Is(err, os.ErrNotExist) {
					continue // it is ending
				}
				all = append(all, "left: process "+p.name)
			}
		}
		if n := s.room(); n > 8<<20 {
			all = append(all, fmt.Sprintf("left: %d MiB", n>>20))
		}
		if len(all) == 0 {
			return nil
		}
		s.rest()
	}
	for pid := range processes() {
		if !s.own(pid) && !canary(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return all
}
