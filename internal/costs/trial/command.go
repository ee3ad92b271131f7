// Package trial finds out by experiment what a precompiled header saves a unit: it makes one with the unit's own command, in a
// directory of its own, and compiles the unit with it and without.
//
//	command   a unit's command, without what writes elsewhere
//	includes  what the unit includes, and what each of that reads
//	trial     the experiment
package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Unit is how a unit is compiled.
type Unit struct {
	Dir   string   // where
	Words []string // the compiler first
}

// command is a unit's command without its source, its output and what else it writes.
type command struct {
	dir      string
	env      []string // that the command sets
	compiler string
	clang    bool
	flags    []string
	forced   []string // files that are included in front of the source (-include)
	source   string   // absolute
	language string   // of headers, as -x names it
}

// launchers stand in front of a compiler, or have links with its name.
var launchers = []string{"rdistcc", "ccache", "distcc", "sccache", "icecc"}

// What is done with options. Those of kept have their argument joined to them or in the next word, those of keptTwo and droppedTwo in the
// next word, and those of keptAll, droppedAll and refused begin so.
var (
	kept       = []string{"-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-iwithprefixbefore", "-iwithprefix", "-imacros", "-imultilib", "-cxx-isystem", "-B"}
	keptTwo    = []string{"--sysroot", "-target", "--param", "-arch", "-mllvm", "-resource-dir"}
	keptAll    = []string{"-std=", "--std=", "-O", "-g", "-W", "-f", "-m", "-p", "-ansi", "-w", "-nostdinc", "-nostdlib", "--param=", "--sysroot=", "--target=", "--gcc-toolchain=", "--driver-mode=", "-stdlib=", "-specs=", "--specs=", "-undef", "-trigraphs", "-Qunused-arguments", "-no-canonical-prefixes"}
	dropped    = []string{"-c", "-MD", "-MMD", "-MP", "-MG", "-v", "-s", "-shared", "-static", "-static-libgcc", "-static-libstdc++", "-rdynamic", "-pie", "-no-pie", "-nostartfiles", "-nodefaultlibs"}
	droppedTwo = []string{"-o", "-MF", "-MT", "-MQ", "-MJ", "--serialize-diagnostics", "-L", "-l", "-Xlinker"}
	droppedAll = []string{"-o", "-L", "-l", "-Wl,", "-Wp,-MD,", "-Wp,-MMD,", "-save-temps", "-fdump", "-ftest-coverage", "-fprofile-arcs", "--coverage", "-fopt-info", "-ftime-trace", "-fsave-", "-foptimization-record", "-fproc-stat-report", "-fstack-usage", "-fcallgraph-info", "-fdiagnostics-", "-MF", "-MT", "-MQ"}
	refused    = []string{"-Wp,", "-fmodule", "-fplugin", "-fprebuilt", "-print-", "-pass-exit"}
	others     = []string{"-E", "-S", "-M", "-MM", "-fsyntax-only"} // done instead of a compile
)

func begins(w string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(w, p) })
}

// assignment is a word that sets a variable of a command.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*=`)

// commandOf reads a unit's command. The error says in a line why it is none for this.
func commandOf(u Unit) (*command, error) {
	c, words := &command{dir: u.Dir}, u.Words
	for ; len(words) > 0; words = words[1:] {
		if assignment.MatchString(words[0]) {
			c.env = append(c.env, words[0])
		} else if base := filepath.Base(words[0]); base != "env" && !slices.Contains(launchers, base) {
			break
		}
	}
	if len(words) == 0 {
		return nil, errors.New("the command names no compiler")
	}
	compiler := words[0]
	compiles, language, err := c.read(compile.ExpandIn(u.Dir, words[1:]))
	switch {
	case err != nil:
		return nil, err
	case !compiles || c.source == "":
		return nil, errors.New("its command is no compile (-c) of a source")
	}
	c.source = c.absolute(c.source)
	plus := strings.Contains(filepath.Base(compiler), "++") // such a compiler takes C for C++
	switch ext := filepath.Ext(c.source); {
	case language == "c" || language == "" && ext == ".c" && !plus:
		c.language = "c-header"
	case language == "c++" || language == "" && slices.Contains([]string{".c", ".cc", ".cpp", ".cxx", ".C", ".c++", ".CPP", ".cp"}, ext):
		c.language = "c++-header"
	default:
		return nil, errors.New("it is neither C nor C++")
	}
	for _, f := range c.forced {
		for _, image := range []string{".gch", ".pch"} {
			if _, err := os.Stat(c.absolute(f) + image); err == nil {
				return c, fmt.Errorf("its command takes a precompiled header already (%s)", f+image)
			}
		}
	}
	return c, c.find(compiler)
}

