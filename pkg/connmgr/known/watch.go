package known

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/lookups"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known/watched"
)

// A job's Set is what a search finds that is like the compiler's, as far as compilers are known. So that it need not be believed, the
// compiler is watched now and then: it lists what a command reads, here, and every name that it looks up while it does so is held
// against what the Set has, and against the names whose appearance would be noticed. A job waits for that before its Set is
// used for anything, a look for a kept result included.

// Sought is why a compile's inputs are not known if its compiler looks up names of which this package does not think. No list of the
// compiler's would have all that matters: it does not name what __has_include asks for.
const Sought = "sought"

// watchLimit bounds a watch. What takes longer has seen nothing.
const watchLimit = 2 * time.Minute

// watches is what a Table knows of them.
type watches struct {
	watched.Table
	turns chan struct{} // a compiler runs for each of them
	blind atomic.Bool   // it was said that a compiler cannot be watched
}

// unseen records that a compiler cannot be watched.
func (w *watches) unseen(log *slog.Logger, err error) {
	if !w.blind.Swap(true) {
		log.Info("compilers cannot be watched: one that looks for headers in a way of its own would go unnoticed", "err", err)
	}
}

// mostWatches is how many compilers are watched at a time.
const mostWatches = 2

// KeepWatched makes t keep in a file what it has seen of compilers, and know what an earlier manager of the same version of the program
// has seen. It is called before anything else.
func (t *Table) KeepWatched(file, version string) { t.watches.Keep(file, version) }

// SaveWatched writes that file, if there is anything new to write.
func (t *Table) SaveWatched() {
	if err := t.watches.Save(); err != nil {
		t.log.Warn("save which compilers were watched", "err", err)
	}
}

// Watched returns what was seen of compilers that were watched.
func (t *Table) Watched() watched.Tally { return t.watches.Tally() }

// search is how a command was found to read a Set.
type search struct {
	plan   *compile.Plan
	query  *inputs.Query
	ask    []string // the words that choose the compiler's own directories
	set    *inputs.Set
	images []string // the precompiled headers that it may open, as typed or absolute
}

// Judge returns a name that the compiler of a job looks up and of which the job's Set takes no account, or "". It may run the
// compiler.
func (t *Table) Judge(ctx context.Context, c *Command, k *Job) (name string) {
	if k.search == nil {
		return ""
	}
	return t.judge(ctx, c, k.search, "known")
}

// judgeMaking is Judge for a command that has made a precompiled header here.
func (t *Table) judgeMaking(ctx context.Context, m *Making, r *recipe) (name string) {
	if r.query.Only != nil || !canWatch(m.plan) {
		return ""
	}
	set, why := t.resolve(r.compiler, r.query, m.plan.SearchLanguage(), r.ask)
	if why != "" {
		return ""
	}
	return t.judge(ctx, m.c, &search{plan: m.plan, query: r.query, ask: r.ask, set: set, images: []string{m.name}}, "image")
}

func (t *Table) judge(ctx context.Context, c *Command, s *search, how string) (name string) {
	if strings.Contains(c.Lease.Command.Argv0, "/") && strays(c) {
		return ""
	}
	return t.watches.Judge(ctx, combination(c, s.plan, how), uint64(s.set.Kinds), func() watched.Verdict {
		set := s.set
		return t.watch(ctx, c, s.plan, func(names []string, p *inputs.Parts) (string, bool) {
			open(c, s.images, p)
			x, ok := t.inputs.Unthought(s.query, set, names, p)
			if x == nil && ok {
				return "", true
			}
			var why string
			if set, why = t.resolve(c.Compiler, s.query, s.plan.SearchLanguage(), s.ask); why != "" || x == nil {
				return "", false
			}
			return x.Name, ok
		})
	})
}

