package recipes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/rdistcc/rdistcc/internal/modules"
)

// maxModules bounds a ModuleCache. A machine has few clangs.
const maxModules = 64

// ModuleCache remembers of which clangs the compiled modules are read here as they are meant. Its zero value is ready for concurrent use.
type ModuleCache struct {
	read memo[bool]
}

// Reads reports whether modules that the clang at path, identified by id, compiles say here what they were made of. It is asked to
// compile some of which that is known, which takes four short compiles. So that does not depend on its version.
func (c *ModuleCache) Reads(ctx context.Context, id, path string, env []string) bool {
	return c.read.get(key(id, path, nil, nil), maxModules, func() bool {
		if isScript(path) {
			return false
		}
		dir, err := os.MkdirTemp("", "rdistcc-modules-")
		if err != nil {
			return false
		}
		defer os.RemoveAll(dir)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return false
		}
		p := prover{ctx: ctx, path: path, dir: dir, env: env}
		return p.proves()
	})
}

// prover has a compiler make modules in a directory.
type prover struct {
	ctx       context.Context
	path, dir string
	env       []string
}

// proves reports whether each module that the compiler makes says what it was made of.
func (p *prover) proves() bool {
	for name, text := range map[string]string{
		"t.h":    "inline int t() { return 1; }\n",
		"u.h":    "inline int u() { return 2; }\n",
		"a.cppm": "module;\n#include \"t.h\"\nexport module a:p;\nexport int f() { return t(); }\n",
		"b.cppm": "export module a;\nexport import :p;\nexport int g() { return f(); }\n",
		"c.cppm": "export module c;\nimport \"u.h\";\nexport int h() { return u(); }\n",
	} {
		if os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600) != nil {
			return false
		}
	}
	module := []string{"-x", "c++-module", "--precompile"}
	part, partDirs, ok := p.make("a.pcm", append(module, "a.cppm")...)
	if !ok || part.Header != "" || !p.is(part.Main, "a.cppm") || !p.are(part.Files, "a.cppm", "t.h") || len(part.Imports) > 0 {
		return false
	}
	// Clang 18 and later do not say in which file a module with a name is.
	whole, wholeDirs, ok := p.make("b.pcm", append(module, "-I.", "-fmodule-file=a:p=a.pcm", "b.cppm")...)
	if !ok || whole.Header != "" || !p.is(whole.Main, "b.cppm") || !p.are(whole.Files, "b.cppm") || len(whole.Imports) > 0 && !p.are(whole.Imports, "a.pcm") ||
		wholeDirs != partDirs+1 {
		return false
	}
	unit, unitDirs, ok := p.make("u.pcm", "-fmodule-header=user", "-I.", "-Inone", "u.h")
	if !ok || unit.Header != "./u.h" || !p.is(unit.Main, "u.h") || !p.are(unit.Files, "u.h") || len(unit.Imports) > 0 || unitDirs != partDirs+2 {
		return false
	}
	of, _, ok := p.make("c.pcm", append(module, "-w", "-fmodule-file=u.pcm", "c.cppm")...)
	return ok && of.Header == "" && p.are(of.Files, "c.cppm") && p.are(of.Imports, "u.pcm")
}

// make compiles a module, and returns what it says of itself, and how many directories for headers it records.
func (p *prover) make(name string, words ...string) (c modules.Compiled, dirs int, ok bool) {
	ctx, cancel := context.WithTimeout(p.ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, append([]string{"-std=c++20", "-o", name}, words...)...)
	cmd.Env, cmd.Dir = p.env, p.dir
	if cmd.Run() != nil {
		return c, 0, false
	}
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return c, 0, false
	}
	c, ok = modules.Clang(func(part []byte, off int64) bool { return copy(part, b[off:]) == len(part) }, int64(len(b)))
	dirs, _, counted := modules.Directories(b)
	return c, dirs, ok && counted
}

// is reports whether a name is that of a file in the directory.
func (p *prover) is(name, base string) bool { return name == filepath.Join(p.dir, base) }

// are reports whether names are those of files in the directory, in any order.
func (p *prover) are(names []string, bases ...string) bool {
	return len(names) == len(bases) && !slices.ContainsFunc(bases, func(base string) bool { return !slices.Contains(names, filepath.Join(p.dir, base)) })
}
