package equal

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	sequencesOf  = flag.String("sequences", "", "all: every sequence with every variant; else names, with commas between, with every variant")
	sequenceFarm = flag.Bool("sequence-farm", true, "also the sequences that restart managers and daemons")
)

// A sequence is a tree of files and what happens to it between compiles. After
// every step the command runs plain and behind rdistcc; what the manager and the
// hosts remember of the steps before must not show.
//
// The files of testdata/sequences have many of them. Each begins with a line
// "=== NAME", then come lines of one verb each:
//
//	# ...             a remark
//	only WORD...      is left out unless all of these are so: gcc, clang, c, c++, -g, -O2, -MD, root, list (and other values of -inputs)
//	needs PROGRAM...  is left out where one of these is not installed
//	slow              only with -sequences: long, or unlikely to find what others do not
//	cmd LINE          from here on this is the command; it runs
//	do LINE           shell commands change the tree; the command runs
//	pre LINE          the same, and the command does not run until the next step
//	flip FILE A B     the command runs several times while the first byte A of FILE becomes B and A again, all the time
//	blink FILE        the command runs several times while FILE goes away and comes again, all the time
//	farm WORD         one of farmVerbs; the command runs
//
// and, about the step above or, before the first one, about all steps:
//
//	at any            the compile may run here; else one that succeeds runs on a host, and only there
//	how WORD...       how the inputs are known: scan, memo, list, text; else any way is right
//	known WORD...: TEXT  differs where all the words are so (as with only): a mistake that is not mended
//	known? WORD...: TEXT  the same, but not each time
//
// then files as in a txtar archive. $X in lines and in names is c or cc, $COMPILE
// a compiler with the variant's options and an output outside the tree. Between
// two runs of the command what it made is taken away.
type sequence struct {
	name  string
	place string // file:line
	only  []string
	needs []string // programs beside the compiler's
	slow  bool
	farm  bool
	all   step // about all steps
	steps []step
	files []txtar.File
}

type step struct {
	line   int
	before []action // what happens before the command runs
	cmd    string   // from here on
	race   []string // flip or blink, and its words
	at     string
	how    []string
	known  []mark
}

// action is a shell command, or a farm's verb.
type action struct{ shell, farm string }

// mark is a difference that is known.
type mark struct {
	where []string
	text  string
	maybe bool // it need not
}

// variant is how a sequence's commands compile.
type variant struct {
	cc, lang, opt, dep string
}

// is reports whether all words are so.
func (v variant) is(words []string) bool {
	way := *inputs
	if way == "" {
		way = "auto"
	}
	family, _, _ := strings.Cut(v.cc, "-")
	have := slices.Concat([]string{family, v.cc, v.lang, v.dep, way}, strings.Fields(v.opt))
	if os.Geteuid() == 0 {
		have = append(have, "root")
	}
	return !slices.ContainsFunc(words, func(w string) bool {
		no, negated := strings.CutPrefix(w, "!")
		return slices.Contains(have, no) == negated
	})
}

func (v variant) String() string {
	return strings.ReplaceAll(strings.TrimSpace(strings.Join([]string{v.cc, v.lang, v.opt, v.dep}, " ")), " ", "_")
}

// suffix is that of a source's name.
func (v variant) suffix() string {
	if v.lang == "c++" {
		return "cc"
	}
	return "c"
}

// vars are the variables of a variant's commands.
func (v variant) vars(p *place, wrapped bool) []string {
	cc, w, deps := v.cc, "", ""
	if v.lang == "c++" {
		cc = strings.Replace(strings.Replace(cc, "gcc", "g++", 1), "clang", "clang++", 1)
	}
	if wrapped {
		w = p.g.Wrapper + " "
	}
	out, scratch := p.outside()
	if v.dep != "" {
		deps = v.dep + " -MF " + filepath.Join(out, "x.d") + " "
	}
	return []string{"X=" + v.suffix(), "OUT=" + out, "T=" + scratch, "OPT=" + v.opt, "CC=" + w + cc, "PLAIN=" + cc,
		"COMPILE=" + w + cc + " " + v.opt + " " + deps + "-c -o " + filepath.Join(out, "x.o"), "OTHER=" + p.g.other}
}

// outside are two directories beside the tree: for what a command makes, so that
// the tree's directories stay as they are, and for what a step needs.
func (p *place) outside() (out, scratch string) {
	return filepath.Join(p.dir, "out"), filepath.Join(p.dir, "scratch")
}

