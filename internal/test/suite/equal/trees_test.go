package equal

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	randomTrees = flag.Int("trees", 16, "random trees that TestRandomTrees tries")
	treesFrom   = flag.Int("trees-from", 0, "first tree of TestRandomTrees")
)

// TestRandomTrees: sequences that no one thought of. The tree, the includes and what
// happens are those of -seed and the tree's number. What differs is made as small as
// it still differs, and told as it can stand in testdata/sequences.
func TestRandomTrees(t *testing.T) {
	g := stand(t)
	if asText() {
		t.Skip("preprocessed text differs in known ways")
	}
	var names []string
	for _, name := range strings.Fields(*compilers) {
		if _, err := exec.LookPath(name); err == nil {
			names = append(names, name)
		}
	}
	n := *randomTrees
	if testing.Short() {
		n = min(n, 4)
	}
	today := part.Of(t)
	var total tally
	var wait sync.WaitGroup
	end, limited := t.Deadline()
	done := 0
	for i := *treesFrom; i < *treesFrom+n; i++ {
		if limited && time.Until(end) < patience {
			break // rather tell of those
		}
		if !today.Has(fmt.Sprint("tree ", i)) {
			continue
		}
		done++
		p := <-g.places
		wait.Go(func() {
			defer func() { g.places <- p }()
			s, v := randomSequence(rand.New(rand.NewPCG(*randomSeed, uint64(i))), names)
			found, err := s.try(t.Context(), p, v, &total)
			if err != nil {
				t.Errorf("seed %d tree %d: %v", *randomSeed, i, err)
			}
			if found == "" || err != nil {
				return
			}
			small, what := s.shrunk(t.Context(), p, v, nil)
			if what == "" {
				small, what = s, "differed only once: "+found
			}
			t.Errorf("seed %d tree %d, %v: %s\n%s", *randomSeed, i, v, what, small.text())
		})
	}
	wait.Wait()
	t.Logf("%d trees of seed %d: %v", done, *randomSeed, &total)
}

// try runs the sequence up to the first step that differs and returns what does; "": nothing.
func (s sequence) try(ctx context.Context, p *place, v variant, total *tally) (found string, err error) {
	err = s.each(ctx, p, v, func(st step, w verdict) bool {
		if total != nil {
			total.add(w.plain, w.wrapped, false)
		}
		if d := slices.Concat(w.diffs, st.misplaced(w)); len(d) > 0 {
			found = fmt.Sprintf("step %d: %s\n%v", st.line, strings.Join(d, "\n"), w.wrapped.jobs)
		}
		return found == ""
	})
	return found, err
}

// shrinkTrials bounds how often a sequence is tried to make it smaller.
const shrinkTrials = 300

// shrunk is the sequence without what it differs without as well, and how it
// differs; "": not again.
//
// Before each trial, forget makes whatever the trials before have left irrelevant;
// nil: nothing does.
func (s sequence) shrunk(ctx context.Context, p *place, v variant, forget func()) (small sequence, found string) {
	trials := 0
	fails := func(s sequence) bool {
		if trials++; trials > shrinkTrials {
			return false
		}
		if forget != nil {
			forget()
		}
		what, err := s.try(ctx, p, v, nil)
		if err != nil || what == "" {
			return false
		}
		found = what
		return true
	}
	if !fails(s) {
		if again := fails(s); !again { // it may not fail each time
			return s, ""
		}
	}
	for before := ""; before != s.text() && trials < shrinkTrials; {
		before = s.text()
		s = s.smaller(fails)
	}
	return s, found
}

