package compile

import "strings"

// Family is a compiler's dialect of options.
type Family uint8

// Families.
const (
	GCC Family = iota
	Clang
)

// Driver describes a compiler as far as its command line depends on it.
type Driver struct {
	Family Family
	CXX    bool // treats .c as C++, as g++ does
	Tidy   bool // clang-tidy, which looks at a compile of clang's
	Stabs  bool // a gcc whose debug information for assembly may be stabs

	program  string // a gcc's file
	above    string // the directory above that of the program, for a gcc usually that which it was built for, or ""
	targeted bool   // the name may choose a clang's target
}

// DriverOf recognizes a compiler, or clang-tidy, by its names: argv0 as it was called, and real, the path with
// all links resolved. ok is false for what is neither gcc nor clang: such a command runs here.
//
// gcc has one binary for each language and acts by the binary's name; clang has one binary for
// all and acts by the name that it was called.
func DriverOf(argv0, real string) (d Driver, ok bool) {
	file, called := base(real), base(argv0)
	if strings.Contains(file, "clang") {
		switch name := trimVersion(file); {
		case name == TidyFamily:
			return Driver{Family: Clang, Tidy: true}, true
		case name != "clang" && name != "clang++" && !strings.HasSuffix(name, "-clang") && !strings.HasSuffix(name, "-clang++"):
			return Driver{}, false // clang-format, clang-cl, clang-cpp and the like
		}
		switch clangMode(called) {
		case "":
			return Driver{Family: Clang, above: above(real), targeted: strings.Contains(called, "-clang")}, true
		case "++":
			return Driver{Family: Clang, CXX: true, above: above(real), targeted: strings.Contains(called, "-clang")}, true
		}
		return Driver{}, false
	}
	d = Driver{Family: GCC, Stabs: strings.HasPrefix(file, "avr-"), program: real, above: above(real)}
	switch name := trimThreads(file); {
	case name == "c89-gcc" || name == "c99-gcc":
		return Driver{}, false // scripts; see Unwrap
	case name == "gcc" || name == "cc" || strings.HasSuffix(name, "-gcc") || strings.HasSuffix(name, "-cc"):
		return d, true
	case name == "g++" || name == "c++" || strings.HasSuffix(name, "-g++") || strings.HasSuffix(name, "-c++"):
		d.CXX = true
		return d, true
	}
	return Driver{}, false
}

// ActsAs reports whether d does the same as o with the same words, whatever the environment has.
func (d Driver) ActsAs(o Driver) bool {
	d.program, d.above, d.targeted = o.program, o.above, o.targeted
	return d == o
}

// above returns the directory above that of a program, or "".
func above(program string) string {
	dir, ok := strings.CutSuffix(program, "/bin/"+base(program))
	if !ok {
		return ""
	}
	return dir
}

// trimThreads removes the version from the end of a gcc's name, "gcc-12" or "gcc12", and the model of threads by which Debian tells
// its compilers for Windows apart: x86_64-w64-mingw32-gcc-12-win32.
func trimThreads(name string) string {
	name = trimVersion(name)
	for _, model := range [...]string{"-win32", "-posix", "-mcf"} {
		if rest, ok := strings.CutSuffix(name, model); ok {
			name = trimVersion(rest)
		}
	}
	if bare := strings.TrimRight(name, "0123456789"); strings.HasSuffix(bare, "gcc") || strings.HasSuffix(bare, "g++") {
		return bare
	}
	return name
}

// clangMode returns the suffix of a name by which clang chooses how to act: "++", "cpp",
// "cl" and the like, or "" for a C compiler. It tries the name as it is, then without
// trailing digits, then without what follows the last dash.
func clangMode(name string) string {
	digits := strings.TrimRight(name, "0123456789.")
	for _, n := range []string{name, digits, digits[:max(strings.LastIndexByte(digits, '-'), 0)]} {
		for _, mode := range []string{"++", "cpp", "cl", "flang", "dxc"} {
			if strings.HasSuffix(n, mode) {
				return mode
			}
		}
		if strings.HasSuffix(n, "clang") || strings.HasSuffix(n, "cc") {
			return ""
		}
	}
	return ""
}

// trimVersion removes "-12" or "-12.2" from the end of a program's name.
func trimVersion(name string) string {
	i := len(name)
	for i > 0 && (name[i-1] == '.' || '0' <= name[i-1] && name[i-1] <= '9') {
		i--
	}
	if i < len(name) && i > 0 && name[i-1] == '-' {
		return name[:i-1]
	}
	return name
}

// base returns the part of a path after its last slash.
func base(path string) string {
	return path[strings.LastIndexByte(path, '/')+1:]
}
