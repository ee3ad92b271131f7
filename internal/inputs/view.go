package inputs

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// view is what a compile finds where it sees its Set and its compiler alone.
type view struct {
	p       *Parts
	cwd     string
	path    map[string]struct{} // directories of programs
	own     []string            // directories in which a missing name counts, whatever is above them
	files   map[string]struct{}
	dirs    map[string]struct{}
	link    map[string]struct{}
	absent  map[string]struct{} // names that would be noticed
	noticed map[string][]*dir   // the directories of u by their real names
}

// newView returns the view of a command in the directory cwd that sees its compiler alone, which looks for headers in own.
func newView(cwd string, own []string, p *Parts) *view {
	v := &view{p: p, cwd: cwd, files: make(map[string]struct{}), dirs: map[string]struct{}{"/": {}}, link: make(map[string]struct{}),
		absent: make(map[string]struct{}), noticed: make(map[string][]*dir), path: make(map[string]struct{})}
	for _, name := range p.Files {
		v.file(name)
		if real := sources.RealPath(name); real != "" {
			v.file(real)
		}
	}
	for _, name := range slices.Concat(p.Dirs, own) {
		v.directory(name)
	}
	for _, name := range p.Programs {
		v.path[path.Clean(name)] = struct{}{}
		v.directory(name)
		if real := sources.RealPath(name); real != "" {
			v.path[real] = struct{}{}
		}
	}
	v.owns(sources.RealPath(cwd))
	return v
}

// owns records a directory of the project, in which missing names count. It ignores system directories, which hold parts
// of the compiler.
func (v *view) owns(dir string) {
	_, shared := v.dirs[dir]
	if !shared || !v.within(dir, systemDirs[:]) && dir != "/" {
		v.own = append(v.own, dir)
	}
}

// set adds a Set, and the names that are noticed if they come into being.
func (v *view) set(t *Table, q *Query, u *resolved) {
	for _, f := range u.set.Files {
		if !f.System {
			v.owns(path.Dir(f.Name))
		}
	}
	v.directory(q.Cwd)
	for _, f := range u.set.Files {
		v.file(f.Name)
	}
	for _, l := range u.set.Links {
		v.link[l.Name] = struct{}{}
		v.above(l.Name)
		v.above(l.Target)
	}
	for _, d := range u.set.Dirs {
		v.directory(d)
	}
	for id := range u.dirs.all {
		switch d := t.ids[id]; {
		case d.there:
			v.noticed[d.way.real] = append(v.noticed[d.way.real], d)
		default:
			if at, kind := walkTo(d.path, nil); kind == isAbsent {
				v.absent[at] = struct{}{}
			}
		}
	}
}

// file adds a file to the view, with what leads to it.
func (v *view) file(name string) {
	v.files[name] = struct{}{}
	v.above(name)
}

// directory adds a directory by any of its names.
func (v *view) directory(name string) {
	if real := sources.RealPath(name); real != "" {
		v.dirs[real] = struct{}{}
		v.above(real)
	}
}

// above adds the directories that lead to a name.
func (v *view) above(name string) {
	for name != "/" && name != "." {
		name = path.Dir(name)
		if _, known := v.dirs[name]; known {
			return
		}
		v.dirs[name] = struct{}{}
	}
}

// sees reports whether the view agrees with this machine on what name leads to: the same file or directory, or nothing, in
// which case its appearance would be noticed.
func (v *view) sees(name string) (at *Sought, ok bool) {
	if shared, ok := unit.Shared(name); !ok || machines(shared) {
		return nil, true // the process's own, or the kernel's
	} else if name = shared; name[0] != '/' {
		name = v.cwd + "/" + name
	}
	if slices.Contains(v.p.Tested, path.Clean(name)) || v.program(path.Clean(name)) {
		return nil, true
	}
	var strange, last string
	real, kind := walkTo(name, func(link string) {
		last = link
		if _, known := v.link[link]; !known && !sources.SystemLink(link) && !v.systems(link) && !v.program(link) {
			strange = link
		}
	})
	switch {
	case v.links(name, kind), machines(real), slices.Contains(localeFiles[:], real):
		return nil, true
	case kind == isAbsent:
		if _, known := v.absent[real]; known || v.systems(real) || v.notices(real) || v.program(real) || v.dangles(last, real) {
			return nil, true
		}
		return &Sought{Name: real}, false
	case strange != "":
		return &Sought{Name: strange, There: true}, false
	case kind == isDir: // in the place of a header, it is passed over
		if _, known := v.dirs[real]; known || v.systems(real) || v.notices(real) {
			return nil, true
		}
	default:
		if _, known := v.files[real]; known || v.within(real, v.p.Dirs) || v.systems(real) && (slices.Contains(linkers[:], path.Base(real)) || library(path.Base(real))) {
			return nil, true
		}
	}
	return &Sought{Name: real, There: true}, false
}

