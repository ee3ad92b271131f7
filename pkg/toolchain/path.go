package toolchain

import (
	"path/filepath"
	"slices"
	"strings"

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

// lookUp leaves of PATH what counts for programs of these names.
func (f *finding) lookUp(names []string) {
	f.names, f.counts = names, f.whole.reduced(names)
	f.env[0] = "PATH=" + f.counts.Path
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
