package typed

import (
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Command is what a lease says of a command beside its plan.
type Command struct {
	*Settings
	Env         []string // its whole environment
	Path        string   // PATH of the compiler
	Hosts       string   // host list, as in ipc.Lease
	File        string   // program of the compiler
	Argv0, Real string   // the compiler's argv[0]; its program's path with links resolved
	Cwd         string
	// Source and Output are for the status page.
	Source, Output string
	Plugins        []string // as in ipc.Lease
	PluginDir      string

	Terminal func() bool     // reports whether standard error is a terminal
	Look     func() ipc.View // returns the view of the process that was started with the command
}

// Lease returns the lease that asks for the compile of plan, and what its placeholders stand for.
func (c *Command) Lease(plan *compile.Plan) (*ipc.Lease, driver.Names) {
	list, _, _ := plan.SharedList(compile.KeepsMacrosFrom)
	words, names, ok := plan.Shared(compile.KeepsMacrosFrom)
	if len(list) > ipc.MaxWords {
		list = nil
	}
	if len(words) > ipc.MaxWords || !ok || plan.Text != "" {
		words = nil
	}
	names.Source = plan.Source
	return &ipc.Lease{
		Version: ipc.Version, Hosts: c.Hosts, Mode: c.Mode, Fallback: c.Fallback,
		Compiler: Absolute(c.File, c.Cwd), Source: c.Source, Output: c.Output, Cwd: c.Cwd,
		IOTimeoutMS: c.IOTimeoutMS, BackoffMS: c.BackoffMS,
		List: list, Preprocess: words, Language: plan.Language, NeedTree: plan.Text != "",
		Machine: plan.Machine(), Unlisted: plan.Unlisted, Path: c.Path, Libraries: Getenv(c.Env, "LD_LIBRARY_PATH"), Build: c.Build, Cache: c.Cache, Base: c.Base,
		Plugins: c.Plugins, PluginDir: c.PluginDir, Link: c.Link, Command: c.Command(plan),
	}, names
}

// maxFile is the least file size limit (RLIMIT_FSIZE) with which the manager makes the job of
// a command, in bytes.
const maxFile = 1 << 40

// maxCommand bounds the words of a command that the manager turns into a job by itself, in
// bytes: they share a frame with other fields.
const maxCommand = 512 << 10

// Command returns what the manager needs to make the job of plan by itself, or nil where it must not.
func (c *Command) Command(plan *compile.Plan) *ipc.Command {
	if c.Inputs != "" || plan.Sources != "" || plan.Raw && !plan.Assembly() && !plan.Left() || strings.HasPrefix(plan.Main(), "/dev/") {
		return nil
	}
	m := &ipc.Command{Argv0: c.Argv0, Real: c.Real, Args: plan.Whole(), Env: TreeEnv(c.Env, c.Cwd, plan.Driver.Tidy), Names: sumOfNames(c.Env),
		Terminal: c.Terminal(), Words: c.SkipRetry, View: c.Look()}
	// What is too big for a file is too big for a slot, and is compiled here.
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil && limit.Cur < maxFile {
		return nil
	}
	size := 0
	for _, w := range m.Args {
		size += len(w)
	}
	if len(m.Env) > ipc.MaxWords || size > maxCommand {
		return nil
	}
	for _, kv := range c.Env {
		// No host can tell what the loader of the compiler here would print because of these.
		if strings.HasPrefix(kv, "LD_") && !strings.HasPrefix(kv, "LD_LIBRARY_PATH=") || strings.HasPrefix(kv, "GLIBC_TUNABLES=") {
			return nil
		}
	}
	return m
}

// sumOfNames returns a sum over the names of variables, in any order (FNV-1a of each).
func sumOfNames(env []string) (sum uint64) {
	for _, kv := range env {
		h := uint64(14695981039346656037)
		for i := 0; i < len(kv) && kv[i] != '='; i++ {
			h = (h ^ uint64(kv[i])) * 1099511628211
		}
		sum += h
	}
	return sum
}

// TreeEnv returns the part of our environment that a compiler in a tree gets: what chooses
// its headers, its date, and the look of its messages.
func TreeEnv(env []string, cwd string, tidy bool) []string {
	var out []string
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !compile.GoesWithSources(name) && !(tidy && compile.GoesWithTidy(name)) {
			continue
		}
		if name == "PWD" && value != cwd {
			if dir, ok := unit.Shared(value); !ok || dir == value {
				continue // compilers do not believe such a PWD
			}
		}
		out = append(out, kv)
	}
	return out
}

// Getenv returns the value of a variable in env, or "".
func Getenv(env []string, name string) string {
	for _, kv := range env {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// Wanders reports whether one of lists, each of directories or a program as in a PATH, leads to a directory that is another
// one to each process (unit.Shared).
func Wanders(lists ...string) bool {
	for _, list := range lists {
		for dir := range strings.SplitSeq(list, ":") {
			if shared, ok := unit.Shared(dir); !ok || shared != dir {
				return true
			}
		}
	}
	return false
}
