package inputs

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
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
			part.SkipCase(t)
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

var projectUnits = flag.Int("project-units", 4, "sources of a project's headers, for each compiler; 0: every header of it, and as many combinations")

// TestProjectHeaders: of headers of Boost's and the kernel's, each as the only one of a source and several of them in
// a random order, the set lacks nothing that the compiler reads: as the files tell it, or as the compiler did.
func TestProjectHeaders(t *testing.T) {
	for _, p := range []struct {
		name, lang string
		ccs        []string
		dirs       []string // below /usr/include
	}{
		{"boost", "c++", []string{"g++", "clang++"}, []string{"boost"}},
		// Those of Boost's that are for C as well.
		{"boost in C", "c", []string{"gcc", "clang"}, []string{"boost/config", "boost/predef", "boost/preprocessor", "boost/vmd"}},
		{"linux", "c", []string{"gcc", "clang"}, []string{"linux", "asm-generic"}},
		{"linux in C++", "c++", []string{"g++", "clang++"}, []string{"linux", "asm-generic"}},
	} {
		var headers []string
		for _, dir := range p.dirs {
			_ = filepath.WalkDir("/usr/include/"+dir, func(name string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					headers = append(headers, strings.TrimPrefix(name, "/usr/include/"))
				}
				return nil
			})
		}
		for _, cc := range p.ccs {
			t.Run(p.name+"/"+cc, func(t *testing.T) {
				if len(headers) == 0 {
					need.Skipf(t, need.Tools, "no headers below /usr/include/%s", p.dirs[0])
				}
				part.SkipCase(t)
				newProject(t, newCompiler(t, cc, p.lang), headers).all(p.name)
			})
		}
	}
}

// project holds the sets of one project's headers against a compiler's lists.
type project struct {
	t       *testing.T
	c       *compiler
	headers []string
	rng     *rand.Rand
	table   *Table
	dir     string

	units, alone, scans int // sources; those with one header; those that needed no compiler
	doubts              map[string]int
}

func newProject(t *testing.T, c *compiler, headers []string) *project {
	return &project{t: t, c: c, headers: headers, rng: rand.New(rand.NewPCG(*seed, 16)), table: New(Options{}), dir: t.TempDir(), doubts: make(map[string]int)}
}

func (p *project) all(name string) {
	order := p.rng.Perm(len(p.headers))
	n := cmp.Or(*projectUnits, 2*len(order))
	if testing.Short() {
		n = min(n, 2)
	}
	for i := 0; i < len(order) && p.alone < (n+1)/2; i++ {
		p.alone += p.unit([]string{p.headers[order[i]]})
	}
	for tries := 0; p.units < n && tries < 20*n; tries++ {
		several := make([]string, 2+p.rng.IntN(4))
		for k := range several {
			several[k] = p.headers[p.rng.IntN(len(p.headers))]
		}
		p.unit(several)
	}
	var doubts []string
	for _, why := range slices.Sorted(maps.Keys(p.doubts)) {
		doubts = append(doubts, fmt.Sprint(why, " ", p.doubts[why]))
	}
	p.t.Logf("%s: %d units, %d of them of one header, %d %% scan, doubts: %s", name, p.units, p.alone, 100*p.scans/max(1, p.units), strings.Join(doubts, ", "))
	if p.units == 0 {
		p.t.Error("no header was tried")
	}
}

// unit judges a source of some headers. It returns 0 where the compiler has none of it.
func (p *project) unit(headers []string) int {
	source := fmt.Sprintf("x%d.c", p.units)
	put(p.t, p.dir+"/"+source, "#include <"+strings.Join(headers, ">\n#include <")+">\n")
	names, err := p.c.list(p.dir, source)
	if err != nil {
		return 0
	}
	p.units++
	q := p.c.query(p.dir, source)
	s, err := p.table.Resolve(q)
	if err == nil {
		p.scans++
	} else {
		var d *Doubt
		if !errors.As(err, &d) {
			p.t.Fatal(err)
		}
		p.doubts[d.Why]++
		p.table.Learn(q, names, nil, false)
		if s, err = p.table.Resolve(q); err != nil {
			return 1
		}
	}
	if lost := missing(p.t, s, p.dir, names); lost != nil {
		p.t.Errorf("%v: the set lacks %v", headers, lost)
	}
	return 1
}
