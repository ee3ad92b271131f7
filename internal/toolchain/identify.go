package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// searchPath is where a driver finds what is not beside it, such as the
// assembler, if nothing else is said; the daemon runs compilers with the same one.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// Env has what of an environment decides which programs and libraries a driver
// finds.
type Env struct {
	Path      string // PATH; empty: the daemon's
	Cwd       string // what relative directories in Path lie below; empty: those do not count
	Libraries string // LD_LIBRARY_PATH
}

// helpers are the programs that a driver runs beside the compiler proper: the
// assembler, which gcc always runs and clang with -fno-integrated-as; and what
// takes the debug information out of its object for -gsplit-dwarf.
var helpers = []string{"as", "objcopy"}

// reduced leaves of a PATH the directories that count, which hold the first program of one
// of the names: users change the others often.
func (e Env) reduced(names []string) Env {
	if e.Path == "" {
		e.Path = searchPath
	}
	var buf [8]string
	missing := append(buf[:0], names...)
	var dirs []string
	for dir := range strings.SplitSeq(e.Path, ":") {
		if !filepath.IsAbs(dir) {
			if e.Cwd == "" {
				continue
			}
			dir = filepath.Join(e.Cwd, dir)
		}
		before := len(missing)
		for i := 0; i < len(missing); {
			if !runnable(dir + "/" + missing[i]) {
				i++
				continue
			}
			missing = append(missing[:i], missing[i+1:]...)
		}
		if len(missing) < before {
			dirs = append(dirs, dir)
		}
		if len(missing) == 0 {
			break
		}
	}
	e.Path, e.Cwd = strings.Join(dirs, ":"), ""
	return e
}

// runnable reports whether a look-up on PATH ends at a file.
func runnable(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}

// probeTime bounds one run of a driver that tells about itself.
const probeTime = 20 * time.Second

// finding is one identification under way.
type finding struct {
	ctx    context.Context
	limit  time.Duration // of one run of a program
	sums   *sums
	env    []string
	whole  Env      // as it was given
	names  []string // by which helpers are looked up on PATH
	counts Env      // what of whole counts for them
	tc     Toolchain
	parts  []part
	// files whose change makes the result void, the absent ones included
	stamps     map[string]stamp
	shown      map[string]bool // for Toolchain.Files
	candidates []string        // installations of gcc that a clang has found
	dirs       []string        // in which the driver looks for programs, before PATH
}

// newFinding makes one that runs programs in an environment.
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

// identify does the work of Identify, without a cache of results.
func identify(ctx context.Context, limit time.Duration, s *sums, home, path string, env Env) (*finding, error) {
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
	if err := f.describe(); err != nil {
		return f, err
	}
	if err := f.program("driver", f.tc.Path); err != nil {
		return f, err
	}
	if f.tc.Family == "clang" {
		f.lookUp(prefixed(f.tc.Target, helpers))
	}
	f.dirs = f.ownDirs()
	f.lacks(f.names...)
	if f.tc.Family == "gcc" {
		f.lacks(gccPrograms...)
		if err := f.gccParts(); err != nil {
			return f, err
		}
	}
	for _, name := range helpers {
		if err := f.helper(name); err != nil {
			return f, err
		}
	}
	f.defaults()
	mode := ""
	if f.tc.Family == "clang" {
		mode = driverMode(filepath.Base(path))
	}
	f.tc.ID = identity(f.tc.Family, mode, f.tc.Target, f.parts)
	f.lists()
	return f, nil
}

// lookUp leaves of PATH what counts for programs of these names.
func (f *finding) lookUp(names []string) {
	f.names, f.counts = names, f.whole.reduced(names)
	f.env[0] = "PATH=" + f.counts.Path
}

// launcher names the known programs that stand before a compiler under its name.
// Through them a driver tells about the compiler behind, but what runs is another
// program, and on a daemon it might start the farm again.
func launcher(base string) string {
	base, _ = cutVersion(base)
	if slices.Contains([]string{"ccache", "distcc", "rdistcc", "icecc", "sccache", "buildcache", "colorgcc"}, base) {
		return base
	}
	return ""
}

