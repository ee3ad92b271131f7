package toolchain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finding is one identification in progress.
type finding struct {
	ctx    context.Context
	limit  time.Duration // for one run of a program
	sums   *sums
	env    []string
	whole  Env      // as given
	names  []string // under which helpers are looked up on PATH
	counts Env      // the part of whole that matters for them
	tc     Toolchain
	parts  []part
	// files whose change invalidates the result, including absent ones
	stamps     map[string]stamp
	missing    []missing
	shown      map[string]bool // for Toolchain.Files
	candidates []string        // installations of gcc that a clang has found
	windows    []string        // compilers by which a clang finds headers for Windows
	configDirs []string        // where a clang looks for configuration files, beside its own directory
	static     []string        // programs without a loader: scripts among them
	dirs       []string        // in which the driver looks for programs, before PATH
	unanswered error           // of the first question that has got no answer, which says nothing of the compiler
}

// newFinding returns a finding that runs programs in an environment.
func newFinding(ctx context.Context, limit time.Duration, home string, env Env) *finding {
	f := &finding{ctx: ctx, limit: limit, whole: env, env: []string{"", "LC_ALL=C"}}
	if home != "" {
		f.env = append(f.env, "HOME="+home)
	}
	if env.Libraries != "" {
		f.env = append(f.env, "LD_LIBRARY_PATH="+env.Libraries)
	}
	f.lookUp(helpers)
	return f
}

// identify does the work of Identify, without a cache of results. On a machine so busy that a driver does not answer in time, a question
// that is allowed to fail must not be taken for one that did: the compiler would be another one than on other machines.
func identify(ctx context.Context, limit time.Duration, s *sums, home, path string, env Env) (*finding, error) {
	f, err := find(ctx, limit, s, home, path, env)
	if err == nil && f.unanswered != nil {
		err = fmt.Errorf("identify compiler: %w", f.unanswered)
	}
	return f, err
}

func find(ctx context.Context, limit time.Duration, s *sums, home, path string, env Env) (*finding, error) {
	f := newFinding(ctx, limit, home, env)
	f.sums, f.stamps = s, map[string]stamp{path: stampOf(path)}
	f.tc.Exec = path
	var err error
	if f.tc.Path, err = filepath.EvalSymlinks(path); err != nil {
		return f, fmt.Errorf("identify compiler: %w", err)
	}
	if l := launcher(filepath.Base(f.tc.Path)); l != "" {
		return f, fmt.Errorf("identify compiler: %s is %s, which only starts compilers: %w", path, l, ErrUnknown)
	}
	if isTidy(f.tc.Path) {
		if len(env.Plugins) > 0 {
			return f, fmt.Errorf("identify compiler: %s with plugins: %w", path, ErrUnknown)
		}
		err := f.tidy()
		f.tc.Script = f.unfit()
		return f, err
	}
	if err := f.describe(); err != nil {
		return f, err
	}
	if err := f.program("driver", f.tc.Path); err != nil {
		return f, err
	}
	if f.tc.Family == "clang" {
		f.lookUp(prefixed(f.tc.Target, helpers))
		if err := f.configs(); err != nil {
			return f, err
		}
	}
	f.dirs = f.ownDirs("programs")
	f.lacks(f.names...)
	if f.tc.Family == "gcc" {
		f.lacks(gccPrograms...)
		if err := f.gccParts(); err != nil {
			return f, err
		}
	}
	if err := f.plugins(); err != nil {
		return f, err
	}
	for _, name := range helpers {
		if err := f.helper(name); err != nil {
			return f, err
		}
	}
	f.tc.Script = f.unfit()
	f.defaults()
	mode := ""
	if f.tc.Family == "clang" {
		mode = driverMode(filepath.Base(path))
		f.installations()
	}
	f.tc.ID = identity(f.tc.Family, mode, f.tc.Target, f.parts)
	f.lists()
	return f, nil
}

