package toolchain

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// shownDirs lists directories that a compiler's C library reads: message catalogues, locales and character
// conversions. The text of messages and the value of some literals depend on them.
var shownDirs = []string{
	"/usr/share/locale", "/usr/share/locale-langpack", "/usr/lib/locale",
	"/usr/lib/gconv", "/usr/lib64/gconv",
}

// show records a file that the compiler looks at when it runs.
func (f *finding) show(path string) {
	if f.shown == nil {
		f.shown = make(map[string]bool)
	}
	f.shown[plainName(path)] = true
}

// watch makes a change of a file or directory invalidate the finding.
func (f *finding) watch(path string) { f.stamps[path] = stampOf(path) }

// plainName returns a name of the same file without "..": a driver reaches its parts through directories that hold
// nothing else for it.
func plainName(path string) string {
	clean := filepath.Clean(path)
	if !strings.Contains(path, "/../") || stampOf(clean) == stampOf(path) {
		return clean
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return clean
}

// lists fills in what the toolchain needs to be shown, sorted, without what does not exist.
func (f *finding) lists() {
	f.show(f.tc.Exec)
	f.show("/etc/ld.so.cache")
	f.watch("/etc/ld.so.cache") // another one may lead to other libraries
	dirs := slices.Clone(shownDirs)
	// A compiler built by hand has its catalogues beside it.
	dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(f.tc.Path)), "share/locale"))
	if f.tc.Family == "clang" || f.tc.Family == Tidy {
		f.clangFiles()
	}
	for path := range f.shown {
		if _, err := os.Stat(path); err == nil {
			f.tc.Files = append(f.tc.Files, path)
		}
		// glibc keeps its conversions beside itself.
		if base := filepath.Base(path); strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "libc-") {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				dirs = append(dirs, filepath.Join(filepath.Dir(real), "gconv"))
			}
		}
	}
	slices.Sort(f.tc.Files)
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			f.tc.Dirs = append(f.tc.Dirs, dir)
		}
	}
}

// clangFiles adds what a clang driver examines to find out about the system: which one it is, and which
// gcc's libraries and headers there are. Of a gcc it only tests whether two files exist: with the second,
// -ffast-math implies -fdenormal-fp-math=preserve-sign.
func (f *finding) clangFiles() {
	for _, p := range []string{"/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version", "/etc/redhat-release", "/etc/SuSE-release"} {
		f.show(p)
	}
	for _, p := range f.markers() {
		f.show(p)
	}
	for _, dir := range f.candidates {
		for _, name := range gccMarkers {
			f.show(filepath.Join(dir, name))
		}
	}
	for _, p := range f.windows {
		f.show(p)
	}
}

// gccMarkers lists the files that clang looks for in an installation of gcc.
var gccMarkers = [...]string{"crtbegin.o", "crtfastmath.o"}

// gccRoots lists the directories in which clang looks for installations of gcc, beside the one of its own. The directories in them
// are named after targets.
var gccRoots = [...]string{"/usr/lib/gcc", "/usr/lib/gcc-cross", "/usr/lib64/gcc", "/usr/lib32/gcc", "/opt/rh/*/root/usr/lib/gcc"}

// markers returns the files in installations of gcc whose existence matters to clang, and watches the places for others.
func (f *finding) markers() (names []string) {
	for _, root := range append(gccRoots[:], filepath.Join(filepath.Dir(filepath.Dir(f.tc.Path)), "lib/gcc")) {
		f.watch(root)
		for _, below := range []string{"*", "*/*"} {
			dirs, _ := filepath.Glob(filepath.Join(root, below)) // the pattern is well formed
			for _, dir := range dirs {
				f.watch(dir)
			}
		}
		// TARGET/VERSION, and a variant below it for -m32 and the like.
		for _, below := range []string{"*/*", "*/*/*"} {
			for _, name := range gccMarkers {
				found, _ := filepath.Glob(filepath.Join(root, below, name))
				names = append(names, found...)
			}
		}
	}
	slices.Sort(names)
	return names
}

// forWindows returns the compilers on a search path by which clang finds headers for Windows, and watches the places for others. It does
// not run them.
func (f *finding) forWindows(path string) (programs []string) {
	found := make(map[string]bool)
	for dir := range strings.SplitSeq(path, ":") {
		missing := missing{Dir: dir, At: hint(dir)}
		for _, name := range driver.GCCsForWindows {
			p := dir + "/" + name
			if _, err := os.Lstat(p); err != nil {
				missing.Names = append(missing.Names, name)
				continue
			}
			f.watch(p)
			if !found[name] && runnable(p) {
				programs, found[name] = append(programs, p), true
			}
		}
		f.missing = append(f.missing, missing)
	}
	return programs
}

// installations adds what a clang finds for the targets that commands may choose: which gcc it takes for what, and so where it
// looks for headers, depends on the files that exist. Other versions of the gcc for its own target do not count, as defaults has
// the one that it takes; their variants do.
func (f *finding) installations() {
	f.windows = f.forWindows(searchPath)
	target := func(dir string) string { return filepath.Base(filepath.Dir(dir)) }
	h := sha256.New()
	for _, p := range append(f.markers(), f.windows...) {
		own := target(filepath.Dir(p))
		if !slices.ContainsFunc(f.candidates, func(dir string) bool { return target(dir) == own }) {
			h.Write([]byte(p + "\n"))
		}
	}
	p := part{role: "gcc for other targets"}
	h.Sum(p.sum[:0])
	f.parts = append(f.parts, p)
}