// smaller leaves out of the sequence what it fails without as well: steps, what
// happens in them, files, their lines, words of the command.
func (s sequence) smaller(fails func(sequence) bool) sequence {
	s.steps = without(s.steps, func(steps []step) bool {
		c := s
		c.steps = steps
		return len(steps) > 0 && fails(c)
	})
	for i := range s.steps {
		s.steps[i].before = without(s.steps[i].before, func(actions []action) bool {
			c := s
			c.steps = slices.Clone(s.steps)
			c.steps[i].before = actions
			return fails(c)
		})
	}
	s.files = without(s.files, func(files []txtar.File) bool {
		c := s
		c.files = files
		return fails(c)
	})
	for i, f := range s.files {
		lines := without(slices.Collect(strings.Lines(string(f.Data))), func(lines []string) bool {
			c := s
			c.files = slices.Clone(s.files)
			c.files[i].Data = []byte(strings.Join(lines, ""))
			return fails(c)
		})
		s.files[i].Data = []byte(strings.Join(lines, ""))
	}
	var words []string // of any of the commands
	for _, st := range s.steps {
		for w := range strings.FieldsSeq(st.cmd) {
			if w != "$COMPILE" && !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	}
	with := func(words []string) (c sequence) {
		c = s
		c.steps = slices.Clone(s.steps)
		for i, st := range c.steps {
			c.steps[i].cmd = strings.Join(slices.DeleteFunc(strings.Fields(st.cmd), func(w string) bool { return w != "$COMPILE" && !slices.Contains(words, w) }), " ")
		}
		return c
	}
	return with(without(words, func(words []string) bool { return fails(with(words)) }))
}

// without leaves out of the list what it fails without as well: large parts first.
func without[T any](list []T, fails func([]T) bool) []T {
	for n := (len(list) + 1) / 2; n > 0; n /= 2 {
		for at := len(list) - n; at > -n; at -= n {
			if less := slices.Concat(list[:max(at, 0)], list[at+n:]); fails(less) {
				list = less
			}
		}
	}
	return list
}

// text returns the sequence as a file of testdata/sequences has it.
func (s sequence) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "=== %s\nat any\n", s.name)
	cmd := ""
	for _, st := range s.steps {
		for i, a := range st.before {
			verb := "pre"
			if i == len(st.before)-1 && st.cmd == cmd {
				verb = "do"
			}
			fmt.Fprintf(&b, "%s %s\n", verb, a.shell)
		}
		if st.cmd != cmd || len(st.before) == 0 {
			fmt.Fprintf(&b, "cmd %s\n", st.cmd)
		}
		cmd = st.cmd
	}
	b.Write(txtar.Format(&txtar.Archive{Files: s.files}))
	return b.String()
}

// world is what a random sequence is made of.
type world struct {
	*rand.Rand
	dirs    []string        // directories with headers
	home    []string        // where each header is at first, if nowhere else
	names   []string        // of headers; one with a higher index includes none with a lower one unless it is guarded
	there   map[string]bool // paths of headers, as far as one knows
	away    map[string]bool // directories that have been moved away
	numbers int
}

func (r *world) one(of ...string) string { return of[r.IntN(len(of))] }
func (r *world) in(n int) bool           { return r.IntN(n) == 0 }
func (r *world) dir() string             { return r.one(r.dirs...) }
func (r *world) number() string          { r.numbers++; return fmt.Sprint(10 + (r.numbers*37+r.IntN(7))%90) }
func (r *world) flag() string            { return r.one("A", "B", "C") }
func (r *world) header() (i int, p string) {
	i = r.IntN(len(r.names))
	return i, r.dir() + "/" + r.names[i]
}

