package equal

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	randomRuns = flag.Int("random", 120, "random command lines that TestRandom tries")
	randomSeed = flag.Uint64("seed", 1, "where TestRandom and TestRandomTrees start")
	randomFrom = flag.Int("from", 0, "first run of TestRandom")
)

// randomOptions are what TestRandom combines, by the family that they are for. Words of one option have NUL
// between them, here as \x00.
var randomOptions = map[string]string{
	"": `-O0 -O1 -O2 -O3 -Os -Og -Ofast -O -g -g -g1 -g2 -g3 -ggdb -ggdb3 -gdwarf-4 -gdwarf-5 -gdwarf-3 -gdwarf-2 -g0 -gz -gsplit-dwarf -gno-column-info
		-gpubnames -ggnu-pubnames -gstrict-dwarf -fdebug-types-section -gdwarf64 -gcolumn-info
		-Wall -Wextra -pedantic -w -Werror -Wshadow -Wundef -Wunused-macros -Wconversion -Wsign-compare -Wformat=2 -Wpadded -Wcast-qual -Wdate-time
		-Wno-unused-variable -Wno-unused -Wsystem-headers -Wno-everything-here -Wfatal-errors -Werror=format -Wimplicit-fallthrough -Wswitch-enum
		-fdiagnostics-color=always -fno-diagnostics-show-option -fno-diagnostics-show-caret -fmessage-length=50 -fdiagnostics-parseable-fixits -fno-caret-diagnostics
		-fPIC -fpic -fPIE -fno-pic -fcommon -fno-common -ffunction-sections -fdata-sections -fno-builtin -ffreestanding -fwrapv -ftrapv
		-fstack-protector-all -fstack-protector-strong -fno-stack-protector -fomit-frame-pointer -fno-omit-frame-pointer -fno-strict-aliasing
		-fvisibility=hidden -fno-exceptions -fexceptions -fno-asynchronous-unwind-tables -fshort-enums -funsigned-char -fno-inline -funroll-loops
		-ffast-math -fno-plt -fcf-protection -fcf-protection=none -fstack-clash-protection -finstrument-functions -fopenmp -fopenmp-simd
		-fno-semantic-interposition -fno-math-errno -fno-ident -fno-delete-null-pointer-checks -fno-jump-tables -fno-zero-initialized-in-bss
		-fmerge-all-constants -fpatchable-function-entry=2 -ftrivial-auto-var-init=pattern -fzero-call-used-regs=used -fsplit-stack
		-fdebug-prefix-map=inc=I -fdebug-prefix-map=$PWD=/W -ffile-prefix-map=$PWD=. -ffile-prefix-map=sub=/S -fmacro-prefix-map=inc/=/M/ -frandom-seed=7
		-mavx2 -msse4.2 -mno-red-zone -march=haswell -march=native -mtune=native -march=x86-64-v2 -mtune=generic -m32 -mcmodel=large -masm=intel -mfma
		-mgeneral-regs-only -mno-sse
		-DLEVEL=5 -DLEVEL=1 -DEXTRA -ULEVEL -DNDEBUG -D_GNU_SOURCE -D_FORTIFY_SOURCE=2 -Wp,-DWP=1 -I. -Iinc -isystem\x00sys -isystemsys -iquote\x00sub -Isys
		-include\x00inc/first.h -imacros\x00inc/first.h -idirafter\x00sys -nostdinc -pthread -pipe -pg -trigraphs -undef -P -H -C -CC -dD @rsp/more
		-D__TIME__="t"\x00-Wno-builtin-macro-redefined -I$PWD/inc -Inowhere -Wmissing-include-dirs -Wp,-D_X -Xpreprocessor\x00-DXP -D'F(x)=x'
		-fsanitize=undefined -fsanitize=address -fsanitize=thread -fsanitize=leak -fsanitize-coverage=trace-pc -fsyntax-only
		-save-temps -save-temps=cwd -save-temps=obj -fstack-usage --coverage -ftest-coverage -fprofile-arcs -fprofile-generate -fprofile-use
		-Wa,--noexecstack -Wa,-Iinc -Wl,-O1 -lm -L. -Xlinker\x00-x -frecord-gcc-switches -grecord-gcc-switches -ftime-report -v -fverbose-asm
		-flto -S -c -E -std=bogus -fno-such-option -mno-such -x\x00none -ftemplate-depth=30 -fdollars-in-identifiers -fno-working-directory`,
	"gcc": `-ffat-lto-objects\x00-flto -fworking-directory -fno-working-directory -finput-charset=latin1 -fexec-charset=UTF-16LE -fno-directives-only -fdirectives-only
		-traditional-cpp -fno-canonical-system-headers -ftrack-macro-expansion=0 -ftrack-macro-expansion=1 -fanalyzer -fno-diagnostics-show-line-numbers
		--param=max-inline-insns-auto=3 --param\x00max-inline-insns-auto=3 -fdiagnostics-format=json -fdiagnostics-plain-output -fdiagnostics-urls=always
		-fcallgraph-info -fcallgraph-info=su,da -fdump-tree-optimized -fdump-tree-all -fdump-rtl-expand -fdump-ipa-inline -fdump-tree-gimple=tree.txt -da -dA -dP
		-fopt-info -fopt-info-vec=vec.txt -fsave-optimization-record -aux-info\x00aux.txt -dumpbase\x00base -dumpdir\x00sub/ -fdump-passes
		-gno-record-gcc-switches -ginline-points -gstatement-frontiers -gno-as-loc-support -gno-as-locview-support -gvariable-location-views -gbtf -gctf
		-femit-struct-debug-baseonly -fvar-tracking -fvar-tracking-assignments -fcompare-debug -fprofile-abs-path -fprofile-note=note.gcno
		-fdiagnostics-generate-patch -fdiagnostics-minimum-margin-width=2 -fdiagnostics-column-unit=byte -fmax-errors=2 -no-integrated-cpp
		-fhardened -fipa-pta -fno-tree-vectorize -fno-toplevel-reorder -fstrict-volatile-bitfields -fharden-compares -fno-dwarf2-cfi-asm -Wa,-al=list.txt
		-Wa,--defsym,z=1 -Wa,--compress-debug-sections -Wa,-ahl -mfentry\x00-pg -mfunction-return=thunk -mindirect-branch=thunk -mno-80387`,
	"clang": `-flto=thin -fcolor-diagnostics -Weverything -Qunused-arguments -Xclang\x00-disable-O0-optnone -gline-tables-only -gmlt -gline-directives-only
		-fdebug-compilation-dir=. -fdebug-compilation-dir=/cd -ffile-compilation-dir=/fd -fno-integrated-as -no-integrated-as -fsplit-machine-functions
		-ftrivial-auto-var-init=zero -fno-addrsig -fdiagnostics-format=msvc -fdiagnostics-format=vi -fstandalone-debug -fno-standalone-debug
		-fsanitize=integer -fsanitize=memory -fsanitize=safe-stack -fsanitize=fuzzer-no-link -fsanitize=undefined\x00-fsanitize-trap=undefined
		-fsave-optimization-record -foptimization-record-file=rec.yaml -ftime-trace -serialize-diagnostics\x00x.dia -fdiagnostics-absolute-paths
		-fdiagnostics-print-source-range-info -fdiagnostics-show-category=id -fmacro-backtrace-limit=2 -ferror-limit=2 -emit-llvm -gdwarf-aranges
		-gembed-source\x00-gdwarf-5 -fdebug-macro -glldb -gsimple-template-names -fdebug-info-for-profiling -fpseudo-probe-for-profiling
		-fprofile-instr-generate -fcoverage-mapping\x00-fprofile-instr-generate -fcoverage-compilation-dir=. -fcs-profile-generate -Rpass=inline
		-Rpass-missing=inline -mllvm\x00-inline-threshold=1 -Xclang\x00-fno-pch-timestamp -fxray-instrument -fno-spell-checking -fexperimental-new-pass-manager
		-gsplit-dwarf=single -gsplit-dwarf=split -funique-internal-linkage-names -fbasic-block-sections=all -frecord-command-line -fansi-escape-codes
		-MJ\x00cc.json -fno-elide-type -fvisibility-inlines-hidden -fcrash-diagnostics-dir=. -fkeep-static-consts --target=x86_64-pc-linux-gnu
		-Wno-unused-command-line-argument -Wno-error=format -Wdocumentation -H -fparse-all-comments -fstrict-vtable-pointers`,
	"c":   `-std=c99 -std=gnu11 -std=c11 -std=c2x -std=c89 -ansi -x\x00c -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition -Wdeclaration-after-statement -fgnu89-inline -Wjump-misses-init -Wc++-compat`,
	"c++": `-std=c++14 -std=gnu++17 -std=c++20 -std=c++17 -std=c++11 -fno-rtti -fvisibility-inlines-hidden -fno-threadsafe-statics -x\x00c++ -fno-sized-deallocation -Woverloaded-virtual -Wnon-virtual-dtor -Weffc++ -Wold-style-cast -fno-elide-constructors -fconstexpr-depth=100 -fno-implicit-templates -nostdinc++ -fcoroutines -faligned-new -Wzero-as-null-pointer-constant -Wsuggest-override`,
	"dep": `-MD -MMD -MD\x00-MP -MD\x00-MF\x00deps.d -MD\x00-MT\x00t1 -MMD\x00-MQ\x00a$$b -Wp,-MD,wp.d -Wp,-MMD,sub/.wp.d -MD\x00-MG -M -MM -MP -MD\x00-MF\x00sub/x.d\x00-MT\x00one\x00-MT\x00two`,
	"out": `-o\x00sub/x.o -o\x00y.b.o -oz -o\x00sub/noext -o\x00./w.s -o\x00$PWD/abs.o -o\x00sub/../sub/p.o -o\x00no/dir/x.o -o\x00/dev/null`,
}

