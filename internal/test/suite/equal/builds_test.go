package equal

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	buildNames   = flag.String("builds", "", "projects that TestBuilds builds, or all; without: lua, where its sources are at hand")
	buildOptions = flag.String("options", "gcc:-O0 -g,gcc:-O2,clang:-O2 -g,clang:-O0", "compilers and options of TestBuilds")
	sourcesDir   = flag.String("sources", "", "directory of the source packages (default: in the user's cache)")
	bareHosts    = flag.Bool("bare", false, "the hosts have no compilers: TestBuilds sends them those that it uses, and says how long that took")
	buildJobs    = flag.Int("jobs", 3, "compiles at a time of TestBuilds")
)

// lacksTools is how a project's configuring ends that needs what is not installed.
const lacksTools = 77

const kernelSources = "/usr/src/linux-source-*.tar.xz"

// TestBuilds builds real projects in one directory, first plain and then with
// rdistcc, wants every object the same, byte for byte, and runs the project's own
// tests on what rdistcc has built.
func TestBuilds(t *testing.T) {
	g := stand(t)
	a, err := debsrc.New(*sourcesDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range projects {
		if !slices.Contains(strings.Split(*buildNames, ","), p.name) && *buildNames != "all" && (*buildNames != "" || p.name != "lua") {
			continue
		}
		for _, how := range strings.Split(*buildOptions, ",") {
			t.Run(p.name+" "+how, func(t *testing.T) {
				if *buildNames == "" {
					part.SkipCase(t)
				}
				if *buildNames == "" && !a.Has(p.source) {
					t.Skipf("no sources of %s at hand; make builds fetches them", p.name)
				}
				cc, options, _ := strings.Cut(how, ":")
				if _, err := exec.LookPath(cc); err != nil {
					t.Skipf("no %s", cc)
				}
				b := &build{project: p, g: g, cc: cc, options: strings.Fields(options), dir: filepath.Join(g.client, "build")}
				if p.optimise && slices.Contains(b.options, "-O0") {
					t.Skipf("%s cannot be built with -O0", p.name)
				}
				if *bareHosts {
					b.equip(t)
				}
				r, err := b.compare(t.Context(), a)
				var ended *exec.ExitError
				if errors.As(err, &ended) && ended.ExitCode() == lacksTools {
					t.Skipf("no autoreconf, and the sources of %s have no configure", p.name)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Log(r)
				for _, wrong := range r.wrong {
					t.Error(wrong)
				}
			})
		}
	}
}

// equip sends the hosts, which have no compilers, those of the build.
func (b *build) equip(t *testing.T) {
	t.Helper()
	cxx := map[string]string{"gcc": "g++", "clang": "clang++"}[b.cc]
	for _, d := range b.g.Daemons {
		for _, cc := range []string{b.cc, cxx} {
			began := time.Now()
			cmd := exec.CommandContext(t.Context(), b.g.Wrapper, "toolchain", "send", d.Addr, cc)
			cmd.Env = b.g.Env()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("toolchain send: %v: %s", err, out)
			}
			sent, err := b.g.Manager.Metric(t.Context(), "rdistcc_cm_toolchain_bytes_total")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v after %s; %.0f bytes sent to hosts so far", strings.TrimSpace(string(out)), time.Since(began).Round(time.Millisecond), cc, sent)
		}
	}
}

// build is one project with one compiler and options.
type build struct {
	project
	g       *ground
	cc      string
	options []string
	dir     string // the same for the plain build and the other
}

// built is what a build came to.
type built struct {
	objects map[string]string // content by name
	report  map[string]int    // jobs by place
	known   map[string]int    // jobs on hosts by how it was known what they read
	twice   []string          // lines of the trace: compiled on a host, and then here again
	began   time.Time
	seconds float64
}

// result is what a comparison found.
type result struct {
	name, how                string
	objects, equal, stripped int
	unstable                 []string // not even the same twice without rdistcc
	report                   map[string]int
	twice                    int      // commands that a host had compiled before they ran here
	known                    []string // of each build with rdistcc: how it was known what the jobs on hosts read
	plain, rdistcc           float64  // seconds
	checked                  bool
	wrong                    []string
}

// String is a line of the table in the documentation.
func (r result) String() string {
	remote, local := 0, []string{}
	for _, place := range slices.Sorted(maps.Keys(r.report)) {
		if place == "remote" {
			remote = r.report[place]
		} else {
			local = append(local, fmt.Sprint(strings.TrimPrefix(place, "local:"), " ", r.report[place]))
		}
	}
	tests := "no tests"
	if r.checked {
		tests = "own tests pass"
	}
	s := fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %s | %s | %.0f s, plain %.0f s |", r.name, r.how, r.objects, r.equal, r.stripped, remote,
		strings.Join(local, ", "), tests, r.rdistcc, r.plain)
	if len(r.known) > 0 {
		s += " known by " + strings.Join(r.known, "; again: ")
	}
	if r.twice > 0 {
		s += fmt.Sprintf(" compiled twice: %d", r.twice)
	}
	if len(r.unstable) > 0 {
		s += " not deterministic: " + strings.Join(r.unstable, " ")
	}
	return s
}

