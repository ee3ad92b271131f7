package compile

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

var agreeRuns = flag.Int("agree", 60, "random command lines on which TestAgreesWithDriver asks each driver")

// agreeWords are what TestAgreesWithDriver combines; blanks within a word are "~".
var agreeWords = map[string]string{
	"": `-c -c -c -S -E -M -MM -fsyntax-only -o~out/x.o -oy.o -o~z --output=w.o --output~v.o -o~out/a.b.s --compile --assemble --preprocess
		-x~c -x~c++ -xc -x~none -x~assembler -x~assembler-with-cpp -x~objective-c -x~objective-c++ -x~cpp-output -x~c++-cpp-output -xnone -x~c-header --language=c++ -xf95
		-MD -MMD -MF~deps.mk -MFout/deps.d -MT~t -MQ~t$ -MP -Wp,-MD,wp.d -Wp,-MMD,out/wp.d -Wp,-DX,-UY
		-g -g3 -gsplit-dwarf -save-temps -save-temps=obj -save-temps=cwd --coverage -ftest-coverage -fprofile-arcs -fstack-usage -flto -fsave-optimization-record
		-pipe -pthread -w -Wall -O2 -O -Os -std=c11 -std=gnu++17 -ansi -I.~-I~d -Id -isystem~d -iquoted -idirafter~d -include~a.h -DX=1 -D~Y --define-macro=Z -UX -undef -nostdinc
		-lm -L. -Wl,-O1 -Xlinker~-z -static -shared -nostdlib -s -rdynamic -T~script -u~sym -z~now -e~main -Wa,--noexecstack -Xassembler~--noexecstack
		-fPIC -m32 -march=haswell --param~max-inline-insns-auto=3 -fno-strict-aliasing -fvisibility=hidden -H -P -C -trigraphs --include-directory=d --include-directory~d -imacros~a.h
		-v -### --version -dumpmachine -print-prog-name=as`,
	"gcc": `-aux-info~out/aux -fcallgraph-info -fopt-info-loop=out/oi --machine=sse2 --no-strict-aliasing --debug=dwarf-4 --warn-all --std=c99 -Xpreprocessor~-MMD~-Xpreprocessor~xp.d
		-fverbose-asm -frecord-gcc-switches -traditional-cpp -no-integrated-cpp -dA -fdump-tree-gimple -frandom-seed=1 -A~x=y -Tbss~0 -fprofile-note=out/n.gcno`,
	"clang": `-emit-llvm -Qunused-arguments -Xclang~-disable-O0-optnone -fno-integrated-as --serialize-diagnostics~out/d.dia -ftime-trace -gline-tables-only -flto=thin -mthread-model~posix
		-foptimization-record-file=out/r.yaml -target~x86_64-linux-gnu --target=x86_64-linux-gnu --sysroot=/ -MJ~out/mj.json -undefined~x -- -fdebug-compilation-dir~/x -ftrapv-handler=h -embed-dir=d`,
	"files": `a.c a.c a.c a.c d/a.c ./a.c a.b.c a.i a.ii a.cc a.cp a.cxx a.cpp a.CPP a.c++ a.C a.m a.mi a.mm a.M a.mii a.h a.hh a.H a.hpp a.s a.S a.sx a.o a.a a.so noext .c .hidden.c d.c/noext
		a.f90 a.go a.d a.adb a.ads a.ll a.bc a.cu a.cl a.txt a.tcc a.ixx a.cppm - d$na,me.c`,
}

