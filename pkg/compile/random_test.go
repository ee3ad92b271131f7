package compile

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	randomRuns = flag.Int("random", 25, "random command lines that TestRandom tries with each compiler")
	randomSeed = flag.Uint64("random-seed", 1, "where TestRandom starts")
)

// randomOptions are what TestRandom combines; those after a family's name are for it alone. Blanks within a
// word are NUL.
var randomOptions = map[string]string{
	"": `-O0 -O1 -O2 -O3 -Os -Og -g -g1 -g3 -ggdb -gdwarf-4 -g0 -Wall -Wextra -pedantic -w -Werror -Wshadow -Wundef -Wunused-macros
		-fPIC -fpic -fPIE -fno-pic -fcommon -fno-common -ffunction-sections -fdata-sections -fno-builtin -ffreestanding -fwrapv -ftrapv
		-fstack-protector-all -fno-stack-protector -fomit-frame-pointer -fno-omit-frame-pointer -fno-strict-aliasing -fvisibility=hidden
		-fno-exceptions -fexceptions -fno-asynchronous-unwind-tables -fshort-enums -funsigned-char -fno-inline -funroll-loops -ffast-math
		-fno-plt -fcf-protection -fstack-clash-protection -finstrument-functions -fopenmp -fno-semantic-interposition -fno-math-errno
		-fdebug-prefix-map=/tmp=/T -ffile-prefix-map=sub=/S -fmacro-prefix-map=./=/M/ -frandom-seed=7 -fdiagnostics-color=always
		-mavx2 -msse4.2 -mno-red-zone -march=haswell -mtune=generic -m32 -mcmodel=large -masm=intel -mfma -mgeneral-regs-only
		-DNAME="n" -DLEVEL=2 -DEXTRA -ULEVEL -DNDEBUG -D_GNU_SOURCE -D_FORTIFY_SOURCE=2 -Wp,-DWP=1 -I. -Iinc -isystem\x20sys -iquote\x20sub
		-include\x20once.h -imacros\x20inc/level.h -idirafter\x20/usr/include -nostdinc -pthread -pipe -pg -trigraphs -undef -P -H -C
		-fsanitize=undefined -fsanitize=address -fsanitize=thread -fsyntax-only -save-temps -Wa,--noexecstack -S -c`,
	"gcc": `-flto -ffat-lto-objects -fstack-usage -fno-working-directory -fworking-directory -finput-charset=latin1 -fexec-charset=UTF-16
		-fno-directives-only -traditional-cpp -fno-canonical-system-headers -ftrack-macro-expansion=0 -Wl,-O1 -lm -L. -fanalyzer
		-fverbose-asm -fno-ident -gno-column-info -gstrict-dwarf -fdebug-types-section -fno-diagnostics-show-caret --param=max-inline-insns-auto=3`,
	"clang": `-flto -flto=thin -fcolor-diagnostics -Weverything -Qunused-arguments -Xclang\x20-disable-O0-optnone -gline-tables-only
		-fdebug-compilation-dir=. -fno-integrated-as -fsplit-machine-functions -ftrivial-auto-var-init=zero -fexperimental-new-pass-manager
		-Wl,-O1 -fno-addrsig -fdiagnostics-format=msvc -fstandalone-debug -fdebug-types-section -fsanitize=integer`,
	"c":   `-std=c99 -std=gnu11 -std=c11 -std=c2x -ansi -x\x20c`,
	"c++": `-std=c++14 -std=gnu++17 -std=c++20 -fno-rtti -fvisibility-inlines-hidden -fno-threadsafe-statics -x\x20c++ -fno-sized-deallocation`,
	"dep": `-MD -MMD -MD\x20-MP -MF\x20deps.d -MT\x20t1 -MQ\x20a$b -Wp,-MD,wp.d -Wp,-MMD,out/wp.d -MG -M`,
	"out": `-o\x20out/x.o -o\x20y.b.o -oz -o\x20out.d/y/noext -o\x20./w.s`,
}

var randomSources = map[string]string{
	"c":   `main.c sub/src.c simd.c asm.c tri.c warn.c date.c plain.c empty.c plain.i marked.i usesys.c counter.c macros.c ./main.c od` + "\x00" + `d$na,me.c`,
	"c++": `app.cpp only.cpp marked.ii only.cpp`,
}

// TestRandom: what no table of cases thought of.
func TestRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	today := turns.Of(t)
	for _, cc := range []string{"gcc", "g++", "clang", "clang++"} {
		t.Run(cc, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, cc)
			lang, family := "c", "gcc"
			if b.driver.CXX {
				lang = "c++"
			}
			if b.driver.Family == Clang {
				family = "clang"
			}
			pool := strings.Fields(randomOptions[""] + " " + randomOptions[family] + " " + randomOptions[lang])
			places := map[string]int{}
			for i := range *randomRuns {
				if !today.Has(fmt.Sprint(cc, " run ", i)) {
					continue
				}
				rng := rand.New(rand.NewPCG(*randomSeed, uint64(i)))
				pick := func(words []string) string { return words[rng.IntN(len(words))] }
				args := []string{"-c", "-O1"}[:1+rng.IntN(2)]
				for range rng.IntN(6) {
					args = append(args, pick(pool))
				}
				for range max(0, rng.IntN(4)-1) {
					args = append(args, pick(strings.Fields(randomOptions["dep"])))
				}
				if rng.IntN(2) == 0 {
					args = append(args, pick(strings.Fields(randomOptions["out"])))
				}
				args = append(args, pick(strings.Fields(randomSources[lang])))
				rng.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
				line := strings.Join(args, " ")
				v := b.compare(words(strings.ReplaceAll(line, `\x20`, " ")))
				place, _, _ := strings.Cut(v.place, "=")
				places[place]++
				for _, d := range v.diffs {
					t.Errorf("seed %d run %d: %s %s: %s", *randomSeed, i, cc, line, d)
				}
			}
			t.Logf("%s: %v", cc, places)
		})
	}
}