var randomSources = map[string]string{
	"c":      `one.c two.c three.c sub/deep.c prog.c one.c two.c three.c ./one.c $PWD/two.c sub/../one.c done.i sub//deep.c`,
	"c++":    `one.cpp two.cpp three.cpp two.cpp three.cpp ./two.cpp $PWD/three.cpp one.c`,
	"objc":   `thing.m`,
	"prefix": `SOURCE_DATE_EPOCH=1234567 LC_ALL=C.UTF-8 TERM=xterm DEPENDENCIES_OUTPUT=env.d CPATH=sys C_INCLUDE_PATH=inc umask\x00077; COLUMNS=40 PWD=$PWD/sub/.. GCC_COLORS=`,
}

// words are the entries of one of the lists above, blanks in them put back.
func words(list string) []string {
	all := strings.Fields(list)
	for i, w := range all {
		all[i] = strings.ReplaceAll(w, `\x00`, " ")
	}
	return all
}

// draw is one random command: what stands before the compiler, and its words,
// each an entry of the lists.
type draw struct {
	cc, compiler string // compiler: $CC or $CXX
	before       string
	words        []string
}

func newDraw(rng *rand.Rand, compilers []string) draw {
	pick := func(words []string) string { return words[rng.IntN(len(words))] }
	d := draw{cc: pick(compilers), compiler: "$CC"}
	lang, source := "c", "c"
	switch n := rng.IntN(10); {
	case n < 4:
		lang, source, d.compiler = "c++", "c++", "$CXX"
	case n == 4:
		source = "objc"
	}
	family := "gcc"
	if strings.HasPrefix(d.cc, "clang") {
		family = "clang"
	}
	pool := slices.Concat(words(randomOptions[""]), words(randomOptions[family]), words(randomOptions[lang]))
	if rng.IntN(8) > 0 {
		d.words = append(d.words, pick([]string{"-c", "-c", "-c", "-c", "-S"}))
	}
	for range rng.IntN(9) {
		d.words = append(d.words, pick(pool))
	}
	for range max(0, rng.IntN(5)-2) {
		d.words = append(d.words, pick(words(randomOptions["dep"])))
	}
	if rng.IntN(2) == 0 {
		d.words = append(d.words, pick(words(randomOptions["out"])))
	}
	d.words = append(d.words, pick(words(randomSources[source])))
	if rng.IntN(30) == 0 {
		d.words = append(d.words, pick(words(randomSources[source])))
	}
	rng.Shuffle(len(d.words), func(i, j int) { d.words[i], d.words[j] = d.words[j], d.words[i] })
	if rng.IntN(10) == 0 {
		d.before = pick(words(randomSources["prefix"]))
	}
	return d
}