// describe asks the driver what it is: "-v" alone makes gcc and clang print
// family, version, target and the configuration that they have read.
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
		}
	}
	if err != nil {
		return err
	}
	major, _, _ := strings.Cut(f.tc.Version, ".")
	f.tc.Major, err = strconv.Atoi(major)
	if f.tc.Family == "" || f.tc.Target == "" || err != nil {
		return fmt.Errorf("identify compiler: %s -v names neither gcc nor clang with version and target: %w", f.tc.Exec, ErrUnknown)
	}
	return nil
}

// config adds a clang's configuration file. Its words stand on no command line, so
// they must be such as mean the same on every machine.
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

// everywhere knows options of one word that name no file of this machine, nor its
// processor.
func everywhere(w string) bool {
	if strings.ContainsAny(w, `\'"@<`) || strings.HasSuffix(w, "native") || strings.Contains(w, "plugin") || strings.Contains(w, "/") {
		return false
	}
	for _, p := range []string{"--gcc-triple=", "--target=", "-D", "-U", "-O", "-W", "-std=", "-m", "-f", "-l", "-pipe", "-pthread",
		"--rtlib=", "-rtlib=", "--unwindlib=", "-unwindlib=", "-stdlib=", "-Q", "-pie", "-no-pie", "-rdynamic", "--start-no-unused-arguments", "--end-no-unused-arguments"} {
		if strings.HasPrefix(w, p) {
			return w != "-D" && w != "-U" && w != "-mllvm" // an argument follows
		}
	}
	return false
}

func firstWord(s string) string {
	s, _, _ = strings.Cut(s, " ")
	return s
}

// gccPrograms are the compilers proper that the driver of a gcc runs.
var gccPrograms = []string{"cc1", "cc1plus", "cc1obj", "cc1objplus"}

// gccParts finds what the driver of a gcc runs for a compile.
func (f *finding) gccParts() error {
	found := false
	for _, name := range gccPrograms {
		path, err := f.progName(name)
		if err != nil {
			return err
		}
		if !filepath.IsAbs(path) {
			continue // no such language here
		}
		if err := f.program(name, path); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return fmt.Errorf("identify compiler: %s has neither cc1 nor cc1plus: %w", f.tc.Exec, ErrUnknown)
	}
	// A specs file that appears there later changes what the driver does.
	lib, err := f.ask("-print-libgcc-file-name")
	if err != nil {
		return err
	}
	if filepath.IsAbs(lib) {
		if err := f.file("specs", filepath.Join(filepath.Dir(lib), "specs")); err != nil {
			return err
		}
	}
	// The driver tells its children where this is.
	wrapper, err := f.progName("lto-wrapper")
	if err == nil && filepath.IsAbs(wrapper) {
		f.show(wrapper)
	}
	return err
}

