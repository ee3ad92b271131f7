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
	"strings"
	"time"
)

// Unit is how a unit is compiled.
type Unit struct {
	Dir   string   // where
	Words []string // the compiler first
}

// command is a unit's command without its source, its output and what else it writes.
type command struct {
	dir      string
	compiler string
	clang    bool
	flags    []string
	source   string // absolute
	language string // of headers, as -x names it
}

// Options that are kept, with an argument of their own or joined to it; flags by how they begin; and what would write files or is of no
// interest and is left out.
var (
	kept    = []string{"-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-isysroot", "--sysroot", "-imultilib", "-target", "--param", "-arch", "-B"}
	keptAll = []string{"-std=", "-O", "-g", "-W", "-f", "-m", "-pedantic", "-ansi", "-w", "-pthread", "-pipe", "-nostd", "--sysroot=", "--target=", "-stdlib=", "-undef", "-trigraphs", "-Qunused-arguments", "-Wp,-D", "-Wp,-U"}
	dropped = []string{"-c", "-MD", "-MMD", "-MP", "-MG", "-v", "-s", "-save-temps"}
	// droppedTwo have an argument, and droppedAll begin so.
	droppedTwo = []string{"-o", "-MF", "-MT", "-MQ", "-MJ", "--serialize-diagnostics"}
	droppedAll = []string{"-Wp,-MD", "-Wp,-MMD", "-save-temps=", "-fdump", "-ftest-coverage", "-fprofile-arcs", "--coverage", "-fopt-info", "-ftime-trace", "-fsave-", "-foptimization-record", "-fproc-stat-report", "-fstack-usage", "-fcallgraph-info", "-fdiagnostics-", "-MF", "-MT", "-MQ"}
	refused    = []string{"-Wa,", "-Wp,", "-Wl,", "-fmodule", "-fplugin", "-fprebuilt"}
)

// commandOf reads a unit's command. The error says in a line why it is none for this.
func commandOf(u Unit) (*command, error) {
	words := u.Words
	for len(words) > 0 && (filepath.Base(words[0]) == "rdistcc" || filepath.Base(words[0]) == "ccache" || filepath.Base(words[0]) == "distcc") {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, errors.New("the command names no compiler")
	}
	c := &command{dir: u.Dir}
	begins := func(w string, list []string) bool {
		for _, p := range list {
			if strings.HasPrefix(w, p) {
				return true
			}
		}
		return false
	}
	is := func(w string, list []string) bool {
		for _, p := range list {
			if w == p {
				return true
			}
		}
		return false
	}
	compiles, x := false, ""
	for i := 1; i < len(words); i++ {
		w := words[i]
		argument := func() (string, error) {
			if i++; i == len(words) {
				return "", fmt.Errorf("the command ends after %s", w)
			}
			return words[i], nil
		}
		switch {
		case w == "-include" || begins(w, []string{"-include-pch", "-imacros", "-include="}):
			return nil, fmt.Errorf("its command includes files already (%s)", w)
		case w == "-x" || is(w, kept) || is(w, droppedTwo):
			a, err := argument()
			switch {
			case err != nil:
				return nil, err
			case w == "-x":
				x = a
			case is(w, kept):
				c.flags = append(c.flags, w, a)
			}
		case is(w, dropped) || begins(w, droppedAll):
			compiles = compiles || w == "-c"
		case begins(w, refused) && !begins(w, []string{"-Wp,-D", "-Wp,-U"}):
			return nil, fmt.Errorf("what %s does is not known here", w)
		case begins(w, keptAll) || begins(w, kept[:8]):
			c.flags = append(c.flags, w)
		case strings.HasPrefix(w, "@"):
			return nil, fmt.Errorf("its command is in a file (%s)", w)
		case strings.HasPrefix(w, "-"):
			return nil, fmt.Errorf("what %s does is not known here", w)
		case c.source != "":
			return nil, fmt.Errorf("its command names two files, %s and %s", c.source, w)
		default:
			c.source = w
		}
	}
	if !compiles || c.source == "" {
		return nil, errors.New("its command is no compile (-c) of a source")
	}
	if !filepath.IsAbs(c.source) {
		c.source = filepath.Join(c.dir, c.source)
	}
	switch ext := filepath.Ext(c.source); {
	case x == "c" || x == "" && ext == ".c":
		c.language = "c-header"
	case x == "c++" || x == "" && is(ext, []string{".cc", ".cpp", ".cxx", ".C", ".c++", ".CPP", ".cp"}):
		c.language = "c++-header"
	default:
		return nil, errors.New("it is neither C nor C++")
	}
	if x != "" {
		c.flags = append(c.flags, "-x", x)
	}
	return c, c.find(words[0])
}

// find sets the compiler that a word names: none that is a link to rdistcc, so that what is measured runs here.
func (c *command) find(word string) error {
	candidates := []string{word}
	if !strings.Contains(word, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if filepath.IsAbs(dir) {
				candidates = append(candidates, filepath.Join(dir, word))
			}
		}
	} else if !filepath.IsAbs(word) {
		candidates = []string{filepath.Join(c.dir, word)}
	}
	for _, file := range candidates {
		real, err := filepath.EvalSymlinks(file)
		if base := filepath.Base(real); err != nil || base == "rdistcc" || base == "ccache" || base == "distcc" {
			continue
		}
		if st, err := os.Stat(real); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			c.compiler = file
			return nil
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
	cmd.Env = append(withoutOutputs(os.Environ()), "TMPDIR="+dir, "LC_ALL=C", "PWD="+c.dir, "CCACHE_DISABLE=1")
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
