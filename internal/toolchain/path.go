package toolchain

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// searchPath is where a driver finds programs that are not beside it, such as the assembler, unless told
// otherwise. The daemon runs compilers with the same one.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// Env is the part of an environment that decides which programs and libraries a driver finds.
type Env struct {
	Path      string // PATH; empty: the daemon's
	Cwd       string // base of relative directories in Path; empty: those do not count
	Libraries string // LD_LIBRARY_PATH

	// Plugins are files that a gcc loads (-fplugin=), absolute. With them it is another toolchain, of which they are parts.
	Plugins []string
}

// helpers lists the programs that a driver runs beside the compiler proper: the assembler, which gcc always
// runs and clang with -fno-integrated-as; and the one that extracts the debug information from its object
// for -gsplit-dwarf.
var helpers = []string{"as", "objcopy"}

// reduced returns e with only those directories of PATH that hold the first program of one of the names:
// users often change the others.
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

// lookUp reduces PATH to what matters for programs with these names.
func (f *finding) lookUp(names []string) {
	f.names, f.counts = names, f.whole.reduced(names)
	f.env[0] = "PATH=" + f.counts.Path
}

// prefixed returns names preceded by each of them with a target prefix, which clang prefers.
func prefixed(target string, names []string) []string {
	list := make([]string, 0, 2*len(names))
	for _, name := range names {
		list = append(list, target+"-"+name)
	}
	return append(list, names...)
}

// ownDirs returns the directories in which the driver looks for "programs" before it looks on PATH, or for "libraries", or nil
// if it does not say.
func (f *finding) ownDirs(what string) (dirs []string) {
	out, err := f.run(f.tc.Exec, "-print-search-dirs")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(out) {
		list, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), what+": =")
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

// lacks watches the places in the driver's own directories where programs with these names could appear.
func (f *finding) lacks(names ...string) {
	for _, name := range names {
		for _, dir := range f.dirs {
			if runnable(f.lack(dir, name)) {
				break // later places are not searched
			}
		}
	}
}

// lack watches the place of a file, and returns what it watches: the topmost missing directory covers everything below it.
func (f *finding) lack(dir, name string) string {
	path := dir + "/" + name
	for above := dir; above != "" && stampOf(above).Absent; above = above[:strings.LastIndexByte(above, '/')] {
		path = above
	}
	f.watch(path)
	return path
}

// lacksSpecs watches the places where gcc looks for a specs file: where it looks for libraries, those of its version
// and target among them, and in the directory of the target. In that of the version may be some for controllers.
func (f *finding) lacksSpecs() {
	for _, dir := range f.ownDirs("libraries") {
		f.lack(dir, "specs")
		if above := filepath.Dir(dir); filepath.Base(above) == f.tc.Target {
			f.lack(above, "specs")
			f.lack(dir, "device-specs")
		}
	}
}

// configs adds the configuration files that a clang may read when a command names none, and watches the places for others: beside
// its program and in the directories that it names, under names made of the target, what it is called and what it compiles. Those
// for targets that commands may choose are parts of it, too.
func (f *finding) configs() error {
	real, err := filepath.EvalSymlinks(f.tc.Exec)
	if err != nil {
		return nil // it has vanished, which its own stamp shows
	}
	called, _ := cutVersion(filepath.Base(f.tc.Exec))
	names := []string{"clang", "clang++", called, f.tc.Target, f.tc.Target + "-clang", f.tc.Target + "-clang++"}
	if i := strings.LastIndexByte(called, '-'); i > 0 {
		names = append(names, called[:i])
	}
	for _, dir := range append([]string{filepath.Dir(real)}, f.configDirs...) {
		f.watch(dir)
		for _, name := range names {
			f.lack(dir, name+".cfg")
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.cfg")) // the pattern is well formed
		for _, file := range files {
			if slices.Contains(names, strings.TrimSuffix(filepath.Base(file), ".cfg")) {
				continue // if it reads that, it has said so
			}
			if err := f.file("config for "+filepath.Base(file), file); err != nil {
				return err
			}
		}
	}
	return nil
}

// helper adds a program that the driver runs beside the compiler proper.
func (f *finding) helper(name string) error {
	path, err := f.progName(name)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		// Not beside the driver: it is looked up like a command. The places before it are watched too.
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