// TestAgreesWithDriver compares plans with what the drivers would run: which
// languages, which outputs, how many compiles, and whether anything is linked.
func TestAgreesWithDriver(t *testing.T) {
	today := turns.Of(t)
	for _, cc := range []string{"gcc-11", "g++-11", "gcc-12", "g++-12", "clang-13", "clang++-14", "clang-15", "clang-16", "clang++-19", "clang-19"} {
		t.Run(cc, func(t *testing.T) {
			if testing.Short() && !strings.HasSuffix(cc, "-12") {
				t.Skip("one version is enough for a short look")
			}
			path, err := exec.LookPath(cc)
			if err != nil {
				t.Skipf("no %s here", cc)
			}
			t.Parallel()
			real, err := filepath.EvalSymlinks(path)
			must(t, err)
			d, ok := DriverOf(path, real)
			if !ok {
				t.Fatalf("DriverOf(%q, %q)", path, real)
			}
			dir := t.TempDir()
			must(t, os.MkdirAll(dir+"/out", 0o777))
			for _, f := range strings.Fields(agreeWords["files"]) {
				must(t, os.MkdirAll(filepath.Dir(dir+"/"+f), 0o777))
				must(t, os.WriteFile(dir+"/"+f, nil, 0o666))
			}
			family := "gcc"
			if d.Family == Clang {
				family = "clang"
			}
			pool := strings.Fields(agreeWords[""] + " " + agreeWords[family])
			places := map[string]int{}
			for i := range *agreeRuns {
				if !today.Has(fmt.Sprint(cc, i)) {
					continue
				}
				rng := rand.New(rand.NewPCG(*randomSeed, uint64(i)))
				pick := func(words []string) []string { return strings.Split(words[rng.IntN(len(words))], "~") }
				parts := [][]string{pick(strings.Fields(agreeWords["files"]))}
				if rng.IntN(4) > 0 {
					parts = append(parts, []string{"-c"})
				}
				if rng.IntN(8) == 0 {
					parts = append(parts, pick(strings.Fields(agreeWords["files"])))
				}
				for range rng.IntN(5) {
					parts = append(parts, pick(pool))
				}
				rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
				argv := slices.Concat(parts...)
				p := Parse(argv, d, nil)
				places[strings.SplitN(p.Reason, ":", 2)[0]]++
				if what := disagrees(&p, askDriver(t, path, dir, argv)); what != "" {
					t.Errorf("seed %d run %d: %s %s: %s\nplan: %s", *randomSeed, i, cc, strings.Join(argv, " "), what, verdictOf(p))
				}
			}
			t.Logf("%s: %v", cc, places)
		})
	}
}

// driverJobs is what a driver would do.
type driverJobs struct {
	failed   bool
	link     bool
	cppOnly  bool     // a compile that only preprocesses, for good
	asm      bool     // an assembler runs
	compiles []string // languages
	wrote    []string // files, but for temporary ones
}

