// Package equal proves that a command with rdistcc gives the same as without: exit status, messages, files,
// their bytes and modes. Each command runs twice in the same directory, once plain and once with rdistcc
// before the compiler, while the daemons cannot see that directory, as if they were other machines.
package equal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/engine"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

var (
	keepDir    = flag.String("keep", "", "copy what differs to this directory")
	textual    = flag.Bool("text", false, "daemons without private trees: places and debug information are not looked at")
	trees      = flag.String("tree", "both", "daemon.tree of the daemons, or both: auto of one, answered of the other")
	inputs     = flag.String("inputs", "", "RDISTCC_INPUTS of the commands: auto, list or text; \"\": not set")
	cache      = flag.Bool("cache", false, "with the cache of results")
	cluster    = flag.Bool("cluster", false, "the daemons hand their jobs to a cluster: buildbox-casd of Debian's unstable suite, which is fetched")
	security   farm.Security
	daemonUser = flag.String("daemon-user", "", "`USER` that the daemons become, where root runs the tests")
)

// asText reports whether commands travel as text, whatever they are.
func asText() bool { return *textual || *inputs == "text" }

// patience ends a command that hangs.
const patience = 2 * time.Minute

// ground is where everything lies, made once for all tests: the client's
// directory, which daemons find empty, and the farm.
type ground struct {
	*farm.Farm
	root    string
	client  string // contains the places
	places  chan *place
	sandbox string         // how the daemons confine compiles
	hosts   string         // that the manager was told of
	other   string         // RDISTCC_DIR of a second manager; "": there is none
	engine  *engine.Engine // nil: the daemons run the jobs
}

// place is a directory that commands run in, one at a time.
type place struct {
	g    *ground
	dir  string
	work string // current directory of a command
	tmp  string // its TMPDIR

	passes []bool // how each command of a sequence runs with rdistcc, in turn: with the cache of results, or without; nil: once, without
	cached bool   // commands run with the cache of results

	laid    *fixtures        // current content of work
	before  map[string]entry // as it was laid
	touched []string         // what a command has changed since
}

// parallel is how many commands run at a time.
const parallel = 3

var (
	theGround  *ground
	noGround   error // why there is none
	makeGround sync.Once
)

// TestMain ends the farm that all tests share.
func TestMain(m *testing.M) {
	security.Flags(flag.CommandLine)
	flag.Parse()
	status := m.Run()
	if g := theGround; g != nil {
		err := g.Stop()
		if g.engine != nil {
			err = errors.Join(err, g.engine.Stop())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
		if status != 0 {
			g.showLogs()
		}
		_ = os.RemoveAll(g.root)
	}
	os.Exit(status)
}

// stand gives a test the ground, or skips it.
func stand(t *testing.T) *ground {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a farm")
	}
	for _, tool := range []string{"gcc", "g++", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "no %s", tool)
		}
	}
	if err := farm.CanHide(t.Context()); err != nil {
		need.Skipf(t, need.Sandbox, "a daemon would see the client's files: %v", err)
	}
	bin := farmtest.Programs(t)
	makeGround.Do(func() { theGround, noGround = newGround(context.Background(), bin) })
	if noGround != nil {
		t.Fatal(noGround)
	}
	return theGround
}

