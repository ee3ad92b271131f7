package compile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// written is a file that a compile writes: "a.o" and the like in the working
// directory.
type written struct {
	words string // of the command; the source is a.c
	out   unit.Output
	when  string // "gcc", "clang", or "" for both
}

var allWritten = [...]written{
	{"-c", unit.Output{Kind: unit.OutputObject, Name: "a.o"}, ""},
	{"-S", unit.Output{Kind: unit.OutputAssembly, Name: "a.s"}, ""},
	{"-c -MD", unit.Output{Kind: unit.OutputDependency, Name: "a.d"}, ""},
	{"-c -fstack-usage", unit.Output{Kind: unit.OutputStackUsage, Name: "a.su"}, ""},
	{"-c --coverage", unit.Output{Kind: unit.OutputSide, Name: "a.gcno"}, ""},
	{"-c -g -gsplit-dwarf", unit.Output{Kind: unit.OutputSide, Name: "a.dwo"}, ""},
	{"-c -save-temps", unit.Output{Kind: unit.OutputSide, Name: "a.i"}, ""},
	{"-c -save-temps", unit.Output{Kind: unit.OutputSide, Name: "a.s"}, ""},
	{"-c -save-temps", unit.Output{Kind: unit.OutputObject, Name: "a.o"}, ""},
	{"-c -fcallgraph-info", unit.Output{Kind: unit.OutputSide, Name: "a.ci"}, "gcc"},
	{"-c -aux-info x", unit.Output{Kind: unit.OutputSide, Name: "x"}, "gcc"},
	{"-c -Wa,-al=lst", unit.Output{Kind: unit.OutputSide, Name: "lst"}, "gcc"},
	{"-c -fno-integrated-as", unit.Output{Kind: unit.OutputObject, Name: "a.o"}, "clang"},
	{"-c -save-temps", unit.Output{Kind: unit.OutputSide, Name: "a.bc"}, "clang"},
	{"-S -emit-llvm", unit.Output{Kind: unit.OutputAssembly, Name: "a.ll"}, "clang"},
	{"-c -fsave-optimization-record", unit.Output{Kind: unit.OutputSide, Name: "a.opt.yaml"}, "clang"},
	// Whatever their suffix:
	{"-c -MD -MF d.o", unit.Output{Kind: unit.OutputDependency, Name: "d.o"}, ""},
	{"-c -MD -MF d.dwo", unit.Output{Kind: unit.OutputDependency, Name: "d.dwo"}, ""},
	{"-S -o a.dwo", unit.Output{Kind: unit.OutputAssembly, Name: "a.dwo"}, ""},
	{"-c -aux-info x.o", unit.Output{Kind: unit.OutputSide, Name: "x.o"}, "gcc"},
	{"-c -fdump-tree-gimple=x.dwo", unit.Output{Kind: unit.OutputSide, Name: "x.dwo"}, "gcc"},
	{"-c --serialize-diagnostics x.s", unit.Output{Kind: unit.OutputSide, Name: "x.s"}, "clang"},
	{"-c -fsave-optimization-record -foptimization-record-file=x.s", unit.Output{Kind: unit.OutputSide, Name: "x.s"}, "clang"},
	{"-c -flto=thin -fthin-link-bitcode=x.bc", unit.Output{Kind: unit.OutputSide, Name: "x.bc"}, "clang"},
	{"-c -O3 -fopt-info-all=x.txt", unit.Output{Kind: unit.OutputSide, Name: "x.txt"}, "gcc"},
	{"-c -O3 -fopt-info-all=x.o", unit.Output{Kind: unit.OutputSide, Name: "x.o"}, "gcc"},
	{"-c --serialize-diagnostics x.dia", unit.Output{Kind: unit.OutputSide, Name: "x.dia"}, "clang"},
}

