package equal

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	compilers = flag.String("compilers", "gcc clang", "compilers that TestCorpus runs every case with")
	table     = flag.String("table", "", "append to this `FILE` a line for each case of TestCorpus: the family of its compilers, 1 if something differs, and where its compiles ran")
)

// TestCorpus runs the command lines of testdata/cases in the files of
// testdata/fixtures.txtar. A line is
//
//	ID PLACE COMMAND
//
// where PLACE says where the compile of a good system runs: R on a host, L here,
// A no matter. After it may stand v: to be run with the other installed versions
// of both families as well, and e: stderr is the shell's own, not compared.
// COMMAND, for sh, has the variables of place.run; with $CC or $CXX in it it is
// run for each compiler of -compilers.
//
// A part of the corpus (kit/part) has a part of the lines, and each of them with one
// compiler of -compilers and one further version, others the next time.
func TestCorpus(t *testing.T) {
	g := stand(t)
	today := part.Of(t)
	cases := readCases(t, today)
	f := readFixtures(t, "testdata/fixtures.txtar")
	var mu sync.Mutex
	places := make(map[string]int)  // guarded by mu; "R remote" and the like
	reasons := make(map[string]int) // guarded by mu
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.id, func(t *testing.T) {
				t.Parallel()
				if tool := missingTool(c.command); tool != "" {
					need.Skipf(t, need.Tools, "no %s", tool)
				}
				p := <-g.places
				defer func() { g.places <- p }()
				v, err := p.compare(t.Context(), f, c.command)
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				for _, line := range v.wrapped.report {
					where, reason, _ := strings.Cut(line, ":")
					places[c.place+" "+where]++
					if where == "local" {
						reasons[reason]++
					}
				}
				mu.Unlock()
				if err := c.tell(*table, len(v.diffs) > 0, v.wrapped.report); err != nil {
					t.Error(err)
				}
				for _, d := range append(v.diffs, c.misplaced(v.wrapped.report)...) {
					t.Errorf("%s\n%s\n%s", d, c.line, strings.Join(v.wrapped.report, "\n"))
				}
				if err := v.keep(c.id); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Logf("%d cases of %v; wanted place and place: %v; reasons: %v", len(cases), today, places, reasons)
}

// testCase is one line of the corpus with one compiler.
type testCase struct {
	id    string
	place string // R, L, A
	command
}

// tell appends to a file what became of the case.
func (c testCase) tell(file string, differs bool, report []string) error {
	if file == "" {
		return nil
	}
	var families []string
	for _, name := range c.tools() {
		family := "gcc"
		if strings.Contains(name, "clang") {
			family = "clang"
		}
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	slices.Sort(families)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%d\t%s\t%s\n", strings.Join(families, "+"), map[bool]int{true: 1}[differs], strings.Join(report, " "), c.id)
	return errors.Join(err, f.Close())
}

func readCases(t *testing.T, today part.Part) []testCase {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	seen := make(map[string]bool)
	var all []testCase
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if line == "" || line[0] == '#' {
				continue
			}
			m := caseLine.FindStringSubmatch(line)
			if m == nil || seen[m[1]] {
				t.Fatalf("%s: bad or repeated line %q", file, line)
			}
			seen[m[1]] = true
			if !today.Has(m[1]) {
				continue
			}
			c := testCase{id: m[1], place: m[2], command: command{line: m[4], shell: strings.Contains(m[3], "e")}}
			all = append(all, c.expand(t, strings.Contains(m[3], "v"), today)...)
		}
	}
	return all
}

var (
	caseLine    = regexp.MustCompile(`^(\S+)\s+([RLA])([ev]*)\s+(.*)$`)
	compilerVar = regexp.MustCompile(`\$P?C(C|XX)\b`)
)

// expand returns the case for each of the compilers that it runs with today.
func (c testCase) expand(t *testing.T, versions bool, today part.Part) []testCase {
	if !compilerVar.MatchString(c.line) {
		return []testCase{c}
	}
	some := func(names []string) []string {
		if today.Whole() || len(names) == 0 {
			return names
		}
		n := today.Way(c.id, len(names))
		return names[n : n+1]
	}
	names := strings.Fields(*compilers)
	if !today.Whole() && !need.Has(t, need.Tools) { // the turn of one that is missing is another's
		names = slices.DeleteFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err != nil })
	}
	names = some(names)
	if versions {
		names = append(names, some(otherVersions())...)
	}
	var all []testCase
	for _, cc := range names {
		c := c
		c.cc = cc
		c.cxx = strings.Replace(strings.Replace(cc, "gcc", "g++", 1), "clang", "clang++", 1)
		all = append(all, c)
		all[len(all)-1].id += "@" + cc
	}
	return all
}

// otherVersions are the installed compilers with a number in their names that are
// not those without one.
var otherVersions = sync.OnceValue(func() []string {
	have := make(map[string]bool)
	for _, name := range strings.Fields(*compilers) {
		have[real(name)] = true
	}
	found := make(map[string]string)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, glob := range []string{"gcc-[0-9]*", "clang-[0-9]*"} {
			names, _ := filepath.Glob(filepath.Join(dir, glob)) // the pattern is right
			for _, path := range names {
				if version.MatchString(filepath.Base(path)) && !have[real(path)] {
					found[real(path)] = filepath.Base(path)
				}
			}
		}
	}
	return slices.Sorted(maps.Values(found))
})

