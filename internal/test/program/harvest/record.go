package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/test/kit/honest"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Variables by which a harvest instructs its compilers.
const (
	logVariable   = "HARVEST_LOG"   // where commands are recorded; unset: only run the compiler
	emptyVariable = "HARVEST_EMPTY" // the directory with empty.o, empty.so
)

// compilers lists the names under which this program stands in for a compiler.
var compilers = []string{"cc", "gcc", "g++", "c++", "clang", "clang++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++"}

// recorded is a command that a build ran.
type recorded struct {
	Words    []string
	Response []string `json:",omitempty"` // the words of the one response file
}

// standIn stands in for a compiler of a build. Where configure or the like examine the machine it runs the
// real one; otherwise it does just enough to keep make going: an empty object, or a program that does
// nothing. It returns the exit status.
func standIn(argv []string) int {
	argv[0] = filepath.Base(argv[0])
	log := os.Getenv(logVariable)
	if log == "" || !isCompile(argv) && !isLink(argv) {
		return run(argv)
	}
	dir, _ := os.Getwd() // on error names are relative
	r := recorded{Words: argv}
	if i := slices.IndexFunc(argv[1:], func(w string) bool { return strings.HasPrefix(w, "@") }); i >= 0 {
		r.Response = compile.Expand([]string{argv[i+1]})
	}
	words := compile.Expand(argv)
	if probes(dir, words) {
		return run(argv)
	}
	if err := errors.Join(r.write(log), pretend(words)); err != nil {
		_, _ = io.WriteString(os.Stderr, "harvest: "+err.Error()+"\n")
		return 1
	}
	return 0
}

// run becomes the next compiler on PATH.
func run(argv []string) int {
	if strings.HasPrefix(argv[0], "clang") {
		// Libraries for linking such objects need not be installed for configure to link.
		argv = slices.DeleteFunc(argv, func(w string) bool {
			return slices.ContainsFunc([]string{"-fsanitize", "-fno-sanitize", "-fprofile-instr-", "-fcoverage-mapping", "-flto", "-fsplit-lto-unit"}, func(p string) bool { return strings.HasPrefix(w, p) })
		})
	}
	self, _ := os.Executable()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		name := filepath.Join(dir, filepath.Base(argv[0]))
		if real, err := filepath.EvalSymlinks(name); err != nil || real == self {
			continue
		}
		if _, err := exec.LookPath(name); err == nil {
			argv[0] = name // it looks for its parts relative to that
			_ = syscall.Exec(name, argv, os.Environ())
		}
	}
	_, _ = io.WriteString(os.Stderr, "harvest: no "+argv[0]+"\n")
	return 127
}

func (r recorded) write(log string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// isCompile reports whether a command makes an object or assembly of sources.
func isCompile(words []string) bool {
	one := false
	for _, w := range words[1:] {
		switch {
		case w == "-c", w == "-S":
			one = true
		case w == "-E", w == "-M", w == "-MM", w == "-###", w == "-v", w == "-", strings.HasPrefix(w, "-print-"), strings.HasPrefix(w, "--print-"), strings.HasPrefix(w, "-dump"):
			return false
		}
	}
	return one
}

func isLink(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"-E", "-M", "-MM", "-###", "-v", "--version", "--help", "-"}, w) || strings.HasPrefix(w, "-print-") || strings.HasPrefix(w, "--print-") || strings.HasPrefix(w, "-dump")
	}) && slices.ContainsFunc(words[1:], func(w string) bool { return !strings.HasPrefix(w, "-") })
}

// probes reports whether the command examines the machine, so that its answer is needed.
func probes(dir string, words []string) bool {
	for _, s := range append(words[1:], dir) {
		for _, probe := range []string{"conftest", "CMakeTmp", "CMakeScratch", "CompilerId", "meson-private", "/dev/null"} {
			if strings.Contains(s, probe) {
				return true
			}
		}
	}
	return false
}

// pretend makes the files that a command would make.
func pretend(words []string) error {
	out, source, deps := "", "", []string{}
	depend := false
	for i := 1; i < len(words); i++ {
		w := words[i]
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case w == "-o":
			out = next
			i++
		case w == "-MF":
			deps = append(deps, next)
			i++
		case w == "-MD", w == "-MMD":
			depend = true
		case strings.HasPrefix(w, "-Wp,-MD,"), strings.HasPrefix(w, "-Wp,-MMD,"):
			deps = append(deps, strings.Split(w, ",")[2])
		case w == "-include", w == "-imacros", w == "-isystem", w == "-I", w == "-MT", w == "-MQ", w == "-x", w == "-D":
			i++
		case honest.IsSource(w):
			source = w
		}
	}
	stem := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	like := "empty.o"
	switch {
	case slices.Contains(words, "-S"):
		like = "empty.s"
		if out == "" {
			out = stem + ".s"
		}
	case isCompile(words):
		if out == "" {
			out = stem + ".o"
		}
	case slices.Contains(words, "-r"):
	case slices.Contains(words, "-shared"):
		like = "empty.so"
	default:
		like = "empty"
	}
	if out == "" {
		out = "a.out"
	}
	if depend && len(deps) == 0 {
		deps = []string{strings.TrimSuffix(out, filepath.Ext(out)) + ".d"}
	}
	for _, d := range deps {
		if err := os.WriteFile(d, []byte(out+": "+source+"\n"), 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(os.Getenv(emptyVariable), like))
	if err != nil {
		return err
	}
	_ = os.Remove(out) // it may be running
	return os.WriteFile(out, text, 0o755)
}

// printed returns the compiles among commands that a program prints as it would give them to a shell.
func printed(text string) (all []recorded) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if !strings.Contains(line, " -c") {
			continue
		}
		for _, words := range commands(line) {
			i := slices.IndexFunc(words, func(w string) bool { return slices.Contains(compilers, filepath.Base(w)) })
			if i < 0 {
				continue
			}
			words = words[i:]
			if words[0] = filepath.Base(words[0]); isCompile(words) && !probes("", words) {
				all = append(all, recorded{Words: words})
			}
		}
	}
	return all
}

// commands returns the simple commands of a line for sh, without expansions.
func commands(line string) (all [][]string) {
	var words []string
	var word strings.Builder
	in, quote := false, byte(0)
	end := func() {
		if in {
			words = append(words, word.String())
		}
		word.Reset()
		in = false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'', quote == '"' && c != '\\':
			word.WriteByte(c)
		case c == '\\' && i+1 < len(line):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(line[i])) {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
			in = true
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			end()
		case strings.IndexByte(";&|()<>", c) >= 0:
			end()
			all, words = append(all, words), nil
		default:
			word.WriteByte(c)
			in = true
		}
	}
	end()
	return append(all, words)
}