// launcher returns the name of a known program that stands in front of a compiler under that compiler's name, or "".
// Through it a driver describes the compiler, but what runs is another program, and on a daemon it might start
// the farm again.
func launcher(base string) string {
	base, _ = cutVersion(base)
	if slices.Contains([]string{"ccache", "distcc", "rdistcc", "icecc", "sccache", "buildcache", "colorgcc"}, base) {
		return base
	}
	return ""
}

// describe asks the driver what it is: "-v" alone makes gcc and clang print family, version, target and the
// configuration that they have read.
func (f *finding) describe() error {
	out, err := f.run(f.tc.Exec, "-v")
	if err != nil {
		return fmt.Errorf("identify compiler: %s -v: %w", f.tc.Exec, err)
	}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if v, ok := strings.CutPrefix(line, "Target: "); ok {
			f.tc.Target = v
		} else if v, ok := strings.CutPrefix(line, "gcc version "); ok {
			f.tc.Family, f.tc.Version = "gcc", firstWord(v)
		} else if i := strings.Index(line, "clang version "); i >= 0 && f.tc.Family == "" {
			f.tc.Family, f.tc.Version = "clang", firstWord(line[i+len("clang version "):])
		} else if v, ok := strings.CutPrefix(line, "Reading specs from "); ok {
			err = errors.Join(err, f.file("specs", v))
		} else if v, ok := strings.CutPrefix(line, "Configuration file: "); ok {
			err = errors.Join(err, f.config(v))
		} else if v, ok := strings.CutPrefix(line, "Found candidate GCC installation: "); ok {
			f.candidates = append(f.candidates, v)
		} else if dir, ok := configDir(line); ok {
			f.configDirs = append(f.configDirs, dir)
		}
	}
	if err != nil {
		return err
	}
	if f.tc.Family == "clang" && (strings.Contains(f.tc.Target, "windows-msvc") || strings.Contains(f.tc.Target, "uefi")) {
		// It looks for headers in ways that only a command's own words tell of.
		return fmt.Errorf("identify compiler: %s compiles for %s by itself: %w", f.tc.Exec, f.tc.Target, ErrUnknown)
	}
	major := f.tc.Version // Debian's for Windows say "12-win32"
	if i := strings.IndexAny(major, ".-"); i >= 0 {
		major = major[:i]
	}
	f.tc.Major, err = strconv.Atoi(major)
	if f.tc.Family == "" || f.tc.Target == "" || err != nil {
		return fmt.Errorf("identify compiler: %s -v names neither gcc nor clang with version and target: %w", f.tc.Exec, ErrUnknown)
	}
	return nil
}

// configDir reads the line with which a clang names a directory of configuration files.
func configDir(line string) (dir string, ok bool) {
	for _, whose := range [...]string{"System", "User"} {
		if dir, ok = strings.CutPrefix(line, whose+" configuration file directory: "); ok {
			return dir, filepath.IsAbs(dir)
		}
	}
	return "", false
}

// config adds a clang's configuration file. Its words are on no command line, so they must mean the same on every
// machine.
func (f *finding) config(path string) error {
	if err := f.file("config", path); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("identify compiler: %w", err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, w := range strings.Fields(line) {
			if !everywhere(w) {
				return fmt.Errorf("identify compiler: %s has %s, which may be something else on another machine: %w", path, w, ErrUnknown)
			}
		}
	}
	return nil
}

// everywhere reports whether w is a single-word option that refers neither to a file of this machine nor to its
// processor.
func everywhere(w string) bool {
	if strings.ContainsAny(w, `\'"@<`) || strings.HasSuffix(w, "native") || strings.Contains(w, "plugin") || strings.Contains(w, "/") {
		return false
	}
	for _, p := range []string{"--gcc-triple=", "--target=", "-D", "-U", "-O", "-W", "-std=", "-m", "-f", "-l", "-pipe", "-pthread",
		"--rtlib=", "-rtlib=", "--unwindlib=", "-unwindlib=", "-stdlib=", "-Q", "-pie", "-no-pie", "-rdynamic", "--start-no-unused-arguments", "--end-no-unused-arguments"} {
		if strings.HasPrefix(w, p) {
			// An argument would follow; or it is another way to look for headers than commands tell of.
			return w != "-D" && w != "-U" && w != "-mllvm" && w != "-fms-compatibility"
		}
	}
	return false
}

