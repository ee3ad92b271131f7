// Package plain reads commands in place of their wrappers: those that need nothing but a look at a few files. It makes the Lease that the
// wrapper would have sent, by the same code (package typed), and says where the outputs of a silent success belong.
//
// Everything that takes more is left to the wrapper: whatever it finds out by running the compiler, or reads from further files
// (scripts, response files, spec files, plugins, modules), and whatever it reports by itself.
package plain

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// Command is one that has been read.
type Command struct {
	Lease *ipc.Lease
	plan  compile.Plan
	empty string // a file that is emptied with a success; "": none
	pid   int
}

// Read reads a command for the wrapper of process pid, whose user is this process's. It returns nil if that is the wrapper's to do.
func Read(w *ipc.Whole, pid int) *Command {
	argv, env := list(w.Words), list(w.Environ)
	set := typed.Read(env)
	cwd := workingDir(w, env, pid)
	if pid <= 0 || cwd == "" || w.View.Mounts == 0 || ipc.Look(cwd) != w.View || !usual(set) {
		return nil
	}
	empty, argv := set.Empties(argv)
	t := &typed.Command{Settings: set, Env: env, Hosts: set.Hosts, Cwd: cwd,
		Terminal: func() bool { return w.Terminal }, Look: func() ipc.View { return w.View }}
	args, ok := find(t, argv, typed.FileID{Dev: w.SelfDev, Ino: w.SelfIno})
	if !ok {
		return nil
	}
	driver, ok := compile.DriverOf(t.Argv0, t.Real)
	if !ok || driver.Tidy || slices.ContainsFunc(args, isFile) || typed.ScriptText(t.Real) != "" {
		return nil
	}
	plan := compile.ParseUnlisted(args, driver, lookup(env))
	if !simple(&plan, cwd) || typed.Wanders(t.File, t.Path, typed.Getenv(env, "LD_LIBRARY_PATH")) {
		return nil
	}
	t.Source, t.Output = plan.Source, plan.Main()
	l, _ := t.Lease(&plan)
	if l.Command == nil {
		return nil
	}
	return &Command{Lease: l, plan: plan, empty: empty, pid: pid}
}

// Place returns where the files of a result belong, or nil if that is for the wrapper to find out.
func (c *Command) Place(r *ipc.Result) *ipc.Place {
	if r.Exit != 0 || r.Signal != 0 || r.Stdout.Len != 0 || r.Stderr.Len != 0 || r.Moved {
		return nil
	}
	p := &ipc.Place{Report: r.Where() + "\n"}
	outputs := c.plan.Outputs
	var there uint64
	for _, f := range r.Files {
		i := int(f.Index)
		if i >= min(len(outputs), 64) || there&(1<<i) != 0 || i == 0 && f.Len == 0 && !c.plan.Syntax {
			return nil
		}
		there |= 1 << i
		how, ok := c.plan.Placing(outputs[i], c.pid)
		if !ok || outputs[i].Name == "" {
			return nil
		}
		placed := ipc.Placed{Name: outputs[i].Name, Dir: how.Dir, Temp: how.Temp, Segment: f.Segment}
		switch {
		case how.Temp != "":
			placed.How = ipc.PlacedRenamed
		case how.Unlinks:
			placed.How = ipc.PlacedUnlinked
		}
		p.Files = append(p.Files, placed)
	}
	for i := range outputs {
		if !outputs[i].Optional && (i >= 64 || there&(1<<i) == 0) {
			return nil
		}
	}
	// The object comes last, as from a compiler.
	if i := slices.IndexFunc(r.Files, func(f ipc.File) bool { return f.Index == 0 }); i >= 0 {
		object := p.Files[i]
		p.Files = append(slices.Delete(p.Files, i, i+1), object)
	}
	if c.empty != "" {
		p.Files = append(p.Files, ipc.Placed{How: ipc.PlacedInPlace, Name: c.empty, Dir: c.empty[:strings.LastIndexByte(c.empty, '/')+1] + "."})
	}
	return p
}

// list returns the strings of a block, each of which ends in a NUL.
func list(block string) []string {
	if block == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(block, "\x00"), "\x00")
}

// workingDir returns the directory as compilers name it: PWD if that leads there, else the kernel's name for it; "" if neither does.
func workingDir(w *ipc.Whole, env []string, pid int) string {
	leads := func(name string) bool {
		var st syscall.Stat_t
		return strings.HasPrefix(name, "/") && typed.Stat(name, &st) == nil && st.Dev == w.View.CwdDev && st.Ino == w.View.CwdIno
	}
	pwd := typed.Getenv(env, "PWD")
	shared, ok := unit.Shared(pwd)
	if !ok {
		return ""
	}
	if strings.HasPrefix(shared, "/") && leads(pwd) {
		return pwd
	}
	if name, err := typed.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err == nil && leads(name) {
		return name
	}
	return ""
}

// usual reports whether the settings ask nothing of the wrapper itself.
func usual(s *typed.Settings) bool {
	return s.Level == 0 && s.Distcc == "" && s.Mode != ipc.ModeLocal && s.Inputs == "" && len(s.Complaints) == 0
}

// find finds the compiler of a command, as the wrapper does, and returns the words that are the compiler's. self is the wrapper's program.
func find(t *typed.Command, argv []string, self typed.FileID) (args []string, ok bool) {
	if len(argv) < 2 {
		return nil, false
	}
	name, args, behind := typed.Base(argv[0]), argv[1:], true
	if strings.HasPrefix(name, typed.OwnName) {
		if name != typed.OwnName {
			return nil, false
		}
		name, args, behind = argv[1], argv[2:], false
	}
	if name == "" || name[0] == '-' || strings.HasPrefix(typed.Base(name), typed.OwnName) || !behind && strings.IndexByte(name, '/') > 0 {
		return nil, false
	}
	for dir := range strings.SplitSeq(t.Settings.Path, ":") {
		if !strings.HasPrefix(dir, "/") {
			return nil, false
		}
	}
	file, path, code := typed.FindProgram(name, t.Settings.Path, self, behind)
	if code != 0 {
		return nil, false
	}
	t.File, t.Path, t.Argv0, t.Real = file, path, name, typed.RealPath(file)
	if behind && strings.IndexByte(argv[0], '/') >= 0 || !behind && strings.IndexByte(name, '/') >= 0 {
		t.Argv0 = file
	}
	return args, true
}

// isFile reports whether a word may have words of a file in its place.
func isFile(word string) bool { return strings.HasPrefix(word, "@") || strings.Contains(word, ",@") }

func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
				return kv[len(name)+1:], true
			}
		}
		return "", false
	}
}

// simple reports whether nothing more is to be found out about a plan.
func simple(p *compile.Plan, cwd string) bool {
	if p.Local || p.Sources != "" || p.Modules() || p.HeaderUnit() || p.TellsMemory() || p.KeepsLinks() || p.TraceFile() != "" ||
		len(p.SpecFiles())+len(p.ToolDirs())+len(p.Plugins()) > 0 || p.FindModules(cwd, nil) != "" {
		return false
	}
	var source, output syscall.Stat_t
	if typed.Stat(typed.Absolute(p.Source, cwd), &source) != nil || source.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return false
	}
	main := p.Main()
	return main == "" || typed.Stat(typed.Absolute(main, cwd), &output) != nil || output.Dev != source.Dev || output.Ino != source.Ino
}