// defaults adds what the driver makes of a command without options: how it was
// configured, what it found out about the system, and where its headers are. A
// host where those are elsewhere would not find the client's. What clang makes of
// -ffast-math depends on a file of gcc's.
func (f *finding) defaults() {
	for _, lang := range []string{"c", "c++"} {
		p := part{role: "default:" + lang}
		out, err := f.run(f.tc.Exec, "-###", "-S", "-ffast-math", "-x", lang, "/dev/null", "-o", "-")
		if err == nil { // else there is no such language here
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

// prefixed returns names and, before them, each with a target before it: clang prefers
// those.
func prefixed(target string, names []string) []string {
	list := make([]string, 0, 2*len(names))
	for _, name := range names {
		list = append(list, target+"-"+name)
	}
	return append(list, names...)
}

// ownDirs returns the directories in which the driver looks for programs before it looks
// on PATH, or nil if it does not tell.
func (f *finding) ownDirs() (dirs []string) {
	out, err := f.run(f.tc.Exec, "-print-search-dirs")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(out) {
		list, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "programs: =")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if dir = strings.TrimRight(dir, "/"); filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// lacks watches the places among the driver's own directories where programs of these names
// may come to be. One look at the first directory that is not there does for all below it.
func (f *finding) lacks(names ...string) {
	for _, name := range names {
		for _, dir := range f.dirs {
			path := dir + "/" + name
			for above := dir; above != "" && stampOf(above).Absent; above = above[:strings.LastIndexByte(above, '/')] {
				path = above
			}
			f.watch(path)
			if runnable(path) {
				break // what comes later is not looked at
			}
		}
	}
}

// helper adds a program that the driver runs beside the compiler proper.
func (f *finding) helper(name string) error {
	path, err := f.progName(name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		// Nothing beside the driver: it is looked up like a command. The places
		// before it are watched too.
		called := path
		path = ""
		for _, dir := range filepath.SplitList(f.counts.Path) {
			p := filepath.Join(dir, called)
			f.watch(p)
			if runnable(p) {
				path = p
				break
			}
		}
		if path == "" {
			f.parts = append(f.parts, part{role: name})
			return nil
		}
	}
	return f.program(name, path)
}

func (f *finding) progName(name string) (string, error) { return f.ask("-print-prog-name=" + name) }

// ask runs the driver with one option that makes it print one line.
func (f *finding) ask(option string) (string, error) {
	out, err := f.run(f.tc.Exec, option)
	if err != nil {
		return "", fmt.Errorf("identify compiler: %s %s: %w", f.tc.Exec, option, err)
	}
	line, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(line), nil
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

// program adds an executable and the shared libraries that it loads.
func (f *finding) program(role, path string) error {
	if err := f.file(role, path); err != nil {
		return err
	}
	interp, err := interpreter(path)
	if err != nil {
		return fmt.Errorf("identify compiler: %s: %w", path, err)
	}
	if interp == "" {
		return nil // a script, or linked statically
	}
	// The dynamic loader knows best where it finds them; glibc's and musl's
	// both take --list, and neither then runs the program.
	out, err := f.run(interp, "--list", path)
	if err != nil {
		return fmt.Errorf("identify compiler: libraries of %s: %w", path, err)
	}
	for line := range strings.Lines(out) {
		name, lib := parseList(line)
		if lib == "" {
			continue
		}
		if err := f.file("lib:"+filepath.Base(name), lib); err != nil {
			return err
		}
	}
	return nil
}

// parseList reads one line of a loader's list: "NAME => PATH (ADDRESS)" or
// "PATH (ADDRESS)". The kernel's own library has no path.
func parseList(line string) (name, path string) {
	line = strings.TrimSpace(line)
	if i := strings.LastIndex(line, " (0x"); i >= 0 {
		line = line[:i]
	}
	name, path, ok := strings.Cut(line, " => ")
	if !ok {
		path = name
	}
	if !filepath.IsAbs(path) {
		return name, ""
	}
	return name, path
}

// interpreter is the dynamic loader that an ELF program names, or empty.
func interpreter(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return "", nil
	}
	e, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(b, 0); err != nil {
			return "", err
		}
		return string(bytes.TrimRight(b, "\x00")), nil
	}
	return "", nil
}

// printMax is how much of what a driver tells about itself is read.
const printMax = 64 << 10

// run gives what a program prints on both its outputs. It prints into memory, not
// into a pipe: the end of a pipe comes late where something that the driver left
// behind holds it, or where the whole machine was paused.
func (f *finding) run(path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(f.ctx, f.limit, fmt.Errorf("no answer for %v", f.limit))
	defer cancel()
	fd, err := unix.MemfdCreate("driver", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("memory for what %s prints: %w", path, err)
	}
	out := os.NewFile(uintptr(fd), "driver")
	defer out.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = f.env
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	// In a group of its own, which goes with it: a script would leave what it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	printed, readErr := io.ReadAll(io.NewSectionReader(out, 0, printMax))
	if readErr != nil {
		return "", readErr
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, firstLine(printed))
	}
	return string(printed), nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}