func (d draw) command() command {
	// Only $PWD is for the shell; a word in double quotes ends at a blank.
	var line []string
	for _, w := range d.words {
		for _, s := range strings.Fields(w) {
			s = strings.NewReplacer(`"`, `\"`, "`", "\\`", `'`, "").Replace(s)
			line = append(line, `"`+strings.ReplaceAll(s, "$$", `\$`)+`"`)
		}
	}
	c := command{cc: d.cc, cxx: strings.Replace(strings.Replace(d.cc, "gcc", "g++", 1), "clang", "clang++", 1)}
	c.line = strings.TrimSpace(d.before + " " + d.compiler + " " + strings.Join(line, " "))
	return c
}

// TestRandom: what no list of cases thought of. What differs is reported with as
// few words as still differ.
func TestRandom(t *testing.T) {
	g := stand(t)
	if asText() {
		t.Skip("preprocessed text differs in known ways")
	}
	today := part.Of(t)
	f := readFixtures(t, "testdata/random.txtar")
	var names []string
	for _, name := range append(strings.Fields(*compilers), append(strings.Fields(*compilers), otherVersions()...)...) {
		if _, err := exec.LookPath(name); err == nil {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	places := make(map[string]int) // guarded by mu, as all below
	statuses := make(map[bool]int)
	failing := 0
	var wait sync.WaitGroup
	end, limited := t.Deadline()
	done := 0
	for i := *randomFrom; i < *randomFrom+*randomRuns; i++ {
		if limited && time.Until(end) < patience {
			break // rather tell of those
		}
		if !today.Has(fmt.Sprint("run ", i)) {
			continue
		}
		done++
		p := <-g.places
		wait.Go(func() {
			defer func() { g.places <- p }()
			d := newDraw(rand.New(rand.NewPCG(*randomSeed, uint64(i))), names)
			v, err := p.compare(t.Context(), f, d.command())
			if err != nil {
				t.Errorf("seed %d run %d: %v", *randomSeed, i, err)
				return
			}
			mu.Lock()
			for _, line := range v.wrapped.report {
				where, reason, _ := strings.Cut(line, ":")
				if where == "local" {
					where = line
				}
				places[where]++
				if slices.Contains(trouble, reason) {
					t.Errorf("seed %d run %d: %s\n%s", *randomSeed, i, line, d.command().line)
				}
			}
			statuses[v.plain.status == 0]++
			mu.Unlock()
			if len(v.diffs) == 0 {
				return
			}
			small, sv := p.shrink(t.Context(), f, d, v)
			mu.Lock()
			failing++
			mu.Unlock()
			t.Errorf("seed %d run %d: %s\nsmallest: %s (%s): %s\n%s", *randomSeed, i, d.command().line, small.command().line, small.cc,
				strings.Join(sv.diffs, "\n"), strings.Join(sv.wrapped.report, "\n"))
			if err := sv.keep(fmt.Sprint("random-", *randomSeed, "-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	var list []string
	for _, k := range slices.SortedFunc(maps.Keys(places), func(a, b string) int { return places[b] - places[a] }) {
		list = append(list, fmt.Sprintf("%s %d", k, places[k]))
	}
	t.Logf("%d runs, %d of them compile, %d differ; jobs: %s", done, statuses[true], failing, strings.Join(list, ", "))
}

// shrink leaves words out as long as something differs.
func (p *place) shrink(ctx context.Context, f *fixtures, d draw, v verdict) (draw, verdict) {
	for again := true; again; {
		again = false
		if d.before != "" {
			s := d
			s.before = ""
			if w, err := p.compare(ctx, f, s.command()); err == nil && len(w.diffs) > 0 {
				d, v, again = s, w, true
			}
		}
		for i := 0; i < len(d.words); i++ {
			s := d
			s.words = slices.Delete(slices.Clone(d.words), i, i+1)
			if w, err := p.compare(ctx, f, s.command()); err == nil && len(w.diffs) > 0 {
				d, v, again = s, w, true
				i--
			}
		}
	}
	return d, v
}
