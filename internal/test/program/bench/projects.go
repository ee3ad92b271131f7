package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// project is real code from a Debian source package or a Go module, and how to build it.
type project struct {
	name    string
	source  string                          // the source package; "": module
	module  string                          // a Go module that carries the sources: path@version
	needs   []string                        // programs
	prepare func(cc, flags string) []string // shell commands before the measured one, with the compiler under test; nil: none
	build   func(cc, flags string) []string // words of the measured command
}

// The flags of a build: those of the project itself, or one of these.
const (
	asItIs    = "as it is"
	withoutG  = "without -g"
	withG     = "with -g"
	buildJobs = "-j4"
)

var projects = []project{
	{
		name: "lua", source: "lua5.4",
		build: func(cc, _ string) []string {
			return []string{"make", buildJobs, "-C", "src", "linux", "CC=" + cc + " -std=gnu99"}
		},
	},
	{
		name: "redis", source: "redis",
		build: func(cc, flags string) []string {
			argv := []string{"make", buildJobs, "MALLOC=libc", "USE_SYSTEMD=no", "CC=" + cc}
			if flags == withoutG {
				argv = append(argv, "DEBUG=", "DEBUG_FLAGS=")
			}
			return argv
		},
	},
	{
		// Not the amalgamation: 100 objects instead of one.
		name: "sqlite3", source: "sqlite3", needs: []string{"tclsh"},
		prepare: func(cc, flags string) []string {
			cflags := "-g -O2"
			if flags == withoutG {
				cflags = "-O2"
			}
			return []string{
				fmt.Sprintf("./configure -q --disable-amalgamation --disable-tcl --disable-readline --disable-editline --disable-shared CC='%s' CFLAGS='%s'", cc, cflags),
				"make sqlite3.h keywordhash.h parse.h opcodes.h fts5.c", // programs of its own, built and run here
			}
		},
		build: func(string, string) []string { return []string{"make", buildJobs, "libsqlite3.la"} },
	},
}

// heavy lists projects for which headers are most of what a compile reads; P16 builds them.
var heavy = []project{
	{
		name: "flatbuffers", module: "github.com/google/flatbuffers@v25.12.19+incompatible", // the demo's, 38 units of C++
		prepare: func(string, string) []string {
			return []string{`printf 'all: $(patsubst %%,%%.o,$(wildcard src/*.cpp grpc/src/compiler/*.cc include/codegen/*.cc))\n%%.cc.o: %%.cc\n\t$(COMPILE)\n%%.cpp.o: %%.cpp\n\t$(COMPILE)\nCOMPILE = $(CXX) -std=c++17 -Iinclude -Igrpc -Isrc -c -o $@ $<\n' >Makefile`}
		},
		build: func(cc, _ string) []string { return []string{"make", buildJobs, "CXX=" + gxx(cc)} },
	},
	{
		name: "git", source: "git",
		build: func(cc, _ string) []string {
			argv := []string{"make", buildJobs, "CC=" + cc, "CFLAGS=-O0"}
			for _, without := range []string{"OPENSSL", "CURL", "EXPAT", "GETTEXT", "TCLTK", "PERL", "PYTHON"} {
				argv = append(argv, "NO_"+without+"=1")
			}
			return argv
		},
	},
}

// gxx returns the C++ compiler that belongs to cc, a command whose last word is gcc.
func gxx(cc string) string { return strings.TrimSuffix(cc, "gcc") + "g++" }

// ready returns why the project cannot be built here, or nil.
func (p project) ready(b *bench) error {
	for _, t := range append([]string{"make", "tar", "strip"}, p.needs...) {
		if _, err := exec.LookPath(t); err != nil {
			return fmt.Errorf("%s: %s is not installed (make deps)", p.name, t)
		}
	}
	if p.module != "" {
		_, err := p.moduleDir(b)
		return err
	}
	_, err := b.sources.Find(b.ctx, p.source)
	return err
}

// moduleDir makes the go command fetch the module, and returns its directory.
func (p project) moduleDir(b *bench) (string, error) {
	out, err := exec.CommandContext(b.ctx, "go", "mod", "download", "-json", p.module).Output()
	var m struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &m); err != nil || jerr != nil || m.Dir == "" {
		return "", fmt.Errorf("%s: go mod download %s: %v %s", p.name, p.module, err, m.Error)
	}
	return m.Dir, nil
}

// copyTo copies the sources to dir, which must not exist yet.
func (p project) copyTo(b *bench, dir string) error {
	if p.module == "" {
		return b.sources.Unpack(b.ctx, p.source, dir)
	}
	from, err := p.moduleDir(b)
	if err != nil {
		return err
	}
	for _, argv := range [][]string{{"cp", "-r", from, dir}, {"chmod", "-R", "u+w", dir}} {
		if out, err := exec.CommandContext(b.ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, lastLines(out, 1))
		}
	}
	return nil
}

// unpack recreates dir with the project in it, ready to be built by cc.
func (p project) unpack(b *bench, dir, cc, flags string, env []string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := p.copyTo(b, dir); err != nil {
		return err
	}
	if p.prepare == nil {
		return nil
	}
	for _, line := range p.prepare(cc, flags) {
		cmd := exec.CommandContext(b.ctx, "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s: %w: %s", p.name, line, err, lastLines(out, 3))
		}
	}
	return nil
}

// objects returns the digest of each object below dir, by its path; stripped: of the object without debug
// information.
func (b *bench) objects(dir string, stripped bool) (map[string][sha256.Size]byte, error) {
	all := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".o" {
			return err
		}
		file := path
		if stripped {
			file = filepath.Join(b.tmp, "stripped.o")
			if out, err := exec.CommandContext(b.ctx, "strip", "-g", "-o", file, path).CombinedOutput(); err != nil {
				return fmt.Errorf("strip %s: %w: %s", path, err, lastLines(out, 1))
			}
		}
		content, err := os.ReadFile(file)
		all[path] = sha256.Sum256(content)
		return err
	})
	return all, err
}

// same returns how many entries of a are in b as well.
func same(a, b map[string][sha256.Size]byte) int {
	n := 0
	for path, sum := range a {
		if b[path] == sum {
			n++
		}
	}
	return n
}
