package compile

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

var sidesRuns = flag.Int("sides", 6, "random command lines whose files TestSidesDeclared looks at, with each compiler")

// sidesOptions are what TestSidesDeclared combines; blanks within a word are "~".
var sidesOptions = map[string]string{
	"": `-g -gsplit-dwarf -gsplit-dwarf -save-temps -save-temps=obj -save-temps=cwd --coverage -ftest-coverage -fprofile-arcs -fstack-usage -flto -fsave-optimization-record
		-MD -MMD -MF~out/deps.mk -MFdeps.mk -MT~t -MP -Wp,-MD,wp.d -Wp,-MMD,out/wp.d -O2 -O1 -S -pipe -Wa,-ahl=out/list -fprofile-generate -fprofile-use -H`,
	"gcc":   `-aux-info~out/aux -fcallgraph-info=su,da -fopt-info-loop=out/oi -Xpreprocessor~-MMD~-Xpreprocessor~xp.d -fverbose-asm -frecord-gcc-switches -fprofile-note=out/n.gcno -fdiagnostics-format=json -fcondition-coverage -fpath-coverage`,
	"clang": `-emit-llvm -fno-integrated-as --serialize-diagnostics~out/d.dia -ftime-trace -flto=thin -foptimization-record-file=out/r.yaml -fembed-bitcode`,
}

// TestSidesDeclared: a compiler makes the files that the plan declares, and no others.
func TestSidesDeclared(t *testing.T) {
	for _, cc := range []string{"gcc-11", "g++-11", "gcc-12", "g++-12", "gcc-14", "gcc-15", "gcc-16", "clang-13", "clang-14", "clang++-15", "clang-16", "clang-19", "clang++-19", "clang-22"} {
		t.Run(cc, func(t *testing.T) {
			turns.SkipCase(t)
			b := newBench(t, cc)
			family := "gcc"
			if b.driver.Family == Clang {
				family = "clang"
			}
			pool := strings.Fields(sidesOptions[""] + " " + sidesOptions[family])
			ran := 0
			for i := range *sidesRuns {
				rng := rand.New(rand.NewPCG(*randomSeed, uint64(i)))
				pick := func(list string) []string {
					words := strings.Fields(list)
					return strings.Split(words[rng.IntN(len(words))], "~")
				}
				args := []string{"-c", "-Iinc"}
				if rng.IntN(3) > 0 {
					args = append(args, pick(`-o~out/x.o -o~y.b.o -oz -o~out.d/y/noext -o~./w.s -o~out.d/y/.o -o~out/name.toolongasuffix`)...)
				}
				for range 1 + rng.IntN(5) {
					args = append(args, pick(strings.Join(pool, " "))...)
				}
				args = append(args, pick(`main.c sub/src.c ./main.c od`+"\x00"+`d$na,me.c app.cpp plain.i`)...)
				p := Parse(args, b.driver, nil)
				if p.Local {
					continue
				}
				before := files(t, b.here)
				_, stderr, failed := b.command(b.here, args)
				if failed {
					made(t, b.here, before)
					continue
				}
				ran++
				m := made(t, b.here, before)
				for _, o := range p.Outputs {
					name := strings.TrimPrefix(o.Name, "./")
					if _, ok := m[name]; !ok && !o.Optional {
						t.Errorf("run %d: %s %s: no %s\n%s", i, cc, strings.Join(args, " "), o.Name, stderr)
					}
					delete(m, name)
				}
				for name := range m {
					t.Errorf("run %d: %s %s: undeclared %s", i, cc, strings.Join(args, " "), name)
				}
			}
			if ran < *sidesRuns/6 {
				t.Errorf("only %d of %d commands compiled", ran, *sidesRuns)
			}
		})
	}
}

// TestCoverageOfConditions: gcc 16 writes what the counts of conditions and paths mean without being asked for that. Whether it removes
// a program's counts then depends on its version.
func TestCoverageOfConditions(t *testing.T) {
	for _, w := range []string{"-fcondition-coverage", "-fpath-coverage"} {
		p := Parse([]string{w, "-c", "a.c", "-o", "out/x.o"}, Driver{Family: GCC}, nil)
		if p.Local || !slices.ContainsFunc(p.Outputs, func(o unit.Output) bool { return o.Name == "out/x.gcno" && o.Optional }) || p.stale != "" {
			t.Errorf("%s: %+v", w, p.Outputs)
		}
		for other, here := range map[string]bool{"-frandom-seed=1": true, "-fno-random-seed": false, "-ftest-coverage -frandom-seed=1": false} {
			p := Parse(append(strings.Fields(other), w, "-c", "a.c"), Driver{Family: GCC}, nil)
			if p.Local != here {
				t.Errorf("%s %s: Local = %v, want %v", w, other, p.Local, here)
			}
		}
	}
}
