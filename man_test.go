package rdistcc

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// TestManualPages checks that each flag, subcommand and variable stands in the
// manual page of its program, and that the pages are sound.
func TestManualPages(t *testing.T) {
	bin := farmtest.Programs(t)
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join("man", name))
		if err != nil {
			t.Fatal(err)
		}
		if groff, err := exec.LookPath("groff"); err != nil {
			t.Log("no groff: the pages are not formatted")
		} else if out, err := exec.CommandContext(t.Context(), groff, "-man", "-ww", "-z", "-Tutf8", filepath.Join("man", name)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff of %s: %v: %s", name, err, out)
		}
		return strings.ReplaceAll(string(text), `\-`, "-")
	}
	has := func(name, text, what string, words [][]string) {
		if len(words) < 3 {
			t.Errorf("%s: found only %d %s, the test looks in the wrong place", name, len(words), what)
		}
		for _, w := range words {
			if !regexp.MustCompile(`(^|[^-\w])` + regexp.QuoteMeta(w[1]) + `($|[^-\w])`).MatchString(text) {
				t.Errorf("man/%s: no word of %s", name, w[1])
			}
		}
	}
	help := func(program string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v: %s", program, err, out)
		}
		return string(out)
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`)
	for _, program := range []string{"rdistccd", "rdistcc-cm"} {
		has(program+".8", page(program+".8"), "flags", flag.FindAllStringSubmatch(help(program), -1))
	}
	text := page("rdistcc-perf.1")
	tests := regexp.MustCompile(`(?m)^  ([a-z_]+) +[A-Z]`).FindAllStringSubmatch(help("rdistcc-perf"), -1)
	has("rdistcc-perf.1", text, "commands", tests)
	for _, c := range tests {
		if c[1] != "help" {
			has("rdistcc-perf.1", text, "flags of "+c[1], flag.FindAllStringSubmatch(help("rdistcc-perf", c[1]), -1))
		}
	}
	text = page("rdistcc.1")
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`).FindAllStringSubmatch(help("rdistcc-cm", "ctl"), -1)
	has("rdistcc.1", text, "commands", commands)
	for _, c := range commands {
		for _, f := range flag.FindAllStringSubmatch(help("rdistcc-cm", "ctl", c[1]), -1) {
			if c[1] != "completion" { // it lists the shells'
				has("rdistcc.1", text, "flags of "+c[1], [][]string{f, f, f})
			}
		}
	}
	has("rdistcc.1", text, "words", regexp.MustCompile(`(?m)^  (?:.*  )?(--?[a-z-]+)`).FindAllStringSubmatch(help("rdistcc"), -1))
	usage, err := os.ReadFile("docs/usage.md")
	if err != nil {
		t.Fatal(err)
	}
	has("rdistcc.1", text, "variables", regexp.MustCompile("(?m)^\\| `(RDISTCC_[A-Z_]+)").FindAllStringSubmatch(string(usage), -1))
	has("rdistcc.1", text, "exit statuses", regexp.MustCompile(`(?m)^\| (1\d\d) \|`).FindAllStringSubmatch(string(usage), -1))
}

// TestVariablesAreDocumented checks that docs/usage.md has each variable that the
// wrapper reads.
func TestVariablesAreDocumented(t *testing.T) {
	usage, err := os.ReadFile("docs/usage.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("cmd/rdistcc/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(RDISTCC_[A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
			switch found++; m[1] {
			case "RDISTCC_", "RDISTCC_SAFEGUARD", "RDISTCC_READY_FD": // between our own processes
				continue
			}
			if !strings.Contains(string(usage), "`"+m[1]) {
				t.Errorf("%s reads %s, which is not in docs/usage.md", file, m[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("found only %d variables, the test looks in the wrong place", found)
	}
}
