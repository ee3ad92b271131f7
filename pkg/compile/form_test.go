package compile

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestList: which words ask for the list of files.
func TestList(t *testing.T) {
	for _, c := range []struct {
		compiler   string
		major      int
		args, want string
	}{
		{"gcc", 12, "-O2 -Iinc -DX=1 -g -c a.c -o d/a.o -lm", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -O2 -Iinc -DX=1 a.c"},
		{"gcc", 12, "-W -Wall --warn-undef -Werror -Weffc++ -pedantic -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -pedantic a.c"},
		{"clang", 14, "-Wall -mllvm -x86-asm-syntax=intel -c a.c", "-M -w -Qunused-arguments -Wall a.c"},
		{"gcc", 10, "-O2 -c a.c", "-M -fno-canonical-system-headers -O2 a.c"},
		{"gcc", 12, "-traditional-cpp -c a.c", "-M -fno-canonical-system-headers -traditional-cpp a.c"},
		{"gcc", 12, "-MD -MP -MT t -MFx.d -MG -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null a.c"},
		{"gcc", 12, "-Wp,-MMD,x.d -Wp,-DA,-MT,t,-UB -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -Wp,-DA,-UB a.c"},
		{"gcc", 12, "-Xpreprocessor -MMD -Xpreprocessor x.d -Xpreprocessor -DA -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -Xpreprocessor -DA a.c"},
		{"gcc", 12, "-Wp,-MMD -Xpreprocessor x.d -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null a.c"},
		{"gcc", 12, "-save-temps=obj -pipe -H -C -S -gsplit-dwarf -x c a.b -x none", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -x c a.b -x none"},
		{"gcc", 12, "-fopenmp -fsanitize=address --coverage -fprofile-generate -c a.c", "-E -fdirectives-only -fno-canonical-system-headers -w -MD -MF - -o /dev/null -fopenmp -fsanitize=address --coverage -fprofile-generate a.c"},
		{"clang", 14, "-g -I. -c a.c -Wl,-z -fsave-optimization-record -MJ", ""},
		{"clang", 14, "-g -I. -c a.c -Wl,-z -fsave-optimization-record", "-M -w -Qunused-arguments -I. a.c"},
		{"clang", 14, "-c -- -a.c", "-M -w -Qunused-arguments -- -a.c"},
		{"clang", 14, "-c a.i", ""},
	} {
		p := Parse(words(c.args), testDriver(t, c.compiler), nil)
		if got := strings.Join(p.List(c.major), " "); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.compiler, c.args, got, c.want)
		}
		if !p.Local && !slices.Equal(p.Whole(), words(c.args)) {
			t.Errorf("%s %s: whole %q", c.compiler, c.args, p.Whole())
		}
	}
}

// TestListRuns: the compilers list every file that they read, and say nothing.
func TestListRuns(t *testing.T) {
	for _, cc := range []string{"gcc", "g++", "gcc-11", "clang", "clang++", "clang-13", "clang-19"} {
		t.Run(cc, func(t *testing.T) {
			if testing.Short() && cc != "gcc" {
				t.Skip("one compiler is enough for a short look")
			}
			turns.SkipCase(t)
			b := newBench(t, cc)
			for _, args := range []string{
				"-Iinc -Wall -Wextra -c main.c", "-MD -MF x/y.d -Iinc -c main.c -o out/x.o", "-Wp,-MMD,x.d -H -Iinc -c main.c",
				"-include once.h -imacros inc/level.h -Iinc -c main.c", "-save-temps -fsyntax -Wl,-z -Iinc -c main.c", "-std=c99 -O2 -Iinc -x c -c main.c -lm",
				"--coverage -g -gsplit-dwarf -Iinc -S main.c",
			} {
				p := Parse(words(args), b.driver, nil)
				if p.Local {
					continue
				}
				before := files(t, b.here)
				cmd := exec.Command(b.path, p.List(b.major)...)
				cmd.Dir = b.here
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "main.c") || !strings.Contains(string(out), ".h") {
					t.Errorf("%s %s: %v\n%s", cc, p.List(b.major), err, out)
				}
				if m := made(t, b.here, before); len(m) > 0 {
					t.Errorf("%s: made %d files", args, len(m))
				}
			}
		})
	}
}