func newGround(ctx context.Context, bin string) (g *ground, err error) {
	g = &ground{places: make(chan *place, parallel)}
	if g.root, err = os.MkdirTemp("", "rdistcc-equal-"); err != nil {
		return nil, err
	}
	made := g // g is nil where this returns with an error
	defer func() {
		if err != nil {
			if made.Farm != nil {
				err = errors.Join(err, made.Stop())
			}
			if made.engine != nil {
				err = errors.Join(err, made.engine.Stop())
			}
			_ = os.RemoveAll(made.root)
		}
	}()
	g.client = filepath.Join(g.root, "client")
	if err := os.Mkdir(g.client, 0o700); err != nil {
		return nil, err
	}
	if g.Farm, err = farmtest.Lay(bin, g.root); err != nil {
		return nil, err
	}
	// Daemons may become another user.
	tmp := filepath.Join(g.root, "tmp")
	if err := errors.Join(os.Chmod(g.root, 0o755), os.Chmod(g.Dir, 0o755), os.Chmod(tmp, 0o777|os.ModeSticky)); err != nil {
		return nil, err
	}
	g.Hidden = g.client
	g.Vars = []string{"TMPDIR=" + tmp, "LC_ALL=C"}
	s := security
	if *cluster {
		s.Sandbox, *trees = "auto", "auto"
	}
	if s.Sandbox == "" && !*textual {
		s.Sandbox = "strict" // no daemon starts so where the machine does not offer it
		if err := g.tries(ctx, s); err != nil {
			s.Sandbox = "auto"
		}
	}
	g.sandbox = s.Sandbox
	if *textual {
		*trees = "off"
	}
	if *trees == "both" && s.Sandbox != "strict" || *bareHosts { // nobody sends compilers to hosts with answered trees
		*trees = "auto"
	}
	if s != (farm.Security{}) || *bareHosts || *trees != "auto" {
		if err := g.Secure(ctx, s); err != nil {
			return nil, err
		}
	}
	if *bareHosts {
		if err := g.AddSettings("daemon.yaml", "toolchains: {dirs: [/nowhere]}\n"); err != nil {
			return nil, err
		}
	}
	args := []string{"--jobs", "3"}
	if *cluster {
		a, err := debsrc.New(*sourcesDir)
		if err != nil {
			return nil, err
		}
		if g.engine, err = engine.Start(ctx, a, filepath.Join(g.root, "engine"), 3); err != nil {
			return nil, err
		}
		args = append(args, "--executor", "grpc://"+g.engine.Addr)
	}
	if *trees != "auto" && *trees != "both" {
		if err := g.AddSettings("daemon.yaml", "daemon: {tree: "+*trees+"}\n"); err != nil {
			return nil, err
		}
	}
	if *daemonUser != "" {
		args = append(args, "--user", *daemonUser)
	}
	var hosts []string
	for _, name := range []string{"one", "two"} {
		if name == "two" && *trees == "both" {
			if err := g.AddSettings("daemon.yaml", "daemon: {tree: answered}\n"); err != nil { // the first one has read it
				return nil, err
			}
		}
		d, err := g.StartDaemon(ctx, name, args...)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, d.Addr+"/4")
	}
	g.hosts = strings.Join(hosts, " ")
	if err := g.StartManager(ctx, "--hosts", g.hosts); err != nil {
		return nil, err
	}
	for i := range parallel {
		p := &place{g: g, dir: filepath.Join(g.client, fmt.Sprint("p", i))}
		p.work, p.tmp = filepath.Join(p.dir, "w"), filepath.Join(p.dir, "tmp")
		if err := os.Mkdir(p.dir, 0o700); err != nil {
			return nil, err
		}
		g.places <- p
	}
	return g, g.makeLinks()
}

// tries starts a daemon with s and ends it.
func (g *ground) tries(ctx context.Context, s farm.Security) error {
	dir := filepath.Join(g.root, "trial")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f, err := farmtest.Lay(filepath.Dir(g.Wrapper), dir)
	if err != nil {
		return err
	}
	if err := f.Secure(ctx, s); err != nil {
		return err
	}
	if _, err := f.StartDaemon(ctx, "trial"); err != nil {
		_ = f.Stop() // it has ended
		return err
	}
	return f.Stop()
}

// makeLinks makes two directories for PATH: one with links to rdistcc that are
// named like compilers, and one without anything.
func (g *ground) makeLinks() error {
	for dir, names := range map[string][]string{"links": {"gcc", "g++", "cc", "c++", "clang", "clang++", "x86_64-linux-gnu-gcc"}, "nolinks": nil} {
		if err := os.Mkdir(filepath.Join(g.root, dir), 0o700); err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Symlink(g.Wrapper, filepath.Join(g.root, dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *ground) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(g.Dir, "*.log")) // the pattern is right
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(os.Stderr, "%s:\n%s\n", filepath.Base(name), text[max(0, len(text)-3000):])
	}
}

// fixtures are files as an archive, and when each of them was last written: some
// time ago, as a compiler may look whether a source is younger than its run.
type fixtures struct {
	archive *txtar.Archive
	time    time.Time
}

func readFixtures(t *testing.T, file string) *fixtures {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &fixtures{a, time.Now().Add(-time.Hour).Truncate(time.Second)}
}

// lay puts the files into the place as a command should find them: all of them at first, later those that
// the last command has touched.
func (p *place) lay(f *fixtures) error {
	if err := remove(p.tmp); err != nil {
		return err
	}
	if err := os.Mkdir(p.tmp, 0o755); err != nil {
		return err
	}
	if p.laid != f {
		if err := remove(p.work); err != nil {
			return err
		}
		if err := os.Mkdir(p.work, 0o755); err != nil {
			return err
		}
		for _, file := range f.archive.Files {
			if err := f.write(p.work, file); err != nil {
				return err
			}
		}
		p.laid = f
	} else if len(p.touched) > 0 {
		slices.Sort(p.touched) // a directory before its content, which cannot be written while the directory is read-only
		for _, name := range p.touched {
			if err := remove(filepath.Join(p.work, name)); err != nil {
				return err
			}
		}
		for _, file := range f.archive.Files {
			if p.before[file.Name].kind == 'f' {
				if _, err := os.Lstat(filepath.Join(p.work, file.Name)); err == nil {
					continue
				}
			}
			if err := f.write(p.work, file); err != nil {
				return err
			}
		}
	}
	p.touched = nil
	var err error
	p.before, err = snapshot(p.work, nil)
	return err
}