func (b *build) compare(ctx context.Context, a *debsrc.Archives) (result, error) {
	r := result{name: b.name, how: b.cc + " " + strings.Join(b.options, " ")}
	plain, err := b.run(ctx, a, false)
	if err != nil {
		return r, fmt.Errorf("plain build: %w", err)
	}
	wrapped, err := b.run(ctx, a, true)
	if err != nil {
		return r, fmt.Errorf("build with rdistcc: %w", err)
	}
	all := []built{wrapped}
	if b.warm {
		again, err := b.again(ctx, wrapped)
		if err != nil {
			return r, fmt.Errorf("build with rdistcc, once more: %w", err)
		}
		all = append(all, again)
	}
	r.plain, r.rdistcc, r.report, r.twice = plain.seconds, wrapped.seconds, wrapped.report, len(wrapped.twice)
	if b.once && r.twice > 0 {
		r.wrong = append(r.wrong, fmt.Sprintf("%d commands were compiled on a host and then here again, say %s", r.twice, wrapped.twice[0]))
	}
	if b.check != "" {
		if err := b.shell(ctx, b.check, true); err != nil {
			r.wrong = append(r.wrong, fmt.Sprintf("the project's own tests: %v", err))
		}
		r.checked = len(r.wrong) == 0
	}
	r.objects = len(plain.objects)
	differ := make(map[string]string) // what it was made to be
	for name, object := range plain.objects {
		same := true
		for i, w := range all {
			got, ok := w.objects[name]
			switch {
			case !ok:
				r.wrong = append(r.wrong, fmt.Sprintf("%s was not made by build %d", name, i+1))
				same = false
			case got != object:
				differ[name] = got
				same = false
			}
		}
		if same {
			r.equal++
			r.stripped++
		}
	}
	for _, w := range all {
		for name := range w.objects {
			if _, ok := plain.objects[name]; !ok {
				r.wrong = append(r.wrong, name+" was made only with rdistcc")
			}
		}
		var known []string
		for _, how := range slices.Sorted(maps.Keys(w.known)) {
			known = append(known, fmt.Sprint(how, " ", w.known[how]))
		}
		r.known = append(r.known, strings.Join(known, ", "))
	}
	if r.report["remote"] == 0 {
		r.wrong = append(r.wrong, "nothing ran on a host")
	}
	for place, n := range r.report {
		if slices.Contains(trouble, strings.TrimPrefix(place, "local:")) {
			r.wrong = append(r.wrong, fmt.Sprintf("trouble: %s, %d times", place, n))
		}
	}
	if len(differ) == 0 {
		return r, nil
	}
	again, err := b.run(ctx, a, false)
	if err != nil {
		return r, fmt.Errorf("second plain build: %w", err)
	}
	names := slices.Sorted(maps.Keys(differ))
	for _, name := range names {
		x, y := plain.objects[name], differ[name]
		if again.objects[name] != x {
			r.unstable = append(r.unstable, name)
			continue
		}
		if strip(x, "-g") == strip(y, "-g") {
			r.stripped++
		}
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %s", name, howDifferent(x, y)))
		v := verdict{plain: outcome{files: map[string]entry{name: {kind: 'f', data: x}}}, wrapped: outcome{files: map[string]entry{name: {kind: 'f', data: y}}}, diffs: names}
		if err := v.keep(r.name + " " + r.how); err != nil {
			return r, err
		}
	}
	return r, nil
}

// run unpacks, configures and builds.
func (b *build) run(ctx context.Context, a *debsrc.Archives, wrapped bool) (built, error) {
	if err := errors.Join(b.lay(ctx, a), b.shell(ctx, b.configure, wrapped)); err != nil {
		return built{}, err
	}
	return b.build(ctx, wrapped)
}

// again builds once more what the build first, with rdistcc, has made.
func (b *build) again(ctx context.Context, first built) (built, error) {
	var err error
	for name := range first.objects {
		name = filepath.Join(b.dir, name)
		st, serr := os.Stat(name)
		if serr == nil && st.ModTime().After(first.began) { // else it came with the sources, or configuring made it
			serr = os.Remove(name)
		}
		err = errors.Join(err, serr)
	}
	if err != nil {
		return built{}, err
	}
	return b.build(ctx, true)
}

