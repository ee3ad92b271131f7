package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	roots := []string{"/usr/lib/gcc", "/usr/lib/gcc-cross", "/usr/lib64/gcc", "/usr/lib32/gcc",
		filepath.Join(filepath.Dir(filepath.Dir(f.tc.Path)), "lib/gcc"), "/opt/rh/*/root/usr/lib/gcc"}
	for _, root := range roots {
		f.watch(root)
		triples, _ := filepath.Glob(filepath.Join(root, "*"))
		for _, dir := range triples {
			f.watch(dir)
		}
		// TRIPLE/VERSION, and a variant below it for -m32 and the like.
		for _, below := range []string{"*/*", "*/*/*"} {
			for _, name := range gccMarkers {
				found, _ := filepath.Glob(filepath.Join(root, below, name)) // the pattern is well formed
				for _, p := range found {
					f.show(p)
				}
			}
		}
	}
	for _, dir := range f.candidates {
		for _, name := range gccMarkers {
			f.show(filepath.Join(dir, name))
		}
	}
}

// gccMarkers lists the files that clang looks for in an installation of gcc.
var gccMarkers = [...]string{"crtbegin.o", "crtfastmath.o"}