// starts returns what can be in the place of an output.
func starts(t *testing.T) map[string]func(dir, out string) {
	t.Helper()
	write := func(path string, mode os.FileMode, text string) {
		must(t, os.WriteFile(path, []byte(text), 0o644))
		must(t, os.Chmod(path, mode))
	}
	return map[string]func(dir, out string){
		"missing":   func(_, _ string) {},
		"read-only": func(d, o string) { write(d+o, 0o400, "old") },
		"hard link": func(d, o string) { write(d+"keep", 0o600, "old"); must(t, os.Link(d+"keep", d+o)) },
		"hard link, empty": func(d, o string) {
			write(d+"keep", 0o600, "")
			must(t, os.Link(d+"keep", d+o))
		},
		"symlink":           func(d, o string) { write(d+"keep", 0o600, "old"); must(t, os.Symlink("keep", d+o)) },
		"symlink, dangling": func(d, o string) { must(t, os.Symlink("keep", d+o)) },
		"symlink, null":     func(d, o string) { must(t, os.Symlink("/dev/null", d+o)) },
	}
}

// compilersHere are gcc and clang. Other versions, gcc 11 and clang 13 to 19, do
// the same.
func compilersHere(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("no %s here", name)
			continue
		}
		all = append(all, name)
	}
	return all
}

// forWritten calls f for all files that compilers here write. made is what a
// compile of text leaves in a directory that was empty.
func forWritten(t *testing.T, text string, f func(t *testing.T, cc string, w written, made compiled)) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	today := turns.Of(t)
	for _, cc := range compilersHere(t) {
		for _, w := range allWritten {
			name := cc + " " + w.words + " " + w.out.Name
			if w.when != "" && !strings.HasPrefix(cc, w.when) || !today.Has(text+name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				f(t, cc, w, compileIn(t, t.TempDir()+"/", cc, w, text))
			})
		}
	}
}

// planOf is a plan of a command that writes w in dir, as far as Place and Failed
// look at it. w is the last of its outputs.
func planOf(cc string, w written, dir string) *Plan {
	d, _ := DriverOf(cc, cc)
	p := &Plan{Driver: d, Outputs: []unit.Output{{Kind: w.out.Kind, Name: dir + w.out.Name}}}
	if w.out.Kind != unit.OutputObject && w.out.Kind != unit.OutputAssembly {
		p.Outputs = append([]unit.Output{{Kind: unit.OutputObject, Name: dir + "main.o"}}, p.Outputs...)
	}
	parsed := Parse(append(strings.Fields(w.words), "a.c"), d, nil)
	for _, o := range parsed.options {
		if before, ok := strings.CutSuffix(o.arg, w.out.Name); ok {
			o.arg = before + dir + w.out.Name
		}
		p.options = append(p.options, o)
	}
	return p
}

// TestPlaceAsCompiler makes the same starting point twice, lets the compiler
// write its output over one and Place over the other, and compares what is there.
func TestPlaceAsCompiler(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	const text = "int f(int x) { return x * 2; }\n"
	forWritten(t, text, func(t *testing.T, cc string, w written, made compiled) {
		for name, start := range starts(t) {
			theirs, ours := t.TempDir()+"/", t.TempDir()+"/"
			start(theirs, w.out.Name)
			start(ours, w.out.Name)
			want := compileIn(t, theirs, cc, w, text)
			err := made.place(t, planOf(cc, w, ours), w, ours)
			switch {
			case want.failed && err == nil:
				t.Errorf("%s: the compiler fails here, Place does not", name)
			case want.failed:
			case errors.Is(err, os.ErrPermission) && len(want.stderr) > len(made.stderr):
				// The assembler only warns of a listing that it cannot write; the command runs here, and says that.
			case err != nil:
				t.Errorf("%s: %v", name, err)
			default:
				wantSame(t, name, ours, theirs, w.out.Name)
			}
		}
	})
}

