package equal

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/compile"
)

var (
	every   = flag.String("every", "", "compilers of which TestOptions tries each option")
	perCase = flag.Int("at-once", 12, "options that TestOptions puts into one command, unless something differs")
)

// TestOptions compiles with each option that a compiler completes, on a host and here: object, dependency file and messages have to be the
// same. The compiler says which options, and which values, there are. Several options share a command; if that does not run on a
// host, or differs, its halves are tried.
func TestOptions(t *testing.T) {
	if *every == "" {
		t.Skip("takes hours: make options")
	}
	g := stand(t)
	f := readFixtures(t, "testdata/options.txtar")
	for _, cc := range strings.Fields(*every) {
		t.Run(cc, func(t *testing.T) {
			path, err := exec.LookPath(cc)
			if err != nil {
				t.Skipf("no %s", cc)
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				t.Fatal(err)
			}
			for _, language := range []string{"c", "c++"} {
				s := &survey{t: t, g: g, f: f, cc: cc, language: language, here: map[string][]string{}}
				if s.driver, _ = compile.DriverOf(cc, path); language == "c++" {
					s.driver.CXX = true
				}
				s.each(s.batches(s.travelling(completed(t, path, s.driver.Family))), s.try)
				s.tell()
			}
		})
	}
}

// survey is how a compiler's options fare with one language.
type survey struct {
	t        *testing.T
	g        *ground
	f        *fixtures
	cc       string
	language string
	driver   compile.Driver

	mu       sync.Mutex
	remote   []string            // guarded by mu: equal
	here     map[string][]string // guarded by mu: by reason
	refused  []string            // guarded by mu
	unstable []string            // guarded by mu: two plain compiles differ, too
}

// completed returns the options that a compiler completes, with values. Long forms of gcc's (--machine-avx) are left out: they are
// translated before anything else.
func completed(t *testing.T, path string, family compile.Family) (options []string) {
	t.Helper()
	ask := func(begin string) (list []string) {
		arg := map[compile.Family]string{compile.GCC: "--completion=", compile.Clang: "--autocomplete="}[family]
		out, err := exec.Command(path, arg+begin).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			list = append(list, word)
		}
		return list
	}
	for _, o := range ask("-") {
		var values []string
		if family == compile.Clang && strings.HasSuffix(o, "=") {
			values = ask(o)
		}
		switch {
		case family == compile.GCC && strings.HasPrefix(o, "--") && !strings.HasPrefix(o, "--param="), notCompiled.MatchString(o), strings.ContainsAny(o, " '"):
		case !strings.HasSuffix(o, "="):
			options = append(options, o)
		case len(values) > 0 && !strings.HasPrefix(values[0], "-"):
			for _, value := range values {
				options = append(options, o+value)
			}
		default:
			options = append(options, o+"1")
		}
	}
	slices.Sort(options)
	return slices.Compact(options)
}

// notCompiled are options that say where the output goes, that end a compiler, or that make it take much time for themselves.
var notCompiled = regexp.MustCompile(`^(-o$|--output|-c$|--compile|-x|--language|-fself-test|-fhelp|-ftarget-help|-fversion|--?help|-cc1|-wrapper|-fcompare-debug|-ftime-report|-fmem-report|-time)`)

// travelling returns the options with which a command may run on a host and that the compiler takes, and counts the others.
func (s *survey) travelling(options []string) (list []string) {
	reasons := make(map[string]string)
	for _, o := range options {
		if p := compile.Parse([]string{"-c", "a.c", "-o", "a.o", o}, s.driver, nil); p.Local || p.Sources != "" {
			reasons[o] = cmp.Or(p.Reason, p.Sources)
			s.here[reasons[o]] = append(s.here[reasons[o]], o)
		} else {
			list = append(list, o)
		}
	}
	var taken []string
	s.each(s.batches(list), func(p *place, batch []string) {
		for _, o := range s.taken(p, batch) {
			s.mu.Lock()
			taken = append(taken, o)
			s.mu.Unlock()
		}
	})
	slices.Sort(taken)
	for _, o := range list {
		if _, ok := slices.BinarySearch(taken, o); !ok {
			s.refused = append(s.refused, o)
		}
	}
	return taken
}

// taken returns those of some options with which the compiler compiles an empty file.
func (s *survey) taken(p *place, options []string) []string {
	args := append([]string{"-O2", "-g", "-x", s.language, "-c", os.DevNull, "-o", filepath.Join(p.dir, "empty.o")}, options...)
	cmd := exec.CommandContext(s.t.Context(), s.cc, args...)
	cmd.Dir = p.dir
	if cmd.Run() == nil {
		return options
	}
	if len(options) == 1 {
		return nil
	}
	half := len(options) / 2
	return append(s.taken(p, options[:half:half]), s.taken(p, options[half:])...)
}

