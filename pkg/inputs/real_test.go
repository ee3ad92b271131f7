package inputs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/driver"
	"github.com/rdistcc/rdistcc/pkg/sources"
)

// compiler is a real compiler of one language.
type compiler struct {
	t        testing.TB
	cc, lang string
	own      []string
}

func newCompiler(t testing.TB, cc, lang string) *compiler {
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no %s", cc)
	}
	cmd := exec.Command(cc, driver.SearchWords(lang)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	return &compiler{t, cc, lang, driver.ParseSearch(string(out))}
}

// list is what the compiler itself says that it reads.
func (c *compiler) list(dir, source string, words ...string) ([]string, error) {
	cmd := exec.Command(c.cc, append(words, "-M", "-w", "-x", c.lang, source)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return sources.ParseRule(out)
}

func (c *compiler) query(dir, source string, angle ...string) *Query {
	return &Query{Key: c.cc + "\x00" + c.lang + "\x00" + dir + "\x00" + source + "\x00" + strings.Join(angle, "\x00"), Source: source, Cwd: dir, Angle: angle, Own: c.own, GCC: strings.HasPrefix(c.cc, "g")}
}

// missing are names that the compiler reads and the set lacks.
func missing(t testing.TB, s *Set, dir string, names []string) (lost []string) {
	t.Helper()
	have := make(map[string]bool)
	for _, f := range s.Files {
		have[f.Name] = true
	}
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = dir + "/" + name
		}
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			t.Fatal(err)
		}
		if !have[real] {
			lost = append(lost, name)
		}
	}
	return lost
}

// TestRealHeaders: of every header of the C library and of C++'s, each as the only one of a
// source, the set lacks nothing that the compiler reads.
func TestRealHeaders(t *testing.T) {
	for _, cc := range []string{"gcc", "g++", "clang", "clang++"} {
		t.Run(cc, func(t *testing.T) {
			lang := "c"
			if strings.HasSuffix(cc, "++") {
				lang = "c++"
			}
			c := newCompiler(t, cc, lang)
			table := New(Options{})
			dir := t.TempDir()
			seen, doubts, n := map[string]bool{}, 0, 0
			for _, own := range c.own {
				entries, _ := os.ReadDir(own)
				for _, e := range entries {
					name := e.Name()
					if seen[name] || e.IsDir() || strings.HasPrefix(name, ".") {
						continue
					}
					seen[name] = true
					if len(seen)%shareOfHeaders() != 0 {
						continue
					}
					source := "x.c"
					if err := os.WriteFile(dir+"/"+source, []byte("#include <"+name+">\n"), 0o666); err != nil {
						t.Fatal(err)
					}
					names, err := c.list(dir, source)
					if err != nil {
						continue // not to be included alone
					}
					q := c.query(dir, source)
					q.Key += name
					s, err := table.Resolve(q)
					if err != nil {
						doubts++
						t.Logf("%s: %v", name, err)
						continue
					}
					n++
					if lost := missing(t, s, dir, names); lost != nil {
						t.Errorf("%s: the set lacks %v", name, lost)
					}
				}
			}
			t.Logf("%d headers, %d in doubt; %+v", n, doubts, table.Stats())
			if n == 0 {
				t.Error("no header was tried")
			}
		})
	}
}

// shareOfHeaders is of how many headers one is tried.
func shareOfHeaders() int {
	if testing.Short() {
		return 20
	}
	return 4
}