// some is a header that is there.
func (r *world) some() (i int, p string) {
	var all []string
	for p, is := range r.there {
		if is {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return r.header()
	}
	slices.Sort(all)
	p = r.one(all...)
	i = slices.IndexFunc(r.names, func(n string) bool { return strings.HasSuffix(p, "/"+n) })
	return max(i, 0), p
}

// name is how a directive names a header.
func (r *world) name(i int) string {
	n := r.names[i]
	switch r.IntN(16) {
	case 0:
		return `"` + path.Join("..", r.home[i], n) + `"`
	case 1:
		return r.one(`"`+r.home[i]+"/"+n+`"`, "<"+r.home[i]+"/"+n+">")
	case 2, 3, 4, 5:
		return "<" + n + ">"
	}
	return `"` + n + `"`
}

// directive is an include of a header, spelled in some way.
func (r *world) directive(name string) string {
	switch r.IntN(14) {
	case 0:
		return "# \tinclude/**/" + name
	case 1:
		return "#/* a\n b */include " + name + " // as it is"
	case 2:
		return "#inc\\\nlude \\\n" + name
	case 3:
		return "#import " + name
	}
	return "#include " + name
}

// include is one or two includes below a condition, and whether the header needs a guard.
func (r *world) include(from int) (text string, guard bool) {
	to := from + 1 + r.IntN(4)
	if r.in(4) {
		to, guard = r.IntN(len(r.names)), true
	}
	if to >= len(r.names) {
		return "#define " + r.flag() + " " + r.number(), guard
	}
	n := r.name(to)
	d := r.directive(n)
	plain := n[1 : len(n)-1]
	other := "#undef OTHER"
	if o := from + 1 + r.IntN(3); o < len(r.names) {
		other = r.directive(r.name(o))
	}
	k := r.IntN(len(r.names))
	switch r.IntN(18) {
	case 0:
		return "#if 0\n" + r.one(d, `#include "absent.h"`, "#include <"+r.dir()+">", "#include "+r.flag()) + "\n#endif", guard
	case 1:
		return "#ifdef " + r.flag() + "\n" + d + "\n#endif", guard
	case 2:
		return "#ifndef " + r.flag() + "\n" + d + "\n#else\n" + other + "\n#endif", guard
	case 3:
		return fmt.Sprintf("#if V%d > 50\n%s\n#elif defined(%s) || V%d %% 2\n%s\n#endif", k, d, r.flag(), k, other), guard
	case 4, 5:
		return fmt.Sprintf("#if __has_include(%s)\n%s\n#else\n%s\n#endif", n, d, other), guard
	case 6:
		return fmt.Sprintf("#if defined __has_include && __has_include(%s) && !__has_include(\"absent.h\")\n#define %s 1\n#else\n#undef %[2]s\n#endif", n, r.flag()), guard
	case 7:
		return fmt.Sprintf("#undef P\n#define P %s\n#include P", n), true
	case 8:
		return "#include S(" + plain + ")", true
	case 9:
		return fmt.Sprintf("#ifndef NAME\n#define NAME %s\n#endif\n#include NAME", n), true
	case 10:
		return fmt.Sprintf("#undef NAME\n#define NAME %s", n), true
	case 11:
		return fmt.Sprintf("#if __has_include_next(<%s>)\n#include_next <%[1]s>\n#endif", r.names[max(from, 0)]), true
	case 12:
		return fmt.Sprintf("#define %s 1\n%s\n#undef %[1]s", r.flag(), d), guard
	case 13:
		return "/*\n#include " + n + "\n*/ const char *TEXT(" + fmt.Sprint(from) + ") = \"\\\n#include " + plain + "\"; // '\n" + d, guard
	}
	return d, guard
}

// content is that of header i.
func (r *world) content(i int) string {
	guard := r.in(2)
	var lines []string
	for range r.IntN(4) {
		text, needs := r.include(i)
		lines = append(lines, text)
		guard = guard || needs
	}
	at := r.IntN(len(lines) + 1)
	lines = slices.Insert(lines, at, fmt.Sprintf("#undef V%d\n#define V%[1]d %s\n#ifdef MARK\nMARK(%[1]d)\n#endif", i, r.number()))
	text := strings.Join(lines, "\n") + "\n"
	switch {
	case guard && r.in(3):
		text = "#pragma once\n" + text
	case guard:
		r.numbers++
		text = fmt.Sprintf("#ifndef G%d\n#define G%[1]d\n%s#endif\n", r.numbers, text)
	}
	return text
}

// source is what is compiled.
func (r *world) source() string {
	text := `#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define S2(x) #x
#define S(x) S2(x)
#define MARK(i) static int CAT(mark, __COUNTER__) __attribute__((used)) = CAT(V, i);
#define TEXT(i) CAT(text, __COUNTER__)
`
	for range 2 + r.IntN(3) {
		t, _ := r.include(-1)
		text += t + "\n"
	}
	text += "int all[] = {\n"
	for i := range r.names {
		text += fmt.Sprintf("#ifdef V%d\nV%[1]d,\n#endif\n", i)
	}
	return text + "0};\n"
}

// printf is the shell's command for a file of some content.
func printf(text, file string) string {
	return "printf '" + strings.NewReplacer(`\`, `\\`, "%", "%%", "\n", `\n`, "'", `'\''`).Replace(text) + "' > " + file
}

// event is what happens to the tree: shell commands, each of which may fail.
func (r *world) event() string {
	i, p := r.some()
	j, q := r.header()
	d, e := r.dir(), r.dir()
	digits := fmt.Sprintf("'/define V/s/[0-9][0-9]$/%d/'", 10+r.IntN(90))
	switch r.IntN(24) {
	case 0, 1:
		return printf(r.content(i), p)
	case 2, 3, 4:
		return "same " + p + " " + digits
	case 5, 6:
		return "over " + p + " " + digits
	case 7:
		return r.one("touch "+p, "touch -d '+1 hour' "+p, "touch -d '1980-01-01' "+p, "touch "+d)
	case 8, 9, 10:
		r.there[q] = true
		return "mkdir -p " + path.Dir(q) + " && " + printf(r.content(j), q)
	case 11, 12:
		r.there[p] = false
		return "rm -r " + p
	case 13:
		r.there[p], r.there[d+"/"+r.names[i]] = false, true
		return "mkdir -p " + path.Dir(d+"/"+r.names[i]) + " && mv " + p + " " + d + "/" + r.names[i]
	case 14:
		if r.away[d] = !r.away[d]; r.away[d] {
			return "mv " + d + " away-" + strings.ReplaceAll(d, "/", "-")
		}
		return "rm -rf " + d + "; mv away-" + strings.ReplaceAll(d, "/", "-") + " " + d
	case 15:
		return "mv -T " + d + " t && mv -T " + e + " " + d + "; mv -T t " + e
	case 16:
		return "mv " + p + " " + p + ".real && ln -s " + path.Base(p) + ".real " + p
	case 17:
		return "ln -sf $PWD/" + q + " " + p
	case 18:
		return "rm -r " + p + " && mkdir " + p
	case 19:
		return "rmdir " + p + " && " + printf(r.content(i), p)
	case 20:
		return r.one("mv "+d+" real && ln -s $PWD/real "+d, "ln -sfn $PWD/"+e+" "+d)
	case 21:
		return "cp -p " + p + " $T/kept && same " + p + " " + digits + " && cp -p $T/kept " + p
	case 22:
		return printf(r.content(i), p) + "; " + "same " + p + " " + digits
	}
	return ":"
}

// randomSequence is a tree and what happens to it.
func randomSequence(rng *rand.Rand, compilers []string) (sequence, variant) {
	r := &world{Rand: rng, dirs: []string{"inc0", "inc1", "inc1/sub", "inc2"}, there: make(map[string]bool), away: make(map[string]bool)}
	v := variant{cc: r.one(compilers...), lang: r.one("c", "c++"), opt: r.one("-O2", "-g", "-O1 -g3"), dep: r.one("-MD", "-MMD", "")}
	for i := range 4 + r.IntN(6) {
		r.home = append(r.home, r.dir())
		r.names = append(r.names, r.one("", "", "", "sub/")+fmt.Sprintf("h%d.h", i))
	}
	s := sequence{name: "random"}
	file := func(name, text string) { s.files = append(s.files, txtar.File{Name: name, Data: []byte(text)}) }
	for i, n := range r.names {
		in := []string{r.home[i]}
		if r.in(2) {
			in = append(in, r.dir()) // one of them hides the other
		}
		for _, d := range in {
			if p := d + "/" + n; !r.there[p] {
				r.there[p] = true
				file(p, r.content(i))
			}
		}
	}
	source := r.one("m.$X", "src/m.$X", "inc0/m.$X")
	file(source, r.source())
	words := []string{"$COMPILE", "-Wno-deprecated"}
	for _, k := range r.Perm(len(r.dirs)) {
		words = append(words, r.one("-I", "-I", "-I", "-I", "-I", "-I", "-iquote ", "-isystem ", "-idirafter ")+r.one("", "", "", "./", "$PWD/")+r.dirs[k])
	}
	for _, extra := range []string{"-Inone", "-I" + r.dir(), "-isystem " + r.dir(), "-DA=1", "-DB", "-DNAME=" + r.one(`'"`+r.names[0]+`"'`, `'<`+r.names[1]+`>'`), "-include " + r.names[0], "-imacros " + r.names[1]} {
		if r.in(6) {
			words = slices.Insert(words, 1+r.IntN(len(words)), extra)
		}
	}
	words = slices.Insert(words, 1+r.IntN(len(words)), "-I.")
	if r.in(8) {
		words = slices.Insert(words, 0, "CPATH="+r.dir())
	}
	cmd := func() string { return strings.Join(append(slices.Clone(words), source), " ") }
	s.steps = []step{{cmd: cmd()}}
	for range 3 + r.IntN(4) {
		var st step
		for range 1 + r.IntN(2) {
			if r.in(12) {
				st.before = append(st.before, action{shell: printf(r.source(), source) + " || :"})
				continue
			}
			st.before = append(st.before, action{shell: "{ " + r.event() + "; } 2>/dev/null || :"})
		}
		if r.in(10) {
			words = append(words, r.one("-D", "-U")+r.flag())
		}
		st.cmd = cmd()
		s.steps = append(s.steps, st)
	}
	for i := range s.steps {
		s.steps[i].line, s.steps[i].at = i, "any"
	}
	return s, v
}
