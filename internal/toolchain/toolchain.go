// Package toolchain tells compilers apart by content: two machines have the same
// toolchain when every program and library that decides the object is equal.
//
// Those are the driver; for gcc cc1, cc1plus, cc1obj, cc1objplus and its specs files,
// for clang its configuration files; the assembler and objcopy; and the shared
// libraries that these load. What the driver does without options counts as well,
// including where it looks for headers. Links that lead to these files do not count, but
// clang's driver acts by the name it is called by, so clang and clang++ differ.
package toolchain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Toolchain is an identified compiler.
type Toolchain struct {
	ID      unit.ToolchainID
	Exec    string // absolute, as requested: the name to run it by
	Path    string // absolute, links resolved
	Family  string // "gcc", "clang" or "clang-tidy"
	Major   int
	Version string // full, say "12.2.0"
	Target  string // say "x86_64-linux-gnu"

	// Root is where the toolchain is laid out, if it has come from another machine (package parcel): a directory below which
	// all its names are found. Empty: it belongs to this machine.
	Root string

	// Plugins are the files that commands may have it load, by absolute names, sorted: parts of this toolchain, which is another
	// one without them. If the toolchain has come from another machine, they are among Files, and the list is empty.
	Plugins []string
	// PluginDir is where it looks for plugins without a directory, if there is such a directory.
	PluginDir string

	// Script is the first of its programs that is a script whose interpreter is not among Files, or "". Where a command sees no more
	// than the toolchain it cannot be started, and what such a script runs is not known: hosts do not offer it.
	Script string

	// Files and Dirs list all names on this machine that running the compiler needs to see,
	// absolute and sorted: programs, their libraries and loader, specs, message catalogues. Links
	// on the way to them belong to them. Headers are not included, nor what only a link needs.
	Files, Dirs []string
}

// Name returns its usual name, say "gcc 12.2.0".
func (t *Toolchain) Name() string {
	name := t.Family + " " + t.Version
	for _, p := range t.Plugins {
		name += " + " + strings.TrimSuffix(filepath.Base(p), ".so")
	}
	return name
}

// Loads reports whether a plugin that a command names is a part of the toolchain.
func (t *Toolchain) Loads(name string) bool {
	list := t.Plugins
	if t.Root != "" {
		list = t.Files
	}
	if filepath.IsAbs(name) {
		return strings.HasSuffix(name, ".so") && slices.Contains(list, name)
	}
	return slices.ContainsFunc(list, func(file string) bool { return strings.HasSuffix(file, "/plugin/"+name+".so") })
}

// Equal reports whether everything is equal, including the locations of the files.
func (t Toolchain) Equal(u Toolchain) bool {
	return t.ID == u.ID && t.Exec == u.Exec && t.Path == u.Path && t.Root == u.Root && slices.Equal(t.Plugins, u.Plugins) && slices.Equal(t.Files, u.Files) && slices.Equal(t.Dirs, u.Dirs)
}

// ErrUnknown means that a program is not a compiler of a known family, or that its parts cannot be determined: it is
// unknown what its objects depend on.
var ErrUnknown = errors.New("not a compiler that can be identified")

// fit returns an error if hosts cannot start the toolchain.
func (t *Toolchain) fit() error {
	if t.Script == "" {
		return nil
	}
	return fmt.Errorf("%s is a script, which may start anything: %w", t.Script, ErrUnknown)
}

// part is one file that decides the object. An absent file counts as well: a specs file that only one of two machines
// has makes them different.
type part struct {
	role string // "driver", "cc1", "as", "lib:libz.so.1", ...
	path string
	sum  [sha256.Size]byte // zero when the file is absent
}

// identity condenses everything that decides the object into an ID.
func identity(family, mode, target string, parts []part) unit.ToolchainID {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b part) int {
		if c := strings.Compare(a.role, b.role); c != 0 {
			return c
		}
		return slices.Compare(a.sum[:], b.sum[:])
	})
	parts = slices.CompactFunc(parts, func(a, b part) bool { return a.role == b.role && a.sum == b.sum })
	h := sha256.New()
	for _, s := range []string{"rdistcc toolchain 1", family, mode, target} {
		h.Write(append([]byte(s), 0))
	}
	for i := range parts {
		h.Write(append([]byte(parts[i].role), 0))
		h.Write(parts[i].sum[:])
	}
	var sum [sha256.Size]byte
	return unit.ToolchainID(h.Sum(sum[:0])[:16])
}

// driverMode returns how a clang driver acts when called by this name. It tries the suffix of the name as it is, then
// without trailing digits, then without what follows the last dash.
func driverMode(base string) string {
	digits := strings.TrimRight(base, "0123456789.")
	for _, n := range []string{base, digits, digits[:max(strings.LastIndexByte(digits, '-'), 0)]} {
		switch {
		case strings.HasSuffix(n, "++"):
			return "c++"
		case strings.HasSuffix(n, "cl"):
			return "cl"
		case strings.HasSuffix(n, "cpp"):
			return "cpp"
		case strings.HasSuffix(n, "clang"), strings.HasSuffix(n, "cc"):
			return "c"
		}
	}
	return "c"
}

// cutVersion splits "gcc-12" or "clang++-14.0" into name and version.
func cutVersion(base string) (name, version string) {
	i := strings.LastIndexByte(base, '-')
	if i <= 0 || i+1 == len(base) || strings.Trim(base[i+1:], "0123456789.") != "" {
		return base, ""
	}
	return base[:i], base[i+1:]
}

// compilerName reports whether a file with this name may be a compiler driver: gcc, g++, cc, c++, clang,
// clang++, clang-tidy, with a version after it or a target before it.
func compilerName(base string) bool {
	base, _ = cutVersion(base)
	for _, model := range [...]string{"-win32", "-posix", "-mcf"} { // of threads, by which Debian tells its compilers for Windows apart
		if rest, ok := strings.CutSuffix(base, model); ok {
			base, _ = cutVersion(rest)
		}
	}
	switch base {
	case "gcc", "g++", "cc", "c++", "clang", "clang++", Tidy:
		return true
	}
	i := strings.LastIndexByte(base, '-')
	if i < 0 || strings.IndexByte(base[:i], '-') < 0 && !slices.Contains([]string{"avr", "bpf", "pru", "msp430"}, base[:i]) {
		return false // any other single word before it is not a target: afl-gcc, c99-gcc
	}
	switch base[i+1:] {
	case "gcc", "g++", "cc", "c++", "clang", "clang++":
		return true
	}
	return false
}