// TestFailedAsCompiler does the same with compiles that fail, of which another
// machine has made some files, or none.
func TestFailedAsCompiler(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	for _, text := range []string{
		"int f(int x) { int y = 0 for (;;); return x; }\n",
		"#pragma GCC diagnostic error \"-Wunused-variable\"\nint f(int x) { int y; return x * 2; }\n",
		"int f(int x) { __asm__(\"bogus insn\"); return x; }\n",
		"int f(int x) { return y; }\n#include \"nowhere.h\"\n", // clang removes an older file of rules
		"#error 'x' file not found\n",
	} {
		forWritten(t, text, func(t *testing.T, cc string, w written, made compiled) {
			if !made.failed {
				return // -S does not assemble
			}
			for _, name := range []string{"missing", "hard link", "symlink", "symlink, null"} {
				theirs, ours := t.TempDir()+"/", t.TempDir()+"/"
				starts(t)[name](theirs, w.out.Name)
				starts(t)[name](ours, w.out.Name)
				compileIn(t, theirs, cc, w, text)
				p := planOf(cc, w, ours)
				_, err := os.Stat(made.dir + w.out.Name)
				came := err == nil
				if p.Failed(1, func(i int) bool { return i == len(p.Outputs)-1 && came }, made.stderr, cLocale) != nil {
					continue // the command runs here
				}
				if came && made.place(t, p, w, ours) != nil {
					continue // here too
				}
				wantSame(t, text+name, ours, theirs, w.out.Name)
			}
		})
	}
}

// TestFailedForHeader: a header that is missing is as clear as any other error, unless it is not certain that it is.
func TestFailedForHeader(t *testing.T) {
	for text, want := range map[string]error{
		"a.c:1:10: fatal error: 'x.h' file not found\n#include \"x.h\"\n1 error generated.\n":                             nil,
		"a b.c:1:10: fatal error: 'x.h' file not found\n1 error generated.\n":                                             ErrUnclear,
		"a.c:1:2: error: bad\nfatal error: too many errors emitted, stopping now [-ferror-limit=]\n2 errors generated.\n": ErrUnclear,
	} {
		dir := t.TempDir() + "/"
		must(t, os.WriteFile(dir+"a.d", []byte("old"), 0o644))
		p := planOf("clang", written{"-c -MD", unit.Output{Kind: unit.OutputDependency, Name: "a.d"}, ""}, dir)
		if err := p.Failed(1, func(int) bool { return false }, []byte(text), cLocale); err != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
		if _, err := os.Stat(dir + "a.d"); (err == nil) != (want != nil) {
			t.Errorf("%q: rules: %v", text, err)
		}
	}
}

// TestPlaceRemovesCounts: with a seed of its own, gcc removes the counts of earlier runs, as it does itself.
func TestPlaceRemovesCounts(t *testing.T) {
	turns.Skip(t)
	cc := compilersHere(t)
	if len(cc) == 0 || cc[0] != "gcc" {
		t.Skip("no gcc")
	}
	d, _ := DriverOf("gcc", "gcc")
	for _, words := range []string{
		"--coverage -frandom-seed=1 -c a.c", "--coverage -frandom-seed=1 -c a.c -o x.b.o", "-ftest-coverage --random-seed=1 -S a.c", "-coverage -frandom-seed=1 -fno-random-seed -c a.c",
		"--coverage -c a.c", "-fprofile-arcs -frandom-seed=1 -c a.c", "--coverage -frandom-seed=1 -fprofile-use -w -c a.c", "-ftest-coverage -frandom-seed=1 -fprofile-note=n -c a.c",
		"-O2 -frandom-seed=1 -c a.c", "--coverage -frandom-seed=1 -c a.c -o out",
		"-ftest-coverage -fno-test-coverage -frandom-seed=1 -c a.c", "--coverage -fno-test-coverage -frandom-seed=1 -c a.c",
		"--coverage -frandom-seed=1 -fprofile-use -fno-profile-use -w -c a.c", "--coverage -frandom-seed=1 -fno-profile-use -fprofile-use -w -c a.c",
		"--coverage -frandom-seed=1 -fno-branch-probabilities -fprofile-use -w -c a.c", "--coverage -frandom-seed=1 -fbranch-probabilities -w -c a.c",
	} {
		left := func(do func(dir string)) (names string) {
			dir := t.TempDir() + "/"
			for _, name := range []string{"a.gcda", "x.b.gcda", "out.gcda"} {
				must(t, os.WriteFile(dir+name, []byte("old"), 0o644))
			}
			do(dir)
			all, err := filepath.Glob(dir + "*.gcda")
			must(t, err)
			for _, name := range all {
				names += " " + filepath.Base(name)
			}
			return names
		}
		want := left(func(dir string) {
			if c := compileIn(t, dir, "gcc", written{words: strings.Replace(words, " a.c", "", 1)}, "int f(int x) { return x * 2; }\n"); c.failed {
				t.Fatalf("%s: %s", words, c.stderr)
			}
		})
		got := left(func(dir string) {
			t.Chdir(dir)
			must(t, os.WriteFile("src", []byte("new"), 0o644))
			src, err := os.Open("src")
			must(t, err)
			defer src.Close()
			p := Parse(strings.Fields(words), d, nil)
			if _, ok := p.Placing(p.Outputs[0], 1); ok == (p.stale != "") {
				t.Errorf("%s: a caller with system calls alone may place the object: %v", words, ok)
			}
			for _, out := range p.Outputs {
				must(t, p.Place(out, int(src.Fd()), 0, 3))
			}
		})
		if got != want {
			t.Errorf("%s: left%s, gcc leaves%s", words, got, want)
		}
	}
	for _, words := range []string{"--coverage -frandom-seed=1 -fprofile-dir=p -c a.c"} {
		if p := Parse(strings.Fields(words), d, nil); !p.Local {
			t.Errorf("%s: the counts are elsewhere, and the command leaves", words)
		}
	}
}