func firstWord(s string) string {
	s, _, _ = strings.Cut(s, " ")
	return s
}

// gccPrograms lists the compilers proper that a gcc driver runs.
var gccPrograms = []string{"cc1", "cc1plus", "cc1obj", "cc1objplus"}

// gccParts finds what a gcc driver runs for a compile.
func (f *finding) gccParts() error {
	found := false
	for _, name := range gccPrograms {
		path, err := f.progName(name)
		if err != nil {
			return err
		}
		if !filepath.IsAbs(path) {
			continue // this language is not installed
		}
		if err := f.program(name, path); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return fmt.Errorf("identify compiler: %s has neither cc1 nor cc1plus: %w", f.tc.Exec, ErrUnknown)
	}
	// A specs file that appears there, or elsewhere, later changes what the driver does.
	lib, err := f.ask("-print-libgcc-file-name")
	if err != nil {
		return err
	}
	if filepath.IsAbs(lib) {
		if err := f.file("specs", filepath.Join(filepath.Dir(lib), "specs")); err != nil {
			return err
		}
	}
	f.lacksSpecs()
	if err := f.deviceSpecs(); err != nil {
		return err
	}
	// It may be in another place than cc1.
	if dir, err := f.ask("-print-file-name=plugin"); err == nil && filepath.IsAbs(dir) {
		f.tc.PluginDir = filepath.Clean(dir)
	}
	// The compiler of a link's partitions is not among what has to be equal, which hosts of the version before would not have: it is built
	// and packaged with the driver, whose bytes name the build.
	if lto, err := f.progName("lto1"); err == nil && filepath.IsAbs(lto) {
		f.show(lto)
	}
	// The driver passes its location to its children.
	wrapper, err := f.progName("lto-wrapper")
	if err == nil && filepath.IsAbs(wrapper) {
		f.show(wrapper)
		// Without -c or -S it insists on this one too, though it leaves loading it to the linker.
		f.show(filepath.Join(filepath.Dir(wrapper), "liblto_plugin.so"))
	}
	return err
}

// deviceSpecs adds the files that the driver reads for the controllers that commands name (-mmcu=).
func (f *finding) deviceSpecs() error {
	dir, err := f.ask("-print-file-name=device-specs")
	if err != nil || !filepath.IsAbs(dir) {
		return nil // it has none
	}
	dir = filepath.Clean(dir)
	f.watch(dir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("identify compiler: %w", err)
	}
	for _, d := range files {
		if d.IsDir() {
			continue
		}
		if err := f.file("device:"+d.Name(), filepath.Join(dir, d.Name())); err != nil {
			return err
		}
	}
	return nil
}

// defaults adds what the driver makes of a command without options: how it was configured, what it found
// out about the system, and where its headers are. A host where those are elsewhere would not find the
// client's. What clang makes of -ffast-math depends on a file of gcc's.
func (f *finding) defaults() {
	for _, lang := range []string{"c", "c++"} {
		p := part{role: "default:" + lang}
		out, err := f.run(f.tc.Exec, "-###", "-S", "-ffast-math", "-x", lang, "/dev/null", "-o", "-")
		if err == nil { // otherwise this language is not installed
			h := sha256.New()
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, " ") {
					h.Write([]byte(line))
				}
			}
			h.Sum(p.sum[:0])
		}
		f.parts = append(f.parts, p)
	}
}

// file adds a file that may be absent.
func (f *finding) file(role, path string) error {
	sum, at, err := f.sums.of(path)
	f.stamps[path] = at
	if errors.Is(err, fs.ErrNotExist) {
		f.parts = append(f.parts, part{role: role, path: path})
		return nil
	}
	if err != nil {
		return fmt.Errorf("identify compiler: %w", err)
	}
	f.parts = append(f.parts, part{role: role, path: path, sum: sum})
	f.show(path)
	return nil
}