// build runs the project's build.
func (b *build) build(ctx context.Context, wrapped bool) (built, error) {
	res := built{report: map[string]int{}, known: map[string]int{}}
	report, trace := b.dir+".report", b.dir+".trace"
	if err := errors.Join(os.RemoveAll(report), os.RemoveAll(trace)); err != nil {
		return res, err
	}
	res.began = time.Now()
	if err := b.shell(ctx, b.make, wrapped); err != nil {
		return res, err
	}
	res.seconds = time.Since(res.began).Seconds()
	lines, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return res, err
	}
	for line := range strings.Lines(string(lines)) {
		where := strings.TrimSpace(line)
		if strings.HasPrefix(where, "remote:") {
			where = "remote"
		}
		res.report[where]++
	}
	if lines, err = os.ReadFile(trace); err != nil && !errors.Is(err, os.ErrNotExist) {
		return res, err
	}
	for line := range strings.Lines(string(lines)) {
		if strings.Contains(line, `,"twice":true,`) {
			res.twice = append(res.twice, line)
		}
		if _, rest, ok := strings.Cut(line, `,"inputs":"`); ok && strings.Contains(line, `"where":"remote"`) {
			how, _, _ := strings.Cut(rest, `"`)
			res.known[how]++
		}
	}
	res.objects, err = objects(b.dir)
	return res, err
}

// lay puts the sources into the directory. The kernel's stay there from build to build, as its outputs are
// in a directory of their own.
func (b *build) lay(ctx context.Context, a *debsrc.Archives) error {
	if b.source == "" {
		found, err := filepath.Glob(kernelSources)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no %s: %w", kernelSources, err)
		}
		if err := remove(filepath.Join(b.dir, "out")); err != nil {
			return err
		}
		tree := filepath.Join(b.dir, "tree")
		if _, err := os.Stat(filepath.Join(tree, "Makefile")); err == nil {
			return nil
		}
		if err := errors.Join(remove(b.dir), os.MkdirAll(tree, 0o755)); err != nil {
			return err
		}
		return try(exec.CommandContext(ctx, "tar", "-C", tree, "--strip-components=1", "-xf", found[0]))
	}
	if err := remove(b.dir); err != nil {
		return err
	}
	if err := a.Unpack(ctx, b.source, b.dir); err != nil {
		return err
	}
	for dir, source := range b.more {
		dir = filepath.Join(b.dir, dir)
		if err := errors.Join(remove(dir), os.MkdirAll(filepath.Dir(dir), 0o755), a.Unpack(ctx, source, dir)); err != nil {
			return err
		}
	}
	return nil
}

// shell runs one of the project's commands.
func (b *build) shell(ctx context.Context, line string, wrapped bool) error {
	if line == "" {
		return nil
	}
	w := ""
	if wrapped {
		w = b.g.Wrapper
	}
	cxx := strings.Replace(strings.Replace(b.cc, "gcc", "g++", 1), "clang", "clang++", 1)
	flags := strings.Join(b.options, " ")
	opt, debug, kconfig := "-O0", "", ""
	for _, o := range b.options {
		if strings.HasPrefix(o, "-O") {
			opt = o
		}
		if strings.HasPrefix(o, "-g") {
			debug, kconfig = o, "-d DEBUG_INFO_NONE -e DEBUG_KERNEL -e DEBUG_INFO -e DEBUG_INFO_DWARF4"
		}
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = b.dir
	cmd.Env = slices.DeleteFunc(b.g.Env(), func(s string) bool {
		return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") || strings.HasPrefix(s, "CFLAGS") || strings.HasPrefix(s, "CXXFLAGS")
	})
	cmd.Env = append(cmd.Env, "PWD="+b.dir, "RDISTCC_REPORT="+b.dir+".report", "RDISTCC_TRACE="+b.dir+".trace", "RDISTCC_FALLBACK=0", "W="+w, "PCC="+b.cc, "PCXX="+cxx,
		"CC="+strings.TrimSpace(w+" "+b.cc), "CXX="+strings.TrimSpace(w+" "+cxx), "FLAGS="+flags, "OPT="+opt, "DEBUG="+debug, "KCONFIG="+kconfig,
		"JOBS="+strconv.Itoa(*buildJobs), "MAKEFLAGS=-j"+strconv.Itoa(*buildJobs), "SOURCE_DATE_EPOCH=1700000000")
	return try(cmd)
}

// objects are all object files below dir.
func objects(dir string) (map[string]string, error) {
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !slices.Contains([]string{".o", ".lo", ".obj", ".dwo"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(text, []byte("\x7fELF")) {
			name, _ := filepath.Rel(dir, path)
			all[name] = string(text)
		}
		return err
	})
	return all, err
}

// try runs a command; the error has the end of what it printed.
func try(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w: %s", cmd.Args, err, out[max(0, len(out)-1500):])
	}
	return nil
}