// TestFailedIsClear: what happens every day needs no second compile.
func TestFailedIsClear(t *testing.T) {
	const text = "int f(int x) { int y = 0 for (;;); return x; }\n"
	for _, cc := range compilersHere(t) {
		dir := t.TempDir() + "/"
		w := allWritten[0]
		made := compileIn(t, t.TempDir()+"/", cc, w, text)
		for _, old := range []bool{false, true} {
			if old {
				must(t, os.WriteFile(dir+"a.o", []byte("old"), 0o644))
			}
			if err := planOf(cc, w, dir).Failed(1, func(int) bool { return false }, made.stderr, cLocale); err != nil {
				t.Errorf("%s, old object %v: %v", cc, old, err)
			}
		}
		must(t, os.WriteFile(dir+"a.o", []byte("old"), 0o644))
		if err := planOf(cc, w, dir).Failed(4, func(int) bool { return false }, made.stderr, cLocale); err != ErrUnclear {
			t.Errorf("%s, status 4: %v, want ErrUnclear", cc, err)
		}
	}
}

func cLocale(name string) (string, bool) { return "C", name == "LC_ALL" }

// TestEnglish: only then are messages looked at.
func TestEnglish(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"LC_ALL": "C", "LANG": "de_DE.UTF-8", "LANGUAGE": "de"}, true},
		{map[string]string{"LANG": "en_US.UTF-8"}, true},
		{map[string]string{"LANG": "C.UTF-8"}, true},
		{map[string]string{"LANG": "en_US.UTF-8", "LANGUAGE": "de:en"}, false},
		{map[string]string{"LANG": "de_DE.UTF-8"}, false},
		{map[string]string{"LC_MESSAGES": "fr_FR", "LANG": "C"}, false},
	} {
		if got := english(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }); got != c.want {
			t.Errorf("%v: %v, want %v", c.env, got, c.want)
		}
	}
}

// compiled is what a compiler left of a.c.
type compiled struct {
	dir    string
	failed bool
	stderr []byte
}