var version = regexp.MustCompile(`^(gcc|clang)-\d+$`)

func real(name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return name
	}
	return path
}

var (
	// tool finds the compilers that a command line runs: at the start of a command, or of one that it keeps in a
	// variable of one letter, after variables, or asked for by name.
	tool = regexp.MustCompile(`(?:\$W|\|\||&&|;|^|command -v|\b[A-Z]=['"])\s*(?:\w+=\S*\s+)*(?:env\s+)?((?:clang|gcc|g|cc|c|ccache|c99|c89|x86_64-linux-gnu-gcc|aarch64-linux-gnu-g(?:cc|\+\+))[-+\w]*)[\s)]`)
	// toolPath finds those that it runs by their path.
	toolPath = regexp.MustCompile(`\$W\s+(/\S+)`)
	// objective finds gcc's compiles of Objective-C, for which gcc needs a part that is installed by itself.
	objective = regexp.MustCompile(`\bgcc\s.*(?:\.mm?\b|-x objective-c)`)
)

// tools returns the compilers that the command names.
func (c command) tools() []string {
	names := []string{c.cc, c.cxx}
	for _, re := range []*regexp.Regexp{tool, toolPath} {
		for _, m := range re.FindAllStringSubmatch(c.line, -1) {
			names = append(names, m[1])
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains([]string{"", "cd", "cp", "cat", "chmod", "case"}, name) || strings.HasPrefix(name, "nosuch")
	})
}

// missingTool returns the first program that the command needs and that is not installed, or "".
func missingTool(c command) string {
	for _, name := range c.tools() {
		if _, err := exec.LookPath(name); err != nil {
			return name
		}
	}
	if objective.MatchString(c.line) {
		// gcc prints a path for what it has, and the bare name for what it lacks.
		if out, err := exec.Command("gcc", "-print-prog-name=cc1obj").Output(); err != nil || !filepath.IsAbs(strings.TrimSpace(string(out))) {
			return "cc1obj"
		}
	}
	return ""
}

// TestMissingTool takes the corpus to a machine that has a gcc for C and C++ and nothing else.
func TestMissingTool(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"gcc", "g++", "cc", "c++"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho \"${1#-print-prog-name=}\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	for line, want := range map[string]string{
		`$W gcc -c a.c`: "",
		`PATH=$LINKS:$PATH env gcc -c a.c -o x.o`:      "",
		`PATH=$LINKS:$PATH cc -MD -c a.c`:              "",
		`$W gcc -c o.m`:                                "cc1obj",
		`$W gcc -g -c o.m`:                             "cc1obj",
		`$W gcc -x objective-c -c a.c`:                 "cc1obj",
		`$W gcc -c main.c`:                             "",
		`PATH=$LINKS:$PATH clang -c a.c`:               "clang",
		`PATH=$LINKS:$PATH env clang -c a.c`:           "clang",
		`$W "$(command -v clang)" -g -c a.c`:           "clang",
		`$W "$(command -v gcc)" -g -c a.c`:             "",
		`$W /nowhere/llvm-14/bin/clang -g -c a.c`:      "/nowhere/llvm-14/bin/clang",
		`$W ` + bin + `/gcc -g -c a.c`:                 "",
		`CC_PRINT_HEADERS=1 $W clang -c a.c`:           "clang",
		`$W gcc -c a.c && ccache gcc -c a.c`:           "ccache",
		`CCACHE_DISABLE=1 ccache gcc -c a.c`:           "ccache",
		`$W nosuch-gcc -c a.c`:                         "",
		`$W ./mycc -g -c a.c`:                          "",
		`ln -s "$(command -v gcc)" mycc && $W ./mycc `: "",
	} {
		if got := missingTool(command{line: line}); got != want {
			t.Errorf("%s: %q is missing, want %q", line, got, want)
		}
	}
}

// misplaced are the jobs that did not run where the case wants them, and those
// that met trouble.
func (c testCase) misplaced(report []string) (wrong []string) {
	if c.place == "R" && len(report) == 0 {
		return []string{"rdistcc reported nothing"}
	}
	for _, line := range report {
		where, reason, _ := strings.Cut(line, ":")
		switch {
		case where == "local" && slices.Contains(trouble, reason):
			wrong = append(wrong, fmt.Sprint("trouble: ", line))
		case c.place == "R" && where != "remote" && !asText(), c.place == "L" && where != "local":
			wrong = append(wrong, fmt.Sprintf("ran %s, want %s", line, c.place))
		}
	}
	return wrong
}

// trouble is the reasons that are none by rule, and that tell of a fault here.
var trouble = []string{"no-hosts", "host-list", "no-slot", "host-lost", "timeout", "refused:policy", "refused:full", "refused:draining", "denied", "manager"}
