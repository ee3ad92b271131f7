package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// below holds what clang's driver looks at below the roots that a command names
// (compile.Plan.Roots). The driver asks whether certain directories and some files of gcc's
// exist, and decides by that where the compiler looks for headers, in which order, and
// under which names. Everything there that exists goes along with the job, so that the
// driver on the host decides the same: what does not exist here does not exist there either.
type below struct {
	said  string   // the driver's output with -v
	dirs  []string // directories that exist
	files []string // files that matter only by existing
}

// lookBelow finds out what there is below the roots. ok is false where that is uncertain.
func (f *flow) lookBelow() (b *below, ok bool) {
	roots := f.plan.Roots()
	for _, root := range roots {
		if !f.apart(root) {
			return nil, false
		}
	}
	b = &below{said: f.askSearch()}
	target, installations := driver.ParseInstallations(b.said)
	list := driver.ParseSearch(b.said)
	if list == nil || !plainTarget(target) || f.choosesTarget() && !f.ownTarget(target) {
		return nil, false
	}
	within := func(dir string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(dir, root) })
	}
	for _, dir := range append(list, driver.ParseTwice(b.said)...) {
		if within(dir) {
			b.dirs = append(b.dirs, dir)
		}
	}
	for _, root := range roots {
		b.libraries(strings.TrimRight(root, "/"))
		b.libraries(strings.TrimRight(root, "/") + "/usr")
	}
	for _, dir := range installations {
		switch {
		case !within(dir): // beside clang; hosts with this compiler have it as well
		case f.shown(sources.RealPath(dir)):
			return nil, false
		default:
			b.installation(dir, variants)
		}
	}
	return b, true
}

// plainTarget reports whether clang looks for a gcc for a target only in the ways that
// are handled here. That rules out targets with dozens of library variants (MIPS), and
// systems other than Linux.
func plainTarget(target string) bool {
	cpu, system, _ := strings.Cut(target, "-")
	if !strings.Contains(system, "linux") {
		return false
	}
	switch cpu {
	case "x86_64", "i386", "i486", "i586", "i686", "aarch64", "riscv64":
		return true
	}
	return strings.HasPrefix(cpu, "arm")
}

// choosesTarget reports whether words of the command may change the target.
func (f *flow) choosesTarget() bool {
	return slices.ContainsFunc(f.plan.Whole(), func(w string) bool {
		return strings.HasPrefix(w, "--target") || strings.HasPrefix(w, "-target") || strings.HasPrefix(w, "-m") &&
			!strings.HasPrefix(w, "-march=") && !strings.HasPrefix(w, "-mtune=") && !strings.HasPrefix(w, "-mcpu=")
	})
}

// ownTarget reports whether target is the compiler's default. For another target, a host may
// have a newer gcc beside its clang, and the clang there would use that.
func (f *flow) ownTarget(target string) bool {
	own, _ := driver.ParseInstallations(f.ask(command{file: f.cc.file, argv: []string{f.cc.argv[0], "-v"}}))
	maker := strings.NewReplacer("-pc-", "-", "-unknown-", "-") // clang treats these as equal here
	return maker.Replace(own) == maker.Replace(target)
}

// apart reports whether a root is certain to contain nothing of the system's own: hosts show
// their own copy of that.
func (f *flow) apart(root string) bool {
	var st syscall.Stat_t
	if root == "" || typed.Stat(root+"/etc/env.d/gcc", &st) == nil { // Gentoo says there which gcc it uses
		return false
	}
	for _, dir := range [...]string{"", "/lib", "/lib64", "/lib32", "/libx32", "/opt"} {
		for _, usr := range [...]string{"", "/usr"} {
			if real := sources.RealPath(root + usr + dir); real != "" && f.shown(real) {
				return false
			}
		}
	}
	first, _, _ := strings.Cut(strings.TrimLeft(typed.Absolute(root, f.slot.cwd), "/"), "/")
	return !sources.SystemLink("/" + first)
}

// shown reports whether hosts with this compiler show files of their own at or below the
// directory real, or in a directory that contains it.
func (f *flow) shown(real string) bool {
	own := dirOf(dirOf(f.rec.compiler)) + "/lib/gcc"
	for _, dir := range [...]string{"/usr/lib/gcc", "/usr/lib/gcc-cross", "/usr/lib64/gcc", "/usr/lib32/gcc", "/usr/libx32/gcc", "/opt/rh", own} {
		if dir == real || strings.HasPrefix(dir, strings.TrimRight(real, "/")+"/") || strings.HasPrefix(real, dir+"/") {
			return true
		}
	}
	return false
}

// dirOf returns the directory of a file with an absolute name.
func dirOf(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// variants is how many levels below a gcc's directory its variants for -m32 and the like lie.
const variants = 2

// installation adds the files that clang looks for in the directory of a gcc, and of its variants.
func (b *below) installation(dir string, deep int) {
	for _, name := range [...]string{"/crtbegin.o", "/crtfastmath.o"} {
		b.files = append(b.files, dir+name)
	}
	if deep == 0 {
		return
	}
	names, _ := compile.ListDir(dir)
	for _, name := range names {
		if name == "include" || name == "include-fixed" || name == "plugin" {
			continue
		}
		var st syscall.Stat_t
		if typed.Stat(dir+"/"+name, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			b.installation(dir+"/"+name, deep-1)
		}
	}
}

// libraries adds the library directories of a root. Their existence tells clang which kind
// of system this is.
func (b *below) libraries(root string) {
	for _, lib := range [...]string{"/lib", "/lib64", "/lib32", "/libx32"} {
		var st syscall.Stat_t
		if typed.Stat(root+lib, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			continue
		}
		b.dirs = append(b.dirs, root+lib)
		b.files = append(b.files, root+lib+"/crtfastmath.o")
		names, _ := compile.ListDir(root + lib)
		for _, name := range names {
			if dir := root + lib + "/" + name; strings.Contains(name, "-linux") && typed.Stat(dir, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
				b.dirs = append(b.dirs, dir)
				b.files = append(b.files, dir+"/crtfastmath.o")
			}
		}
	}
}