// read reads the words after the compiler. language is what -x names.
func (c *command) read(words []string) (compiles bool, language string, err error) {
	other := false
	for i := 0; i < len(words); i++ {
		w, next := words[i], ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		unknown := fmt.Errorf("what %s does is not known here", w)
		switch {
		case w == "-include-pch", w == "-Xclang" && next == "-include-pch":
			return false, "", errors.New("its command takes a precompiled header already (-include-pch)")
		case w == "-Xclang":
			return false, "", fmt.Errorf("what %s %s does is not known here", w, next)
		case w == "--" && c.source == "" && i+2 == len(words):
			c.source = next
			i++
		case slices.Contains(others, w):
			other = true
		case w == "-include" || w == "-x" || slices.Contains(kept, w) || slices.Contains(keptTwo, w) || slices.Contains(droppedTwo, w):
			if i++; i == len(words) {
				return false, "", fmt.Errorf("the command ends after %s", w)
			}
			switch {
			case w == "-include":
				c.forced = append(c.forced, next)
			case w == "-x":
				language = next
				c.flags = append(c.flags, w, next)
			case !slices.Contains(droppedTwo, w):
				c.flags = append(c.flags, w, next)
			}
		case strings.HasPrefix(w, "--include="):
			c.forced = append(c.forced, w[len("--include="):])
		case slices.Contains(dropped, w) || begins(w, droppedAll):
			compiles = compiles || w == "-c"
		case begins(w, refused) && !definesOnly(w), strings.HasPrefix(w, "-Wa,") && lists(w):
			return false, "", unknown
		case begins(w, keptAll) || begins(w, kept):
			c.flags = append(c.flags, w)
		case strings.HasPrefix(w, "@"):
			return false, "", fmt.Errorf("its command is in a file that cannot be read (%s)", w)
		case strings.HasPrefix(w, "-"):
			return false, "", unknown
		case c.source != "":
			return false, "", fmt.Errorf("its command names two files, %s and %s", c.source, w)
		default:
			c.source = w
		}
	}
	return compiles && !other, language, nil
}

// absolute returns the absolute name of a file that the command names.
func (c *command) absolute(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(c.dir, name)
}

// definesOnly reports whether options for the preprocessor define macros and do nothing else.
func definesOnly(w string) bool {
	words, ok := strings.CutPrefix(w, "-Wp,")
	return ok && !slices.ContainsFunc(strings.Split(words, ","), func(p string) bool { return !begins(p, []string{"-D", "-U"}) })
}

// lists reports whether options for the assembler may have it write another file.
func lists(w string) bool {
	return slices.ContainsFunc(strings.Split(w, ",")[1:], func(p string) bool { return begins(p, []string{"-a", "--MD", "-o", "@"}) })
}

// find sets the compiler that a word names: none that is a link to rdistcc or the like, so that what is measured runs here. Behind such
// a link is the next compiler of that name.
func (c *command) find(word string) error {
	var candidates []string
	if strings.Contains(word, "/") {
		candidates = append(candidates, c.absolute(word))
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			candidates = append(candidates, filepath.Join(dir, filepath.Base(word)))
		}
	}
	for i, file := range candidates {
		real, err := filepath.EvalSymlinks(file)
		if err == nil && slices.Contains(launchers, filepath.Base(real)) {
			continue
		}
		if st, err := os.Stat(real); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			c.compiler = file
			return nil
		}
		if i == 0 && strings.Contains(word, "/") {
			break // a compiler elsewhere is another one
		}
	}
	return fmt.Errorf("%s: no such compiler here", word)
}

// ran is what came of a run.
type ran struct {
	out, err string
	cpu      time.Duration // of the compiler and all that it started
}

// run runs the compiler with the unit's flags and further words. dir is for what it keeps meanwhile. The error has the first line in
// which the compiler complains.
func (c *command) run(ctx context.Context, dir string, words ...string) (ran, error) {
	cmd := exec.CommandContext(ctx, c.compiler, append(append([]string{}, c.flags...), words...)...)
	cmd.Dir = c.dir
	cmd.Env = append(append(withoutOutputs(os.Environ()), withoutOutputs(c.env)...), "TMPDIR="+dir, "LC_ALL=C", "PWD="+c.dir, "CCACHE_DISABLE=1")
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	r := ran{out: out.String(), err: errOut.String()}
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		return r, fmt.Errorf("%s", complaint(r.err, err))
	}
	return r, nil
}

// withoutOutputs leaves out the variables that have a compiler write rules for make.
func withoutOutputs(env []string) (list []string) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, "DEPENDENCIES_OUTPUT=") && !strings.HasPrefix(kv, "SUNPRO_DEPENDENCIES=") {
			list = append(list, kv)
		}
	}
	return list
}

// complaint returns the first error in what a compiler wrote.
func complaint(text string, err error) string {
	for line := range strings.Lines(text) {
		if _, what, ok := strings.Cut(line, "error: "); ok {
			return strings.TrimSpace(what)
		}
	}
	return err.Error()
}