// JudgeListed is Judge for a job whose files the compiler of the wrapper has listed. Only what exists counts: nothing is kept of the job,
// so the next one is listed again. images are the precompiled headers that it may open.
func (t *Table) JudgeListed(ctx context.Context, c *Command, body *job.Body, images []string) (name string) {
	cmd := c.Lease.Command
	if cmd == nil || c.Foreign || !sees(cmd.View, c.Lease.Cwd) {
		return ""
	}
	driver, ok := compile.DriverOf(cmd.Argv0, cmd.Real)
	if !ok {
		return ""
	}
	plan := compile.ParseUnlisted(cmd.Args, driver, variables(cmd.Env))
	if plan.Local || !canWatch(&plan) || strings.Contains(cmd.Argv0, "/") && strays(c) {
		return ""
	}
	// The texts are not known here: more of them may name headers in more ways.
	kinds := uint64(1) << bits.Len(uint(len(body.Files)))
	return t.watches.Judge(ctx, combination(c, &plan, "listed"), kinds, func() watched.Verdict {
		return t.watch(ctx, c, &plan, func(names []string, p *inputs.Parts) (string, bool) {
			open(c, images, p)
			return inputs.Unlisted(c.Lease.Cwd, body.Files, body.Links, names, p), true
		})
	})
}

// open adds precompiled headers to what belongs to a compiler: how they are made is judged where that is done.
func open(c *Command, images []string, p *inputs.Parts) {
	for _, image := range images {
		p.Files = append(slices.Clip(p.Files), from(c.Lease.Cwd, image))
	}
}

// combination returns the name of all that decides how the compiler of a command searches, besides the texts.
func combination(c *Command, plan *compile.Plan, how string) watched.Key {
	var b []byte
	add := func(words ...string) {
		for _, w := range words {
			b = append(append(b, w...), 0)
		}
		b = append(b, 1)
	}
	b = append(b, c.Compiler.ID[:]...)
	add(how, c.Lease.Compiler, c.Lease.Command.Argv0, plan.Language)
	add(plan.SearchWords()...)
	return sha256.Sum256(binary.LittleEndian.AppendUint64(b, c.Lease.Command.Names))
}

// watch runs the compiler of a command and has judged what it looks up. A name that is not thought of may have been made just now, so
// the compiler is then watched again. judge returns such a name or "", and false if the files that it knows have changed.
func (t *Table) watch(ctx context.Context, c *Command, plan *compile.Plan, judge func(names []string, p *inputs.Parts) (string, bool)) watched.Verdict {
	select {
	case t.watches.turns <- struct{}{}:
	case <-ctx.Done():
		return watched.Verdict{Void: true}
	}
	defer func() { <-t.watches.turns }()
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	env := c.Lease.Command.Env
	if c.Environ != nil {
		env = pathed(c.Environ(), c.Lease.Path)
	}
	last := ""
	for range 2 {
		names, err := t.lookUp(ctx, c, plan, env)
		if errors.Is(err, lookups.ErrUnseen) {
			t.watches.unseen(t.log, err)
			return watched.Verdict{Unseen: true}
		}
		if err != nil {
			t.log.Debug("a compiler was not watched", "source", plan.Source, "err", err)
			break
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return plan.Driver.Tidy && besideTool(c.Lease.Cwd, name) || noIndex(c.Lease.Cwd, name)
		})
		name, ok := judge(names, partsOf(c, env))
		t.log.Debug("a compiler was watched", "source", plan.Source, "names", len(names), "sought", name)
		switch {
		case ok && name == "":
			return watched.Verdict{}
		case ok && name == last:
			t.log.Warn("a compiler looks for headers in a way of its own: such compiles stay here", "source", plan.Source, "name", name)
			return watched.Verdict{Doubt: name}
		}
		last = name
	}
	return watched.Verdict{Void: true} // it has failed, or files come and go
}

// pathed returns the environment that a wrapper gives its compiler: its own with another PATH, in which no links of rdistcc's lead the
// compiler to where it is not.
func pathed(env []string, path string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	if path != "" {
		env = append(env, "PATH="+path)
	}
	return env
}

