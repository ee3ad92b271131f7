package attacks

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

var (
	full  = flag.Bool("full", false, "every attack, by every compiler, in every mode; else a part")
	only  = flag.String("only", "", "attacks whose class is this, or whose id contains it; several with commas")
	by    = flag.String("by", "", "attacks by compilers whose name begins so")
	where = flag.String("mode", "", "modes with this name only")
	tell  = flag.Bool("tell", false, "say what came of each attack")
)

// flat is how much a daemon's own memory may grow over a run, in bytes.
const flat = 96 << 20

// thirds is into how many parts short runs divide the attacks: each mode gets another one. A part of the suite
// (kit/part) has one of so many times more, and begins with another one each day.
const thirds = 3

// always are in each third: what fires the canaries that little else does. Of much smaller parts each has a quarter of them.
var always = []string{"vector-giant/clang", "giant-asm-align/clang", "giant-asm-space/clang", "fork-bomb/gcc", "orphan-background/gcc", "rept-warning/gcc", "zero-linemarker/gcc",
	"disk-fill/gcc", "output-errors/clang", "fifo-include/gcc", "wrapper/gcc", "mapper-unix/g++"}

// some returns part n of the trials, of parts: each attack by one compiler, and of those that want the
// machine, which take their time, one in four.
func some(list []trial, part, parts int) []trial {
	var all []trial
	smaller := parts >= 8*thirds
	for i, n, dos := 0, 0, 0; i < len(list); n++ {
		end := i + 1
		for end < len(list) && list[end].id == list[i].id {
			end++
		}
		t, must := list[i+(n/parts+part)%(end-i)], false
		for _, x := range list[i:end] {
			if k := slices.Index(always, x.String()); k >= 0 && (!smaller || (k+part)%4 == 0) {
				t, must = x, true
			}
		}
		i = end
		switch {
		case must:
		case n%parts != part%parts:
			continue
		case t.class == "dos":
			if dos++; dos%4 != 1 {
				continue
			}
		}
		all = append(all, t)
	}
	return all
}

// tally counts what came of the attacks of a class.
type tally struct{ jobs, refused, contained, breached int }

// table prints tallies by class.
func table(t *testing.T, name string, of map[string]*tally, kinds map[string]int) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%-8s %6s %8s %10s %9s\n", name, "class", "jobs", "refused", "contained", "breaches")
	var sum tally
	for _, class := range slices.Sorted(maps.Keys(of)) {
		c := of[class]
		fmt.Fprintf(&b, "%-8s %6d %8d %10d %9d\n", class, c.jobs, c.refused, c.contained, c.breached)
		sum.jobs, sum.refused, sum.contained, sum.breached = sum.jobs+c.jobs, sum.refused+c.refused, sum.contained+c.contained, sum.breached+c.breached
	}
	fmt.Fprintf(&b, "%-8s %6d %8d %10d %9d\n", "all", sum.jobs, sum.refused, sum.contained, sum.breached)
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "canary %-8s %d\n", k, kinds[k])
	}
	t.Log(b.String())
}

// count adds a verdict.
func count(of map[string]*tally, kinds map[string]int, tr trial, v verdict) {
	c := of[tr.class]
	if c == nil {
		c = &tally{}
		of[tr.class] = c
	}
	c.jobs++
	switch {
	case len(v.breaches) > 0:
		c.breached++
	case strings.HasPrefix(v.what, "refused"):
		c.refused++
	default:
		c.contained++
	}
	seen := map[string]bool{}
	for _, b := range v.breaches {
		kind, _, _ := strings.Cut(b, ":")
		if !seen[kind] {
			seen[kind] = true
			kinds[kind]++
		}
	}
}

// chosen is what the flags ask for.
func chosen(t *testing.T, have map[string]bool, mode int) []trial {
	list := trials(corpus(t), have)
	if today := part.Of(t); !*full && *only == "" {
		list = some(list, mode+int(today.Seed()), thirds*today.Parts())
	}
	return slices.DeleteFunc(list, func(tr trial) bool {
		asked := *only == ""
		for _, w := range strings.Split(*only, ",") {
			asked = asked || strings.Contains(tr.id, w) || tr.class == w
		}
		return !asked || !strings.HasPrefix(tr.cc, *by)
	})
}