// alone are options beside which others would mean nothing, or less.
var alone = regexp.MustCompile(`^(-g|-O|-E|-S$|-M|-w$|-W(no-)?error|-flto|-fsyntax|-fpreprocessed|-fsanitize=|-save-temps|--save-temps|-fverbose|-fdump|-emit|-std=|-x|-march=|-m(16|32|x32)$|-pg$|-Q$|-v$|-###)`)

// batches shares out options among commands. None has two options of one name, and names that begin alike are seldom together.
func (s *survey) batches(options []string) (list [][]string) {
	hash := func(o string) uint32 {
		h := fnv.New32a()
		h.Write([]byte(o))
		return h.Sum32()
	}
	options = slices.Clone(options)
	slices.SortFunc(options, func(a, b string) int { return cmp.Or(cmp.Compare(hash(a), hash(b)), strings.Compare(a, b)) })
	name := func(o string) string {
		o, _, _ = strings.Cut(o, "=")
		return strings.NewReplacer("-no-", "-", "-mno", "-m").Replace(o)
	}
	var open []map[string]bool // the names in batches that have room
	var at []int
	for _, o := range options {
		if alone.MatchString(o) {
			list = append(list, []string{o})
			continue
		}
		i := slices.IndexFunc(open, func(names map[string]bool) bool { return !names[name(o)] })
		if i < 0 {
			open, at, i = append(open, map[string]bool{}), append(at, len(list)), len(open)
			list = append(list, nil)
		}
		open[i][name(o)] = true
		if list[at[i]] = append(list[at[i]], o); len(list[at[i]]) >= *perCase {
			open, at = slices.Delete(open, i, i+1), slices.Delete(at, i, i+1)
		}
	}
	return list
}

// each hands batches to places.
func (s *survey) each(batches [][]string, do func(*place, []string)) {
	var wait sync.WaitGroup
	for _, b := range batches {
		p := <-s.g.places
		wait.Go(func() {
			defer func() { s.g.places <- p }()
			do(p, b)
		})
	}
	wait.Wait()
}

// try compares compiles with some options.
func (s *survey) try(p *place, options []string) {
	ctx := context.WithoutCancel(s.t.Context())
	c := command{line: "$CC -O2 -g -MD -c a.c -o a.o '" + strings.Join(options, "' '") + "'", cc: s.cc}
	if s.language == "c++" {
		c.cxx = strings.Replace(strings.Replace(s.cc, "gcc", "g++", 1), "clang", "clang++", 1)
		c.line = strings.Replace(strings.Replace(c.line, "$CC", "$CXX", 1), "a.c", "a.cc", 1)
	}
	wrapped, err := p.run(ctx, s.f, c, true)
	if err != nil {
		s.t.Error(err)
		return
	}
	where := strings.Join(wrapped.report, " ")
	if strings.HasPrefix(where, "remote:") {
		plain, err := p.run(ctx, s.f, c, false)
		if err != nil {
			s.t.Error(err)
			return
		}
		if len(differences(plain, wrapped, c)) == 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.remote = append(s.remote, options...)
			return
		}
	}
	if half := len(options) / 2; half > 0 {
		s.try(p, options[:half])
		s.try(p, options[half:])
		return
	}
	v, err := p.compare(ctx, s.f, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.t.Error(err)
	}
	switch where = strings.Join(v.wrapped.report, " "); {
	case len(v.diffs) > 0:
		s.t.Errorf("%s %s: %s\n%s", s.cc, c.line, where, strings.Join(v.diffs, "\n"))
	case len(v.unstable) > 0:
		s.unstable = append(s.unstable, options...)
	case strings.HasPrefix(where, "remote:"):
		s.remote = append(s.remote, options...)
	default:
		s.here[where] = append(s.here[where], options...)
	}
}

// tell logs what came out.
func (s *survey) tell() {
	var here []string
	total := 0
	for _, reason := range slices.Sorted(maps.Keys(s.here)) {
		slices.Sort(s.here[reason])
		list := s.here[reason]
		total += len(list)
		here = append(here, fmt.Sprintf("%s %d (%.100s)", reason, len(list), strings.Join(list, " ")))
	}
	s.t.Logf("%s, %s: %d options equal from a host, %d not the same twice without rdistcc, %d refused by the compiler, %d here:\n%s",
		s.cc, s.language, len(s.remote), len(s.unstable), len(s.refused), total, strings.Join(here, "\n"))
}