// notices reports whether a Resolve would notice that a name, whose directory exists, has come into being.
func (v *view) notices(name string) bool {
	in, base := path.Split(name)
	for _, d := range v.noticed[strings.TrimSuffix(in, "/")] {
		if _, asked := d.names[base]; asked {
			return true
		}
	}
	return false
}

// dangles reports whether a link leads nowhere for want of a name, and a Resolve would notice that it leads somewhere.
func (v *view) dangles(link, name string) bool {
	if link == "" || !v.notices(link) {
		return false
	}
	at, kind := walkTo(link, nil)
	return kind == isAbsent && at == name
}

// links reports whether a name, as spelt, matters only to a link or to program start: gcc probes library directories, and
// the loader looks for a program's libraries, which belong to the compiler.
func (v *view) links(name string, k kind) bool {
	if dir, is := strings.CutSuffix(name, "/."); is {
		return !strings.Contains(dir, "/include")
	}
	for _, d := range v.p.Libraries {
		if rest, is := strings.CutPrefix(name, strings.TrimSuffix(d, "/")); is && d != "" && (rest == "" || rest[0] == '/') {
			base := path.Base(rest)
			return rest == "" || k == isAbsent && base == "specs" || strings.Contains(base, ".so") || loaderDir(rest)
		}
	}
	return false
}

// loaderDir reports whether a name below a directory of libraries is a directory for processors, in which the loader looks first.
func loaderDir(name string) bool {
	for c := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
		if !strings.HasPrefix(c, "x86") && !strings.HasPrefix(c, "aarch64") && !slices.Contains([]string{"glibc-hwcaps", "tls", "haswell", "avx512_1", "atomics"}, c) {
			return false
		}
	}
	return true
}

// linkers are programs of compilers that only a link runs.
var linkers = [...]string{"collect2", "lto-wrapper", "lto1", "ld", "liblto_plugin.so"}

// library reports whether a file is a shared library by its name. Clang 22 looks for that of the C++ library, beside which it says where
// the library's modules are.
func library(base string) bool {
	before, _, is := strings.Cut(base, ".so")
	return is && strings.HasPrefix(before, "lib")
}

// program reports whether a name is that of a program that a compiler may start, or by which it looks for itself. Whatever
// is there, even a link of rdistcc's, belongs to the compiler's identity.
func (v *view) program(name string) bool {
	_, is := v.path[path.Dir(name)]
	return is && (!strings.Contains(path.Base(name), ".") || !v.within(name, v.own))
}

// systems reports whether a name belongs to the system or to a compiler, whose identity says what is there.
func (v *view) systems(name string) bool {
	return (v.within(name, systemDirs[:]) || v.within(name, v.p.Prefix)) && !v.within(name, v.own)
}

func (v *view) within(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return below(name, d) })
}

// machines reports whether a name is the kernel's, of devices or of processes.
func machines(name string) bool {
	return below(name, "/proc") || below(name, "/dev") || below(name, "/sys")
}

// localeFiles are of the C library, whose other files for locales belong to a compiler.
var localeFiles = [...]string{"/etc/locale.alias"}

// systemDirs are where distributions install packages.
var systemDirs = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/Program Files"}

// walkTo follows an absolute name as the kernel does. It returns the name that it leads to, without links, or what is missing on
// the way, and what is there. visit, if not nil, is called with each link on the way.
func walkTo(name string, visit func(link string)) (at string, k kind) {
	k = isDir
	rest := name
	for hops := 0; rest != ""; {
		var c string
		c, rest, _ = strings.Cut(rest, "/")
		switch c {
		case "", ".":
			continue
		case "..":
			at = at[:max(0, strings.LastIndexByte(at, '/'))]
			continue
		}
		var st unix.Stat_t
		next := at + "/" + c
		if k != isDir { // there is nothing below a file, until it becomes a directory
			return at, isAbsent
		}
		if err := lstat(next, &st); err != nil {
			if absent(err) {
				return next, isAbsent
			}
			return next, isOther
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			buf := make([]byte, unix.PathMax)
			n, err := unix.Readlink(next, buf)
			if hops++; err != nil || n <= 0 || hops > maxLinks {
				return next, isOther
			}
			if visit != nil {
				visit(next)
			}
			if rest = string(buf[:n]) + "/" + rest; buf[0] == '/' {
				at = ""
			}
		case unix.S_IFDIR:
			at = next
		case unix.S_IFREG:
			at, k = next, isFile
		default:
			at, k = next, isOther
		}
	}
	if at == "" {
		at = "/"
	}
	return at, k
}