// lookUp returns the names that the compiler looks up while it lists what a command reads.
func (t *Table) lookUp(ctx context.Context, c *Command, plan *compile.Plan, env []string) ([]string, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	argv := append([]string{c.Lease.Command.Argv0}, plan.List(c.Compiler.Major)...)
	for {
		names, status, err := lookups.Run(ctx, c.Lease.Compiler, argv, syscall.ProcAttr{Dir: c.Lease.Cwd, Env: env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
		if err != nil || status.ExitStatus() == 0 {
			return names, err
		}
		if plan.Driver.Tidy && status.Exited() {
			return names, nil // it has found something, which is no failure
		}
		all := slices.DeleteFunc(slices.Clone(argv), func(w string) bool { return w == "-fdirectives-only" })
		if len(all) == len(argv) {
			return nil, errors.New("it has failed")
		}
		argv = all // that gets __COUNTER__ in a directive wrong
	}
}

// besideTool reports whether a name is one of libraries that clang-tidy tests in the working directory and beside it, which it takes
// for that of the compiler where the command names none. Its headers it takes from elsewhere.
func besideTool(cwd, name string) bool {
	return strings.HasPrefix(name, cwd+"/lib/clang/") || strings.HasPrefix(name, cwd+"/../lib/") && path.Dir(name) == path.Join(cwd, "../lib")
}

// noIndex reports whether a name is that of the index of modules that clang looks for where it keeps those that it makes by itself, which
// without such a place is the working directory, and there is none. A compile with one stays here.
func noIndex(cwd, name string) bool {
	if name != cwd+"/modules.idx" {
		return false
	}
	_, err := os.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// partsOf returns what belongs to the compiler of a command with that environment.
func partsOf(c *Command, env []string) *inputs.Parts {
	get := variables(env)
	libraries := []string{c.Lease.Libraries}
	for _, name := range compile.LibraryVariables {
		list, _ := get(name)
		libraries = append(libraries, list)
	}
	programs, _ := get("PATH")
	p := &inputs.Parts{Files: c.Compiler.Files, Dirs: c.Compiler.Dirs, Programs: dirsOf(c, c.Lease.Path, programs), Libraries: dirsOf(c, libraries...)}
	for _, name := range [...]string{"TMPDIR", "TMP", "TEMP", "PWD"} {
		if dir, set := get(name); set {
			p.Tested = append(p.Tested, filepath.Clean(dir))
		}
	}
	p.Tested = append(p.Tested, filepath.Clean(c.Lease.Compiler), filepath.Clean(from(c.Lease.Cwd, c.Lease.Command.Argv0)))
	for _, program := range []string{c.Compiler.Path, c.Compiler.Exec} {
		bin := filepath.Dir(program)
		if filepath.Base(bin) != "bin" {
			continue
		}
		for _, sub := range [...]string{"bin", "etc", "include", "lib", "lib32", "lib64", "libexec", "share", c.Compiler.Target} {
			p.Prefix = append(p.Prefix, filepath.Join(filepath.Dir(bin), sub))
		}
	}
	return p
}

// dirsOf returns the directories of lists such as PATH, absolute.
func dirsOf(c *Command, lists ...string) (dirs []string) {
	for _, list := range lists {
		for _, dir := range filepath.SplitList(list) {
			dirs = append(dirs, path.Clean(from(c.Lease.Cwd, dir)))
		}
	}
	return dirs
}

// strays reports whether a command names its compiler by a link in the project. A clang then looks for its parts beside the link too.
func strays(c *Command) bool {
	dir := filepath.Dir(from(c.Lease.Cwd, c.Lease.Command.Argv0))
	return strings.HasPrefix(dir+"/", c.Lease.Cwd+"/") && filepath.Dir(c.Compiler.Path) != dir
}

// canWatch reports whether a compiler searches for anything in a command. What is preprocessed names no headers.
func canWatch(plan *compile.Plan) bool { return !plan.Raw }
