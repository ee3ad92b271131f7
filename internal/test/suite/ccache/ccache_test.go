// Package ccache runs the test suite of ccache with rdistcc as its compiler: what ccache expects of a compiler's files, messages
// and statuses is to hold behind rdistcc too. The suite is in ccache's source package, which is fetched.
package ccache

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

var (
	run        = flag.Bool("ccache", false, "run ccache's own test suite (make ccache-suite)")
	suites     = flag.String("suites", "", "suites of it to run, separated by spaces; \"\": all")
	compiler   = flag.String("cc", "gcc", "compiler behind rdistcc")
	sourcesDir = flag.String("sources", "", "directory of the source packages (default: in the user's cache)")
)

// patience bounds one of its suites.
const patience = 20 * time.Minute

// TestSuite runs the suite plain and then with rdistcc, and wants as many of its cases to pass.
func TestSuite(t *testing.T) {
	if !*run {
		t.Skip("only by make ccache-suite")
	}
	ccache, err := exec.LookPath("ccache")
	if err != nil {
		need.Skipf(t, need.Tools, "ccache is not installed (on Debian: make deps)")
	}
	a, err := debsrc.New(*sourcesDir)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, farmtest.New(t, farmtest.Dir(t)), ccache, ""}
	s.sources = filepath.Join(s.Dir, "ccache")
	if err := a.Unpack(t.Context(), "ccache", s.sources); err != nil {
		t.Fatal(err)
	}
	d, err := s.StartDaemon(t.Context(), "host", "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartManager(t.Context(), "--hosts", d.Addr); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(s.Dir, "links", *compiler)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.Wrapper, link); err != nil {
		t.Fatal(err)
	}
	all := s.names()
	if *suites != "" {
		all = strings.Fields(*suites)
	}
	passed, of := 0, 0
	for _, name := range all {
		plain, said := s.cases(name, *compiler)
		if plain == 0 {
			t.Logf("%s: does not run here: %s", name, last(said))
			continue
		}
		with, said := s.cases(name, link)
		passed, of = passed+with, of+plain
		if with < plain {
			t.Errorf("%s: %d of %d cases pass: %s", name, with, plain, last(said))
		}
	}
	report, _ := os.ReadFile(filepath.Join(s.Dir, "report")) // there is none if no command ran
	t.Logf("%d of %d cases pass with rdistcc %s; %d compiles ran on the host", passed, of, *compiler, strings.Count(string(report), "remote:"))
}

// site is a farm, and what ccache's suite needs.
type site struct {
	*testing.T
	*farm.Farm
	ccache  string
	sources string
}

// suiteName finds the names of its suites.
var suiteName = regexp.MustCompile(`(?m)^addtest\((.*)\)$`)

// names returns the names of all suites.
func (s *site) names() (all []string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.sources, "test/CMakeLists.txt"))
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range suiteName.FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	if len(all) == 0 {
		s.Fatal("test/CMakeLists.txt names no suites")
	}
	return all
}

// cases runs a suite with a compiler and returns how many of its cases have passed. It ends with the first one that fails.
func (s *site) cases(name, cc string) (passed int, said string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.sources, "test/run"), name)
	cmd.Dir = s.sources
	cmd.Env = append(s.Env(), "CC="+cc, "CCACHE="+s.ccache, "RDISTCC_REPORT="+filepath.Join(s.Dir, "report"), "RDISTCC_VERBOSE=0")
	out, err := cmd.CombinedOutput()
	_, begun, _ := strings.Cut(string(out), "Running test suite "+name)
	dots, _, _ := strings.Cut(begun, "\n")
	if passed = strings.Count(dots, "."); err != nil && passed > 0 {
		passed--
	}
	return passed, string(out)
}

// last returns the end of what a suite has printed.
func last(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}