func TestIncludeDirs(t *testing.T) {
	env := func(name string) (string, bool) { return map[string]string{"CPATH": "/e1::/e2"}[name], name == "CPATH" }
	for _, c := range []struct {
		args, want string
		known      bool
	}{
		{"-I a -Ib -isystem c -iquote d -idirafter e -c x.c", "a b c d e /e1 . /e2", true},
		{"-I=a -c x.c", "/e1 . /e2", false},
		{"-I a --sysroot=/ -c x.c", "a /e1 . /e2", false},
		{"-iprefix a -iwithprefix b -c x.c", "/e1 . /e2", false},
		{"-Wp,-Ia -c x.c", "/e1 . /e2", false},
		{"-Wp,-DI -c x.c", "/e1 . /e2", true},
	} {
		p := Parse(words(c.args), Driver{Family: GCC}, env)
		dirs, known := p.IncludeDirs()
		if got := strings.Join(dirs, " "); got != c.want || known != c.known {
			t.Errorf("%s: %q %v, want %q %v", c.args, got, known, c.want, c.known)
		}
	}
}

// TestOutputs: which files come back, and which of them must be there.
func TestOutputs(t *testing.T) {
	for _, c := range []struct{ compiler, args, want string }{
		{"gcc", "-MD -c a.c", "o:a.o d:a.d"},
		{"gcc", "-MD -c a.c -MF x -Wp,-MMD,y", "o:a.o d:x? d:y?"},
		{"gcc", "-MF x -c a.c", "o:a.o d:x?"},
		{"gcc", "-MD -c a.i", "o:a.o d:a.d?"},
		{"clang", "-Wp,-MMD,y -S a.c", "s:a.s d:y"},
		{"gcc", "-MD -MF /dev/null -c a.c", "o:a.o"},
		{"gcc", "-fstack-usage -fcallgraph-info -MD -c a.c -o d/b.x.o", "o:d/b.x.o u:d/b.x.su d:d/b.x.d f:d/b.x.ci?"},
		{"clang", "-fstack-usage -c a.c", "o:a.o f:a.su?"},
		{"gcc", "--coverage -c a.c -o d/.o", "o:d/.o f:d/.o.gcno?"},
		{"gcc", "-save-temps -c a.cc", ""},
		{"g++", "-save-temps -c d/a.cc -o e/b.o", "o:e/b.o f:e/b.ii? f:e/b.s? f:b.ii? f:b.s? f:a.ii? f:a.s? f:e/a.ii? f:e/a.s?"},
		{"clang", "-emit-llvm -c a.c", "o:a.bc"},
		{"clang", "-emit-llvm -S a.c", "s:a.ll"},
		{"clang", "-fsave-optimization-record -c d/a.b.c", "o:a.b.o f:a.b.opt.yaml? f:a.opt.yaml?"},
		{"gcc", "-fsave-optimization-record -c a.c -o d/b.o", "o:d/b.o f:d/b.c.opt-record.json.gz? f:b.c.opt-record.json.gz? f:a.c.opt-record.json.gz? f:d/a.c.opt-record.json.gz?"},
		{"gcc", "-fopt-info-vec=x -fopt-info-loop -aux-info y -c a.c", "o:a.o f:x? f:y?"},
	} {
		p := Parse(words(c.args), testDriver(t, c.compiler), nil)
		var got []string
		for _, o := range p.Outputs {
			s := string("osufd"[o.Kind]) + ":" + o.Name
			if o.Optional {
				s += "?"
			}
			got = append(got, s)
		}
		if c.want != "" && strings.Join(got, " ") != c.want {
			t.Errorf("%s %s: %q, want %q (%s)", c.compiler, c.args, strings.Join(got, " "), c.want, p.Reason)
		}
		for _, o := range p.TextOutputs() {
			if o.Kind != unit.OutputObject && o.Kind != unit.OutputAssembly && o.Kind != unit.OutputStackUsage {
				t.Errorf("%s: %v in the text form", c.args, o)
			}
		}
	}
}
