package compile

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// testbench is one compiler with a directory here and one that stands for another machine.
type testbench struct {
	t      testing.TB
	path   string
	driver Driver
	major  int
	here   string // has the sources; the same for every run, as objects name it
	there  string // has nothing
}

func newBench(t testing.TB, name string) *testbench {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s here", name)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := DriverOf(path, real)
	if !ok {
		t.Fatalf("DriverOf(%q, %q): unknown", path, real)
	}
	out, err := exec.Command(path, "-dumpversion").Output()
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(strings.TrimSpace(string(out)), ".")
	major, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	b := &testbench{t: t, path: path, driver: d, major: major, here: t.TempDir() + "/here", there: t.TempDir()}
	if err := os.CopyFS(b.here, os.DirFS("testdata/src")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"out", "out.d/y"} {
		if err := os.MkdirAll(filepath.Join(b.here, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// command runs the compiler in dir under sub; what it says goes to stdout and stderr.
func (b *testbench) command(dir string, args []string) (stdout, stderr []byte, failed bool) {
	cmd := exec.Command(b.path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PWD="+dir)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	return o.Bytes(), e.Bytes(), err != nil
}

// files is every regular file under dir, and what it holds.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// made takes away and returns the files that were not there before.
func made(t testing.TB, dir string, before map[string]string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for name, text := range files(t, dir) {
		if old, ok := before[name]; !ok || old != text {
			m[name] = text
			if ok {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(old), 0o666); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// remoteName is what the daemon calls its outputs.
var remoteName = map[unit.OutputKind]string{unit.OutputObject: "o.o", unit.OutputAssembly: "o.s", unit.OutputStackUsage: "o.su"}

// verdict of a comparison.
type verdict struct {
	place string // remote, or local:REASON
	diffs []string
}

// compare runs args in two halves and, unless they stay here, once as they are.
func (b *testbench) compare(args []string) verdict {
	t := b.t
	t.Helper()
	before := files(t, b.here)
	plan := Parse(args, b.driver, func(string) (string, bool) { return "", false })
	if plan.Local {
		return verdict{place: "local:" + plan.Reason}
	}
	if plan.Text != "" && !plan.Inexact {
		return verdict{place: "local:" + reason.NotReproducible + plan.Text}
	}
	var text []byte
	if plan.Raw {
		var err error
		if text, err = os.ReadFile(filepath.Join(b.here, plan.Source)); err != nil {
			t.Fatal(err)
		}
	} else {
		out, errs, failed := b.command(b.here, plan.Preprocess(b.major))
		if failed || len(errs) > 0 {
			made(t, b.here, before)
			return verdict{place: "local:diagnostics"}
		}
		text = out
	}
	got := made(t, b.here, before)
	if reason := plan.ScanText(text, b.here); reason != "" {
		return verdict{place: "local:" + reason}
	}

	wantOut, wantErr, wantFailed := b.command(b.here, args)
	want := made(t, b.here, before)
	spoke := wantFailed || len(wantOut)+len(wantErr) > 0
	if err := os.MkdirAll(filepath.Join(b.there, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Join(b.there, "out"))
	name := base(plan.Source)
	if err := os.WriteFile(filepath.Join(b.there, name), text, 0o666); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(b.there, name))
	remote, lang := plan.Remote(b.major, b.here)
	mode := "-c"
	if plan.Outputs[0].Kind == unit.OutputAssembly {
		mode = "-S"
	}
	remote = append(append([]string{}, remote...), mode, "-x", lang, name, "-o", "out/"+remoteName[plan.Outputs[0].Kind])
	out, errs, failed := b.command(b.there, remote)
	if failed || len(out)+len(errs) > 0 {
		if !spoke {
			t.Logf("%q: only the other half says: %s%s", args, out, errs)
		}
		return verdict{place: "local:diagnostics"}
	}
	v := verdict{place: "remote"}
	if plan.Inexact {
		v.place = "local:" + reason.NotReproducible + plan.Text // but a client of distcc gets it
	}
	if spoke {
		v.diffs = append(v.diffs, "silent where the compiler says: "+string(wantErr))
	}
	for rel, content := range files(t, filepath.Join(b.there, "out")) {
		for _, o := range plan.Outputs {
			if remoteName[o.Kind] == rel {
				path := o.Name
				if filepath.IsAbs(path) {
					path, _ = filepath.Rel(b.here, path)
				}
				got[filepath.Clean(path)] = content
			}
		}
	}
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			v.diffs = append(v.diffs, "missing: "+name)
		case g != w && plan.Inexact && b.stripped(g) == b.stripped(w):
		case g != w && (b.again(args, before)[name] != w || !plan.Raw && b.preprocessed(&plan, before) != string(text)):
			t.Logf("%q: %s differs from one time to the next", args, name)
		case g != w:
			v.diffs = append(v.diffs, "differs: "+name)
			if keep := os.Getenv("COMPILE_KEEP"); keep != "" {
				_ = os.WriteFile(keep+"/got", []byte(g), 0o666)
				_ = os.WriteFile(keep+"/want", []byte(w), 0o666)
				_ = os.WriteFile(keep+"/text", text, 0o666)
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			v.diffs = append(v.diffs, "extra: "+name)
		}
	}
	return v
}

// again is what the plain command leaves when it runs once more.
func (b *testbench) again(args []string, before map[string]string) map[string]string {
	b.command(b.here, args)
	return made(b.t, b.here, before)
}

// preprocessed is the text that goes to a host, made once more: with __TIME__ in it that is another one a second later.
func (b *testbench) preprocessed(plan *Plan, before map[string]string) string {
	out, _, _ := b.command(b.here, plan.Preprocess(b.major))
	made(b.t, b.here, before)
	return string(out)
}

// stripped is an object without its debug information.
func (b *testbench) stripped(object string) string {
	dir := b.t.TempDir()
	path := filepath.Join(dir, "o")
	if err := os.WriteFile(path, []byte(object), 0o666); err != nil {
		b.t.Fatal(err)
	}
	if out, err := exec.Command("strip", "-g", path).CombinedOutput(); err != nil {
		return string(out) + object
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// equalCases are command lines: which compilers (c: gcc and clang, x: g++ and
// clang++, or a name), where it has to run, and the words.
var equalCases = []struct{ compilers, place, args string }{
	{"c g++", "remote", "-c main.c"},
	{"clang++", "local:diagnostics", "-c main.c"},
	{"c", "remote", "-O2 -Wall -Wextra -c main.c -o out/main.o"},
	{"c", "remote", "-S main.c"},
	{"c", "remote", "-S -c main.c -o out/x.y"},
	{"c", "remote", "-c sub/src.c"},
	{"c", "remote", "-c -DNAME=\"q\" sub/src.c -o src"},
	{"c", "remote", "-DLEVEL=2 -ULEVEL -DLEVEL -I inc -Isys -O1 -c main.c"},
	{"c", "remote", "-include once.h -imacros inc/level.h -c main.c"},
	{"c", "remote", "-includeonce.h -iquote sub -c main.c"},
	{"c", "remote", "-isystemsys -c usesys.c"},
	{"c", "remote", "-isystem sys -Wall -Wextra -c usesys.c"},
	{"c", "remote", "-idirafter sys -c usesys.c"},
	{"c", "remote", "-std=c99 -pedantic -c sub/src.c"},
	{"c", "remote", "-ansi -c plain.c"},
	{"c", "remote", "-std=c11 -w -c tri.c"},
	{"c", "remote", "-trigraphs -Wno-trigraphs -c tri.c"},
	{"c", "remote", "-c asm.c"},
	{"c", "remote", "-c simd.c -O3"},
	{"c", "remote", "-c simd.c -O3 -mavx2 -mfma -ffast-math"},
	{"c", "remote", "-c simd.c -O2 -march=haswell -mtune=skylake"},
	{"c", "remote", "-m32 -ffreestanding -c plain.i"},
	{"c", "remote", "-c plain.i"},
	{"c", "remote", "-c marked.i -O2"},
	{"x", "remote", "-c marked.ii"},
	{"c", "remote", "-c empty.c"},
	{"c", "remote", "-c od\x00d$na,me.c"},
	{"c", "remote", "-xc -c main.c -o m.o"},
	{"x", "remote", "-x c++ -c app.cpp"},
	{"x", "remote", "-c stl.cpp -O2"},
	{"x", "remote", "-c app.cpp -std=c++20 -O1 -DNDEBUG -fno-rtti"},
	{"x", "remote", "-c app.cpp -std=c++14 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden"},
	{"x", "remote", "-std=c++20 -c only.cpp -Wno-date-time"},
	{"x", "remote", "-std=c++20 -frandom-seed=a -O2 -c only.cpp"},
	{"clang", "remote", "-c obj.m"},
	{"c g++", "remote", "-pipe -pthread -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wp,-DX=1 -O2 -c main.c"},
	{"c", "remote", "-Wa,--noexecstack -c main.c"},
	{"c", "remote", "-ffunction-sections -fdata-sections -fno-common -fwrapv -c main.c"},
	{"c", "remote", "-fcf-protection=full -fno-plt -O2 -c main.c"},
	{"c", "remote", "-fopenmp -O2 -c main.c"},
	{"c", "remote", "-fopenmp -O2 -c parallel.c"},
	{"c", "remote", "-fopenmp-simd -O2 -c parallel.c"},
	{"gcc", "remote", "-fopenacc -O2 -c parallel.c"},
	{"c", "remote", "-pg -c main.c"},
	{"c", "remote", "-fno-builtin -fno-builtin-printf -nostdinc -c sub/src.c"},

	// Dependency files.
	{"c", "remote", "-MD -c main.c"},
	{"c", "remote", "-MMD -c main.c -o out/m.o"},
	{"c", "remote", "-MD -c sub/src.c"},
	{"c", "remote", "-MD -c sub/src.c -o out/x.y.o"},
	{"c", "remote", "-MD -c main.c -o out.d/x"},
	{"c", "remote", "-MD -c main.c -o out.d/y/noext"},
	{"c", "remote", "-MD -c main.c -o out.d/y/.hid"},
	{"c", "remote", "-MD -c main.c -o out/../a\x00b$c#.o"},
	{"c", "remote", "-MD -S main.c"},
	{"c", "remote", "-MD -S main.c -o out/q.s"},
	{"c", "remote", "-MD -MP -MF deps -c main.c -o out/x.o"},
	{"c", "remote", "-MD -MFdeps -MTt1 -MT t2 -c main.c"},
	{"c", "remote", "-MMD -MQ a$b -c main.c -o out/z.o"},
	{"c", "remote", "-MT a -MMD -c main.c -o out/z.o"},
	{"c", "remote", "-Wp,-MD,wp.d -c main.c -o out/z.o"},
	{"c", "remote", "-Wp,-MMD,out/.wp.d -c main.c"},
	{"gcc", "remote", "-Wp,-MT,tgt,-MMD,wp.d -c main.c"},
	{"gcc", "remote", "-MD -MMD -c main.c -o out/w.o"},
	{"c", "remote", "-MD -c ./main.c"},
	{"c", "remote", "-MD -c od\x00d$na,me.c"},
	{"x", "remote", "-MMD -MP -c app.cpp -o out/app.o"},
	{"gcc", "remote", "-MD -c plain.i"},
	{"c", "remote", "-MD -c .hidden.c"},
	{"c", "remote", "-MD -xc -c noext"},
	{"c", "remote", "-MMD -c x.y.c"},
	{"c", "remote", "-MMD -xc -c sub/a.b.txt -o sub/../q"},

	// Debug information.
	{"c", "local:not-reproducible:debug", "-g -c main.c"},
	{"c", "local:not-reproducible:debug", "-g -O2 -c main.c -o out/m.o"},
	{"c", "local:not-reproducible:debug", "-g3 -c sub/src.c"},
	{"c", "local:not-reproducible:debug", "-ggdb3 -gdwarf-4 -O1 -c main.c"},
	{"c", "remote", "-g0 -c main.c"},
	{"c", "remote", "-g -gdwarf-4 -g0 -c main.c -O2"},
	{"c", "local:not-reproducible:debug", "-g0 -g1 -c main.c"},
	{"c", "remote", "-gz -gno-column-info -gstrict-dwarf -c main.c"},
	{"gcc", "remote", "-grecord-gcc-switches -c main.c"},
	{"c", "remote", "-g -g0 -S main.c"},
	{"gcc", "local:not-reproducible:debug", "-g -fno-working-directory -c main.c"},
	{"clang", "local:not-reproducible:debug", "-g -fdebug-compilation-dir=. -c main.c"},
	{"clang", "local:not-reproducible:debug", "-gline-tables-only -c main.c"},
	{"c", "local:not-reproducible:debug", "-g -fdebug-types-section -c main.c"},
	{"x", "local:not-reproducible:debug", "-g -O2 -c stl.cpp"},
	{"c", "local:not-reproducible:debug", "-g -x c -c main.c"},
	{"c", "local:not-reproducible:debug", "-g -gz -c main.c"},
	{"c", "local:not-reproducible:debug", "-g -fdebug-prefix-map=/=/x/ -c main.c"},
	{"c", "remote", "-fmacro-prefix-map=sub=/SUB -c sub/src.c"},
	{"c", "local:not-reproducible:debug", "-ffile-prefix-map=sub=/SUB -g -c sub/src.c"},

	// Character sets.
	{"gcc", "remote", "-finput-charset=latin1 -c latin1.c"},
	{"gcc", "remote", "-fexec-charset=latin1 -c latin1.c -finput-charset=latin1"},

	// Instrumented objects, whole-program objects.
	{"c", "remote", "-fsanitize=undefined -c main.c"},
	{"c", "remote", "-fsanitize=address,undefined -DLEVEL=1 -O1 -c main.c"},
	{"x", "remote", "-fsanitize=undefined -c app.cpp"},
	{"clang", "remote", "-fsanitize=undefined -include once.h -Isys -imacros inc/level.h -DF(x)=x -c main.c"},
	{"c", "remote", "-fsanitize=thread -c main.c"},
	{"c", "remote", "-flto -frandom-seed=1 -O2 -c main.c"},
	{"clang", "remote", "-flto=thin -O2 -c main.c"},
	{"gcc", "remote", "-flto -ffat-lto-objects -frandom-seed=1 -O2 -c main.c"},
	{"gcc", "remote", "-fstack-usage -c main.c"},
	{"gcc", "remote", "-fstack-usage -O2 -c sub/src.c -o out/x.y.o"},
	{"gcc", "remote", "-fstack-usage -S sub/src.c -o out/noext"},

	// What the text cannot carry.
	{"gcc", "local:not-reproducible:pragma", "-c macros.c"},
	{"clang", "remote", "-c macros.c"},
	{"gcc", "local:not-reproducible:pragma", "-c target.c"},
	{"gcc", "local:not-reproducible:pragma", "-c poison.c"},
	{"clang", "local:diagnostics", "-c poison.c"},
	{"gcc", "local:not-reproducible:pragma", "-c poisoned.c"},
	{"clang", "remote", "-c poisoned.c"},
	{"gcc", "local:not-reproducible:pragma", "-c renamed.c"},
	{"clang", "local:not-reproducible:pragma", "-c renamed.c"},
	{"c", "local:not-reproducible:incbin", "-c incbin.c"},
	{"gcc", "local:diagnostics", "-c counter.c"},
	{"clang", "remote", "-c counter.c"},
	{"gcc", "local:not-reproducible:time", "-c date.c"},
	{"clang", "remote", "-c date.c"},
	{"c", "remote", "-c base.c"},
	{"gcc", "local:not-reproducible:base-file", "-c ./base.c"},
	{"clang", "remote", "-c ./base.c"},
	{"c", "remote", "-Wno-builtin-macro-redefined -D__DATE__=\"r\" -D__TIME__=\"r\" -c date.c"},
	{"gcc", "remote", "-traditional-cpp -c plain.c"},
	{"gcc", "local:not-reproducible:macros", "-traditional-cpp -fsanitize=undefined -c plain.c"},

	// Linker's words with -c: gcc is silent, clang is not.
	{"gcc", "remote", "-c main.c -Wl,-O1 -L. -lfoo -Xlinker --foo -rdynamic -shared"},
	{"clang", "local:diagnostics", "-c main.c -Wl,-O1"},
	{"clang", "remote", "-Qunused-arguments -c main.c -Wl,-O1 -L."},

	// The compiler speaks.
	{"gcc", "local:diagnostics", "-Wall -c indent.c"},
	{"clang", "local:diagnostics", "-c body.c"},
	{"gcc", "remote", "-Wall -Wno-misleading-indentation -c indent.c"},
	{"c", "remote", "-Wno-empty-body -c body.c"},
	{"clang", "local:diagnostics", "-Wall -c indent.c"},
	{"gcc", "local:diagnostics", "-Wextra -c body.c"},
	{"gcc", "local:diagnostics", "-Wall -c warn.c"},
	{"clang", "local:diagnostics", "-Wall -c warn.c"},
	{"c", "local:diagnostics", "-Wextra -Werror -c warn.c"},
	{"c", "local:diagnostics", "-Wimplicit-fallthrough -c warn.c"},
	{"c", "local:diagnostics", "-Wunused-macros -c warn.c"},
	{"c", "local:diagnostics", "-c err.c"},
	{"c", "local:diagnostics", "-c missing.c"},
	{"c", "local:diagnostics", "-Wsuch-warning-zz -c warn.c"},
	{"c", "local:diagnostics", "-std=c++99zz -c warn.c"},
	{"c", "local:diagnostics", "-c nosuchfile.c"},
}

// compilersOf is the set that a case names.
func compilersOf(set string) []string {
	var all []string
	for _, s := range strings.Fields(set) {
		switch s {
		case "c":
			all = append(all, "gcc", "clang")
		case "x":
			all = append(all, "g++", "clang++")
		default:
			all = append(all, s)
		}
	}
	return all
}

// words splits a case's arguments; NUL stands for a blank within a word.
func words(s string) []string {
	all := strings.Fields(s)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "\x00", " ")
	}
	return all
}

// TestPrecompiledHeader: where the compiler here takes one, it compiles here.
func TestPrecompiledHeader(t *testing.T) {
	turns.Skip(t)
	for _, c := range []struct{ cc, suffix, args string }{
		{"gcc", ".gch", "-include once.h -c plain.c"},
		{"gcc", ".gch", "-c uses.c"},
		{"clang", ".pch", "-include once.h -c plain.c"},
		{"clang", ".gch", "-includeonce.h -c plain.c"},
	} {
		b := newBench(t, c.cc)
		must(t, os.WriteFile(filepath.Join(b.here, "uses.c"), []byte("#include \"once.h\"\nint uses = ONCE;\n"), 0o666))
		if v := b.compare(words(c.args)); v.place != "remote" || len(v.diffs) > 0 {
			t.Errorf("%s %s: %+v, want remote", c.cc, c.args, v)
		}
		if _, errs, failed := b.command(b.here, []string{"-w", "-x", "c-header", "once.h", "-o", "once.h" + c.suffix}); failed {
			t.Fatalf("%s: %s", c.cc, errs)
		}
		if v := b.compare(words(c.args)); v.place != "local:not-reproducible:pch" {
			t.Errorf("%s %s: %s with a precompiled header, want local:not-reproducible:pch", c.cc, c.args, v.place)
		}
	}
}

// TestEqual: a compile in two halves leaves what the plain one leaves.
func TestEqual(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	today := turns.Of(t)
	for _, cc := range []string{"gcc", "g++", "clang", "clang++"} {
		t.Run(cc, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, cc)
			for _, c := range equalCases {
				if !today.Has(cc + " " + c.args) {
					continue
				}
				for _, name := range compilersOf(c.compilers) {
					if name != cc {
						continue
					}
					v := b.compare(words(c.args))
					if v.place != c.place {
						t.Errorf("%s %s: %s, want %s", cc, c.args, v.place, c.place)
					}
					for _, d := range v.diffs {
						t.Errorf("%s %s: %s", cc, c.args, d)
					}
				}
			}
		})
	}
}