func (f *fixtures) write(dir string, file txtar.File) error {
	path := filepath.Join(dir, file.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, file.Data, 0o644); err != nil {
		return err
	}
	return os.Chtimes(path, f.time, f.time)
}

// remove removes dir with all in it, also where a command has taken away the
// right to.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	if out, cerr := exec.Command("chmod", "-R", "u+rwX", dir).CombinedOutput(); cerr != nil {
		return fmt.Errorf("%w; chmod: %s", err, out)
	}
	return os.RemoveAll(dir)
}

// outcome is what a command came to.
type outcome struct {
	status         int // 128+N for signal N
	stdout, stderr string
	files          map[string]entry // what it made, changed or removed, by name
	left           []string         // in TMPDIR
	report         []string         // a line for each job of rdistcc's
	jobs           []traced         // the same, as traced
}

// run lays the fixtures and runs a shell command, which finds in $W what stands
// before the compiler, in $CC and $CXX the compilers with it, and in $PCC and
// $PCXX without.
func (p *place) run(ctx context.Context, f *fixtures, c command, wrapped bool) (outcome, error) {
	if err := p.lay(f); err != nil {
		return outcome{}, err
	}
	o, err := p.execute(ctx, c.line, c, wrapped)
	if err != nil {
		return o, err
	}
	after, err := snapshot(p.work, p.before)
	if err != nil {
		p.laid = nil // unreadable: lay everything again
		return o, err
	}
	o.files = changes(p.before, after)
	p.touched = touched(p.before, after)
	tmp, err := snapshot(p.tmp, nil)
	if err != nil {
		return o, err
	}
	for name := range tmp {
		o.left = append(o.left, name)
	}
	return o, nil
}

// execute runs a shell command in the place's working directory as it is, with
// vars of the form NAME=VALUE. The outcome tells of no files.
func (p *place) execute(ctx context.Context, line string, c command, wrapped bool, vars ...string) (outcome, error) {
	report := filepath.Join(p.dir, "report")
	trace := filepath.Join(p.dir, "trace")
	if err := errors.Join(os.RemoveAll(report), os.RemoveAll(trace)); err != nil {
		return outcome{}, err
	}
	w, links := "", filepath.Join(p.g.root, "nolinks")
	if wrapped {
		w, links = p.g.Wrapper, filepath.Join(p.g.root, "links")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = p.work
	cmd.Env = append(p.g.Env(), "PWD="+p.work, "TMPDIR="+p.tmp, "RDISTCC_REPORT="+report, "RDISTCC_TRACE="+trace, "W="+w, "LINKS="+links,
		"CC="+strings.TrimSpace(w+" "+c.cc), "CXX="+strings.TrimSpace(w+" "+c.cxx), "PCC="+c.cc, "PCXX="+c.cxx)
	if *inputs != "" {
		cmd.Env = append(cmd.Env, "RDISTCC_INPUTS="+*inputs)
	}
	if *cache || p.cached {
		cmd.Env = append(cmd.Env, "RDISTCC_CACHE=on")
	}
	cmd.Env = slices.DeleteFunc(append(cmd.Env, vars...), func(s string) bool { return strings.HasPrefix(s, "MAKEFLAGS=") })
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%q hung (with rdistcc: %v)", line, wrapped)
	} else if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return outcome{}, err
	}
	o := outcome{status: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		o.status = 128 + int(ws.Signal())
	}
	for _, name := range []string{report, trace} {
		_ = os.Chmod(name, 0o600) // the command's umask may have closed it
	}
	lines, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return o, err
	}
	o.report = strings.FieldsFunc(string(lines), func(r rune) bool { return r == '\n' })
	if lines, err = os.ReadFile(trace); err != nil && !errors.Is(err, os.ErrNotExist) {
		return o, err
	}
	for text := range strings.Lines(string(lines)) {
		var job traced
		if err := json.Unmarshal([]byte(text), &job); err != nil {
			return o, fmt.Errorf("RDISTCC_TRACE: %w: %s", err, text)
		}
		o.jobs = append(o.jobs, job)
	}
	return o, nil
}

// traced is what RDISTCC_TRACE tells of a job.
type traced struct {
	Where, Reason, Inputs string
	Twice                 bool // on a host, and then here
}