// askDriver runs the driver with -###. "--" may end the options.
func askDriver(t *testing.T, path, dir string, argv []string) (j driverJobs) {
	cmd := exec.Command(path, append([]string{"-###"}, argv...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PWD="+dir)
	text, err := cmd.CombinedOutput()
	j.failed = err != nil || strings.Contains(string(text), "error: ")
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(line, " ") {
			continue
		}
		words := shellWords(line)
		if len(words) == 0 {
			continue
		}
		j.job(words)
	}
	return j
}

// job takes one command line of the driver's.
func (j *driverJobs) job(words []string) {
	program := base(words[0])
	lang := ""
	switch strings.TrimPrefix(program, "x86_64-linux-gnu-") {
	case "cc1":
		lang = langC
	case "cc1plus":
		lang = langCXX
	case "cc1obj":
		lang = langObjC
	case "cc1objplus":
		lang = langObjCXX
	case "collect2", "ld", "ld.lld":
		j.link = true
		return
	case "as":
		j.asm = true
	case "objcopy":
	default:
		if d, ok := DriverOf(program, program); ok && d.Family == GCC {
			j.link = true // clang leaves another system's links to its gcc
			return
		}
		j.asm = j.asm || len(words) > 1 && words[1] == "-cc1as"
		if len(words) > 1 && words[1] == "-cc1" {
			lang = words[slices.Index(words, "-x")+1]
		}
	}
	cppOnly := slices.Contains(words, "-E")
	last := lastIndex(words, "-o")
	for i, w := range words[1:] {
		if w == "-o" && i+1 != last {
			continue // it does not count
		}
		next := ""
		if i+2 < len(words) {
			next = words[i+2]
		}
		for _, o := range []string{"-o", "-MF", "-MD", "-MMD", "-aux-info", "-dependency-file", "-coverage-notes-file", "-opt-record-file", "-split-dwarf-output", "-serialize-diagnostic-file"} {
			if (o == "-MD" || o == "-MMD") && slices.Contains(words, "-MF") {
				continue // -MF names the file
			}
			if w == o && next != "" && next[0] != '-' {
				j.wrote = append(j.wrote, next)
				if o == "-o" && (strings.HasSuffix(next, ".i") || strings.HasSuffix(next, ".ii") || strings.HasSuffix(next, ".mi") || strings.HasSuffix(next, ".mii")) && cppOnly {
					cppOnly, lang = false, "" // -save-temps: the compile comes next
				}
			}
			if name, ok := strings.CutPrefix(w, o+"="); ok {
				j.wrote = append(j.wrote, name)
			}
		}
	}
	switch {
	case cppOnly, slices.Contains(words, "-Eonly"):
		j.cppOnly = true
	case lang == "ir", lang == "":
	default:
		j.compiles = append(j.compiles, lang)
	}
}

func lastIndex(words []string, w string) int {
	for i := len(words) - 1; i >= 0; i-- {
		if words[i] == w {
			return i
		}
	}
	return -1
}

// shellWords splits a line as drivers print commands.
func shellWords(line string) (words []string) {
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		var b []byte
		for quoted := false; i < len(line) && (quoted || line[i] != ' '); i++ {
			switch {
			case line[i] == '"':
				quoted = !quoted
			case line[i] == '\\' && i+1 < len(line):
				i++
				b = append(b, line[i])
			default:
				b = append(b, line[i])
			}
		}
		words = append(words, string(b))
	}
	return words
}

// disagrees says what a plan has otherwise than the driver, or "".
func disagrees(p *Plan, j driverJobs) string {
	if j.failed {
		return "" // here or there: the compiler says so
	}
	if p.Local {
		switch p.Reason {
		case reason.Link:
			if !j.link {
				return "nothing is linked"
			}
		case reason.Preprocess, reason.Dependencies:
			if j.link || len(j.compiles) > 0 && !j.cppOnly {
				return "that compiles"
			}
		case reason.NoSource:
			if j.link || len(j.compiles) > 0 {
				return "there is a source"
			}
		}
		return ""
	}
	if p.assembles() {
		if j.link || !j.asm || len(j.compiles) != 0 {
			return "the driver links, compiles, or does not assemble"
		}
	} else if j.link || j.cppOnly || len(j.compiles) != 1 {
		return "the driver links, preprocesses, or compiles more or less than once"
	} else if got, want := p.Language, j.compiles[0]; got != want {
		// gcc does not tell preprocessed from plain text by the program.
		if plain := strings.TrimSuffix(strings.TrimSuffix(got, "cpp-output"), "-"); p.Driver.Family == Clang && preprocessed(got) != want || p.Driver.Family == GCC && plain != want && !(plain == "" && want == langC) {
			return "the language is " + want
		}
	}
	for _, name := range j.wrote {
		switch {
		case strings.HasPrefix(name, os.TempDir()+"/") && !declared(p, name), name == "/dev/null", declared(p, name):
			continue
		}
		return "it writes " + name
	}
	if main := p.Main(); main != "" && !slices.Contains(j.wrote, main) {
		return "it does not write " + main
	}
	return ""
}

// declared reports whether a file is among the outputs, and may be of this kind.
func declared(p *Plan, name string) bool {
	return slices.ContainsFunc(p.Outputs, func(o unit.Output) bool {
		return o.Name == name || strings.HasSuffix(name, "/"+strings.TrimPrefix(o.Name, "./"))
	})
}