func compileIn(t *testing.T, dir, cc string, w written, text string) compiled {
	t.Helper()
	must(t, os.WriteFile(dir+"a.c", []byte(text), 0o644))
	cmd := exec.Command(cc, append(strings.Fields(w.words), "a.c")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return compiled{dir: dir, failed: err != nil, stderr: stderr.Bytes()}
}

// place puts what was made where p wants it.
func (c compiled) place(t *testing.T, p *Plan, w written, dir string) error {
	t.Helper()
	src, err := os.Open(c.dir + w.out.Name)
	must(t, err)
	defer src.Close()
	st, err := src.Stat()
	must(t, err)
	return p.Place(unit.Output{Kind: w.out.Kind, Name: dir + w.out.Name}, int(src.Fd()), 0, st.Size())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantSame compares what two directories hold of out, and of keep: kinds, modes,
// links, and whether the content is new, old, or none.
func wantSame(t *testing.T, what, ours, theirs, out string) {
	t.Helper()
	list := func(dir string) (all string) {
		for _, name := range []string{out, "keep"} {
			info, err := os.Lstat(dir + name)
			if err != nil {
				all += name + " missing\n"
				continue
			}
			all += name + " " + info.Mode().String()
			text, err := os.ReadFile(dir + name)
			to, _ := os.Readlink(dir + name)
			switch {
			case err != nil:
				all += err.Error()
			case string(text) == "old":
				all += " old"
			case len(text) > 0:
				all += " new"
			}
			all += " " + to + "\n"
		}
		return all
	}
	if got, want := list(ours), list(theirs); got != want {
		t.Errorf("%s: got\n%swant\n%s", what, got, want)
	}
}

// TestPlaceRefuses: what the compiler would fail at is an ErrPlace, and leaves
// nothing behind.
func TestPlaceRefuses(t *testing.T) {
	src, err := os.CreateTemp(t.TempDir(), "src")
	must(t, err)
	defer src.Close()
	_, err = src.WriteString("0123456789")
	must(t, err)
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/d", 0o755))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	before := mapNames(t, dir)
	for _, f := range []Family{GCC, Clang} {
		for _, name := range []string{dir + "/no/such/dir", dir + "/d", dir + "/pipe", "/dev/full", dir + "/a.c/x", ""} {
			err := planFor(f).Place(unit.Output{Name: name}, int(src.Fd()), 0, 10)
			if !errors.Is(err, ErrPlace) {
				t.Errorf("family %d: Place(%q) = %v, want ErrPlace", f, name, err)
			}
		}
		// Promised more than there is.
		if err := planFor(f).Place(unit.Output{Name: dir + "/short"}, int(src.Fd()), 4, 10); !errors.Is(err, ErrPlace) {
			t.Errorf("family %d: short source: %v, want ErrPlace", f, err)
		}
	}
	if after := mapNames(t, dir); after != before {
		t.Errorf("left behind: %s, was %s", after, before)
	}
}

// planFor is a plan of a family's.
func planFor(f Family) *Plan { return &Plan{Driver: Driver{Family: f}} }

func mapNames(t *testing.T, dir string) (all string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		all += e.Name() + " "
	}
	return all
}

// TestPlaceOffset: only the named part is written, and fd keeps its offset.
func TestPlaceOffset(t *testing.T) {
	src, err := os.CreateTemp(t.TempDir(), "src")
	must(t, err)
	defer src.Close()
	_, err = src.WriteString("0123456789")
	must(t, err)
	for _, f := range []Family{GCC, Clang} {
		out := filepath.Join(t.TempDir(), "o")
		must(t, planFor(f).Place(unit.Output{Name: out}, int(src.Fd()), 3, 4))
		got, err := os.ReadFile(out)
		must(t, err)
		if string(got) != "3456" {
			t.Errorf("family %d: got %q, want 3456", f, got)
		}
		if at, _ := src.Seek(0, 1); at != 10 {
			t.Errorf("family %d: offset is now %d, want 10", f, at)
		}
		empty := filepath.Join(t.TempDir(), "e")
		must(t, planFor(f).Place(unit.Output{Name: empty}, int(src.Fd()), 0, 0))
		if st, err := os.Stat(empty); err != nil || st.Size() != 0 {
			t.Errorf("family %d: empty output: %v, %v", f, st, err)
		}
	}
}