// prelude has functions for steps.
const prelude = `
same() { touch -r "$1" "$T/ref"; sed "$2" "$1" > "$T/new"; cat "$T/new" > "$1"; touch -r "$T/ref" "$1"; } # in place, time and (by the sed command) size kept
over() { sed "$2" "$1" > "$1.new"; touch -r "$1" "$1.new"; mv "$1.new" "$1"; } # another file by the name, time kept
deep() { d=$1; i=0; while [ $i -lt $2 ]; do d=$d/${3:-d}; i=$((i+1)); done; echo $d; } # ROOT LEVELS [NAME]
`

// readSequences reads all files of testdata/sequences.
func readSequences(t *testing.T) (all []sequence) {
	t.Helper()
	names, err := filepath.Glob("testdata/sequences/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no sequences", err)
	}
	seen := make(map[string]bool)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		line := 0
		for i, part := range strings.Split("\n"+string(text), "\n=== ") {
			if i > 0 {
				s, err := parseSequence(part, filepath.Base(name), line)
				if err != nil {
					t.Fatal(err)
				}
				if seen[s.name] {
					t.Fatalf("%s: there are two of %s", s.place, s.name)
				}
				seen[s.name] = true
				all = append(all, s)
			}
			line += strings.Count(part, "\n") + 1
		}
	}
	return all
}

func parseSequence(text, file string, line int) (sequence, error) {
	a := txtar.Parse([]byte(text))
	head, rest, _ := strings.Cut(string(a.Comment), "\n")
	s := sequence{name: head, place: fmt.Sprintf("%s:%d", file, line), files: a.Files}
	var next step
	at := &s.all
	for verb := range strings.Lines(rest) {
		line++
		verb, arg, _ := strings.Cut(strings.TrimSpace(verb), " ")
		words := strings.Fields(arg)
		ends := false // the step has its command
		switch verb {
		case "", "#":
		case "only":
			s.only = words
		case "needs":
			s.needs = words
		case "slow":
			s.slow = true
		case "pre":
			next.before = append(next.before, action{shell: arg})
		case "do":
			next.before = append(next.before, action{shell: arg})
			ends = true
		case "farm":
			if farmVerbs[arg] == nil {
				return s, fmt.Errorf("%s:%d: %q is no verb of a farm's", file, line, arg)
			}
			next.before = append(next.before, action{farm: arg})
			s.farm, ends = true, true
		case "cmd":
			next.cmd, ends = arg, true
			s.farm = s.farm || strings.Contains(arg, "$OTHER")
		case "flip", "blink":
			next.race, ends = append([]string{verb}, words...), true
			if want := map[string]int{"flip": 3, "blink": 1}[verb]; len(words) != want {
				return s, fmt.Errorf("%s:%d: %s takes %d words", file, line, verb, want)
			}
		case "at":
			at.at = arg
		case "how":
			at.how = words
		case "known", "known?":
			where, what, ok := strings.Cut(arg, ": ")
			if !ok {
				return s, fmt.Errorf("%s:%d: known WORD...: TEXT", file, line)
			}
			at.known = append(at.known, mark{strings.Fields(where), what, verb == "known?"})
		default:
			return s, fmt.Errorf("%s:%d: no verb: %q", file, line, verb)
		}
		if ends {
			if next.cmd == "" {
				if len(s.steps) == 0 {
					return s, fmt.Errorf("%s:%d: a step before the first cmd", file, line)
				}
				next.cmd = s.steps[len(s.steps)-1].cmd
			}
			next.line, next.at, next.how, next.known = line, s.all.at, s.all.how, slices.Clone(s.all.known)
			s.steps = append(s.steps, next)
			at, next = &s.steps[len(s.steps)-1], step{}
		}
	}
	if len(s.steps) == 0 || len(next.before) > 0 {
		return s, fmt.Errorf("%s: no step, or something after the last one", s.place)
	}
	return s, nil
}