// TestAttacks sends every attack of the corpus to daemons in every way in which one can be
// run. Nothing of what they want may come about, and honest jobs go on as if nothing
// were. A part of the suite has two of the ways, others the next day.
func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	bin := filepath.Join(farmtest.Programs(t), "rdistccd")
	tcs, have := identify(t)
	today := part.Of(t)
	for i, m := range modes {
		if *where != "" && m.name != *where {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if err := m.can(); err != nil {
				t.Skip(err)
			}
			if !today.Whole() && *where == "" && os.Geteuid() == 0 && (uint64(i)+2*today.Seed())%uint64(len(modes)) > 1 {
				t.Skip("its turn is another day")
			}
			s := newSite(t, m, bin, tcs)
			s.honest(t, compilers...)
			s.proven(t)
			before := s.rss()
			of, kinds := map[string]*tally{}, map[string]int{}
			for n, tr := range chosen(t, have, i) {
				if tr.sources && !s.trees {
					continue
				}
				v := s.try(t, tr)
				count(of, kinds, tr, v)
				if *tell {
					t.Logf("%s: %s: %v", tr, v.what, v.breaches)
				}
				if len(v.breaches) > 0 {
					t.Errorf("%s %s: %q (%s)", tr.class, tr, v.breaches, v.what)
				}
				switch {
				case n%40 == 39:
					s.honest(t, compilers...)
				case tr.class == "dos":
					s.honest(t, "gcc")
				}
			}
			s.endTenants()
			s.honest(t, compilers...)
			s.proven(t)
			if after := s.rss(); after > before+flat {
				t.Errorf("the daemon grew from %d MiB to %d MiB", before>>20, after>>20)
			}
			table(t, m.name, of, kinds)
		})
	}
}

// proven checks what the daemon has found by itself: a program in place of a compiler, in every runner,
// that tries each way out (internal/sandbox/probe), and compiles that succeed.
func (s *site) proven(t *testing.T) {
	t.Helper()
	const name = "rdistccd_sandbox_canaries_total"
	// A place proves itself when it has nothing else to do.
	for began := time.Now(); s.metric(t.Context(), name, `result="passed"`) < 1 && time.Since(began) < 2*time.Minute; {
		s.rest()
	}
	passed, failed := s.metric(t.Context(), name, `result="passed"`), s.metric(t.Context(), name, `result="failed"`)
	level := s.metric(t.Context(), "rdistccd_sandbox_level", "")
	if passed < 1 || failed > 0 || level < 2 {
		t.Errorf("canaries: %v passed, %v failed, level %v", passed, failed, level)
		for line := range strings.SplitSeq(string(readFile(t, s.log)), "\n") {
			if strings.Contains(line, "SANDBOX") || strings.Contains(line, "confine") {
				t.Log(line)
			}
		}
	}
}

// honest runs an ordinary job by each compiler and in each form, which must give what the
// compiler gives here.
func (s *site) honest(t *testing.T, by ...string) {
	t.Helper()
	text := "struct s { int a; char *b; };\nint f(struct s *p) { return p->a + p->b[3]; }\n"
	dir := t.TempDir()
	for _, cc := range by {
		if _, ok := s.tcs[cc]; !ok {
			continue
		}
		suffix, lang, name := "c", "c", cc
		if strings.HasSuffix(cc, "++") {
			suffix, lang = "cc", "c++"
		}
		if err := os.WriteFile(filepath.Join(dir, "h."+suffix), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), s.tcs[name].Exec, "-O2", "-c", "h."+suffix, "-o", "h.o")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cc, err, out)
		}
		want := readFile(t, filepath.Join(dir, "h.o"))
		for _, form := range []string{"text", "sources"} {
			b := &job.Body{Argv0: cc, Language: strings.Replace(lang, "c", "c", 1) + "-cpp-output", Name: "h." + suffix, Cwd: "/src", Args: []string{"-O2"}, Outputs: []unit.Output{{Name: "h.o"}}}
			if lang == "c" {
				b.Language = "cpp-output"
			}
			if form == "sources" {
				b.Language, b.Args, b.Files = lang, []string{"-O2", "-c", b.Name, "-o", "h.o"}, []unit.File{{Name: b.Name, Len: uint64(len(text))}}
			}
			c, err := s.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Run(t.Context(), &rawjob.Job{Toolchain: s.tcs[cc].ID, Body: b, Text: []byte(text), Sink: 1 << 20})
			if err != nil {
				s.hangUp()
				t.Fatalf("honest job, %s, %s: %v: %s", cc, form, err, s.tail())
			}
			if form == "sources" {
				if s.trees = c.Welcome().Tree; !s.trees && r.Status == job.StatusRefused {
					continue
				}
			}
			if r.Status != job.StatusRan || r.Exit != 0 || r.Signal != 0 {
				t.Fatalf("honest job, %s, %s: status %d, %v, %s; exit %d: %s", cc, form, r.Status, r.Cause, r.Detail, r.Exit, r.Segment(r.Stderr))
			}
			if len(r.Files) != 1 || !bytes.Equal(r.Segment(r.Files[0].Segment), want) {
				t.Fatalf("honest job, %s, %s: another object than the compiler's", cc, form)
			}
		}
	}
}