// variants are those that a sequence is run with: all, or one, each time the same.
func (s sequence) variants() []variant {
	var by [][]variant // for each compiler
	for _, cc := range strings.Fields(*compilers) {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		var these []variant
		for _, lang := range []string{"c", "c++"} {
			for _, opt := range []string{"-O2", "-g", "-O1 -g3"} {
				for _, dep := range []string{"-MD", ""} {
					if v := (variant{cc, lang, opt, dep}); v.is(s.only) {
						these = append(these, v)
					}
				}
			}
		}
		if len(these) > 0 {
			by = append(by, these)
		}
	}
	if *sequencesOf != "" || len(by) == 0 {
		return slices.Concat(by...)
	}
	h := fnv.New32a()
	h.Write([]byte(s.name))
	n := int(h.Sum32() >> 4)
	these := by[0]
	if n%6 == 0 { // the second one, clang, takes three times as long to start
		these = by[n/6%len(by)]
	}
	return these[n/36%len(these) : n/36%len(these)+1]
}

// wanted reports whether the flags ask for the sequence.
func (s sequence) wanted(i int) bool {
	switch {
	case *sequencesOf == "all":
		return true
	case *sequencesOf != "":
		return slices.Contains(strings.Split(*sequencesOf, ","), s.name)
	case testing.Short():
		return i%8 == 0 && !s.farm && !s.slow
	}
	return !s.slow
}

// TestSequences: earlier compiles, and changes of files since, do not show in the result of a compile; what the cache of
// results has kept is never used for another state of the files. After each step the command runs without the cache, and
// then twice with it, all beside one plain run.
func TestSequences(t *testing.T) { sequences(t, 0, false, true, true) }

// TestSequencesCached does the same in the other order, so that the cache is the first to be asked after a change. In a
// part of the suite, each sequence runs in one of the two.
func TestSequencesCached(t *testing.T) {
	if testing.Short() {
		t.Skip("all sequences once more")
	}
	sequences(t, 1, true, true, false)
}

// sequences runs those of today's that have this turn, with the passes given.
func sequences(t *testing.T, turn int, passes ...bool) {
	g := stand(t)
	today := part.Of(t)
	all := slices.DeleteFunc(readSequences(t), func(s sequence) bool {
		return !today.Has(s.name) || !today.Whole() && today.Way(s.name, 2) != turn
	})
	var total tally
	run := func(t *testing.T, s sequence, v variant, p *place) {
		p.passes = passes
		defer func() { p.passes, p.cached = nil, false }() // the place is another test's next
		if err := s.run(t, p, v, &total); err != nil {
			t.Errorf("%s: %v", s.place, err)
		}
	}
	t.Run("tree", func(t *testing.T) {
		for i, s := range all {
			if s.farm || !s.wanted(i) {
				continue
			}
			for _, v := range s.variants() {
				t.Run(s.name+"/"+v.String(), func(t *testing.T) {
					t.Parallel()
					for _, program := range s.needs {
						if _, err := exec.LookPath(program); err != nil {
							need.Skipf(t, need.Tools, "no %s", program)
						}
					}
					p := <-g.places
					defer func() { g.places <- p }()
					run(t, s, v, p)
				})
			}
		}
	})
	t.Run("farm", func(t *testing.T) {
		if security != (farm.Security{}) {
			t.Skip("the second farm would need proofs of its own")
		}
		if !*sequenceFarm || !slices.ContainsFunc(all, func(s sequence) bool { return s.farm && s.wanted(1) }) {
			t.Skip("not asked for")
		}
		p, err := g.another(t)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range all {
			if !s.farm || !s.wanted(i) {
				continue
			}
			for _, v := range s.variants() {
				t.Run(s.name+"/"+v.String(), func(t *testing.T) { run(t, s, v, p) })
			}
		}
	})
	t.Logf("%d sequences of %v; %v", len(all), today, &total)
	if hits := total.jobs["cached"]; hits == 0 && !asText() && total.steps > 20 && t.Context().Err() == nil {
		t.Error("nothing came from the cache")
	}
}

// tally counts what ran where.
type tally struct {
	mu     sync.Mutex
	steps  int // guarded by mu, as all below
	known  int
	failed int // compiles that failed, plain
	jobs   map[string]int
	ways   map[string]int
}

func (c *tally) add(plain, wrapped outcome, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs, c.ways = make(map[string]int), make(map[string]int)
	}
	c.steps++
	if known {
		c.known++
	}
	if plain.status != 0 {
		c.failed++
	}
	for _, j := range wrapped.jobs {
		where := j.Where
		if where == "local" {
			where += ":" + j.Reason
		}
		c.jobs[where]++
		if j.Inputs != "" {
			c.ways[j.Inputs]++
		}
	}
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d steps, %d of them known to differ, %d compiles that fail; jobs: %v; inputs: %v", c.steps, c.known, c.failed, c.jobs, c.ways)
}
