package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// project is a directory that plays the build host's, with a compiler to compare with.
type project struct {
	t        *testing.T
	root     string // all that the commands may write lies below it
	dir      string // where they run
	compiler string
	env      []string // of the local command and the body
	body     job.Body
	text     string
	names    []string // of files that it reads; nil: the compiler tells
	change   func(*job.Body)
}

// newProject writes files, by names below the directory.
func newProject(t *testing.T, compiler string, files map[string]string) *project {
	t.Helper()
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("needs %s", compiler)
	}
	p := &project{t: t, root: t.TempDir(), compiler: path}
	p.dir = p.root
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

func (p *project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// prepare makes the body for a command. It has the files that the compiler itself lists, and those in more.
func (p *project) prepare(args, more []string) {
	p.t.Helper()
	d, ok := compile.DriverOf(p.compiler, realPath(p.t, p.compiler))
	plan := compile.Parse(args, d, nil)
	if !ok || plan.Local {
		p.t.Fatalf("%q stays at home: %s", args, plan.Reason)
	}
	p.body = job.Body{
		Argv0: filepath.Base(p.compiler), Compiler: realPath(p.t, p.compiler), Args: args, Language: "c", Name: filepath.Base(plan.Source),
		Cwd: p.dir, Env: p.env, Outputs: plan.Outputs,
	}
	var text strings.Builder
	inodes := map[uint64]uint32{}
	names := p.names
	if names == nil {
		names = append(p.reads(args), more...)
	}
	for _, name := range names {
		path := name
		if !filepath.IsAbs(name) {
			path = p.dir + "/" + name
		}
		fi, err := os.Stat(path)
		if err != nil {
			p.t.Fatal(err)
		}
		f := unit.File{Name: name, MTime: fi.ModTime().UnixNano(), Exec: fi.Mode()&0o100 != 0}
		ino := fi.Sys().(*syscall.Stat_t).Ino
		if f.Same = inodes[ino]; f.Same == 0 {
			b, err := os.ReadFile(path)
			if err != nil {
				p.t.Fatal(err)
			}
			f.Len = uint64(len(b))
			text.Write(b)
			inodes[ino] = uint32(len(p.body.Files) + 1)
		}
		p.body.Files = append(p.body.Files, f)
	}
	p.text = text.String()
	if p.change != nil {
		p.change(&p.body)
	}
}

// reads returns the list of files that the compiler gives with -M.
func (p *project) reads(args []string) []string {
	p.t.Helper()
	words := []string{"-M"}
	for i := 0; i < len(args); i++ {
		switch w := args[i]; {
		case w == "-o" || w == "-MF" || w == "-MT" || w == "-MQ":
			i++
		case w == "-c" || w == "-S" || strings.HasPrefix(w, "-M"), strings.HasPrefix(w, "-save-temps"):
		default:
			words = append(words, w)
		}
	}
	cmd := exec.Command(p.compiler, words...)
	cmd.Dir, cmd.Env = p.dir, append(slices.Clone(p.env), "PATH="+run.SearchPath)
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%q: %v", words, err)
	}
	_, rule, _ := strings.Cut(strings.ReplaceAll(string(out), "\\\n", " "), ":")
	rule = strings.ReplaceAll(rule, "\\ ", "\x00")
	var names []string
	for _, w := range strings.Fields(rule) {
		names = append(names, strings.NewReplacer("\x00", " ", "$$", "$", "\\#", "#").Replace(w))
	}
	return names
}

// answer is everything that a command leaves.
type answer struct {
	exit           int
	stdout, stderr string
	files          map[string]string // by names as the command has them
}

// here runs the command locally, and removes what it made.
func (p *project) here(args []string) answer {
	p.t.Helper()
	before := p.snapshot()
	cmd := exec.Command(p.compiler)
	cmd.Args = append([]string{filepath.Base(p.compiler)}, args...)
	cmd.Dir, cmd.Env = p.dir, append([]string{"PATH=" + run.SearchPath}, p.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if e := new(exec.ExitError); err != nil && !errors.As(err, &e) {
		p.t.Fatal(err)
	}
	a := answer{exit: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String(), files: map[string]string{}}
	for path, text := range p.snapshot() {
		if _, old := before[path]; !old {
			a.files[path] = text
			if err := os.Remove(path); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return a
}

// snapshot returns the content of the directory, by full names.
func (p *project) snapshot() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// there submits the command to the daemon, where it has to run.
func (p *project) there(c *testClient, tc unit.ToolchainID) answer {
	p.t.Helper()
	r := c.do(tc, request{body: p.body, text: p.text, sink: 4 << 20})
	if r.Status != job.StatusRan {
		p.t.Fatalf("%q: %+v", p.body.Args, r.Result)
	}
	a := answer{exit: int(r.Exit), stdout: string(r.bytes(r.Stdout)), stderr: string(r.bytes(r.Stderr)), files: map[string]string{}}
	for _, f := range r.Files {
		name := p.body.Outputs[f.Index].Name
		if !filepath.IsAbs(name) {
			name = p.body.Cwd + "/" + name
		}
		a.files[filepath.Join(realPath(p.t, filepath.Dir(name)), filepath.Base(name))] = string(r.bytes(f.Segment))
	}
	return a
}

// compare runs a command at both ends and compares the answers.
func (p *project) compare(c *testClient, tc unit.ToolchainID, args []string, more ...string) answer {
	p.t.Helper()
	p.prepare(args, more)
	want := p.here(args)
	p.same(p.there(c, tc), want) // by the driver
	got := p.there(c, tc)        // if it can be, without it
	p.same(got, want)
	return got
}

func (p *project) same(got, want answer) {
	p.t.Helper()
	args := p.body.Args
	if got.exit != want.exit || got.stdout != want.stdout || got.stderr != want.stderr {
		p.t.Errorf("%q: exit status %d, here %d\nstdout %q\n  here %q\nstderr:\n%s\nhere:\n%s", args, got.exit, want.exit, got.stdout, want.stdout, got.stderr, want.stderr)
	}
	for _, name := range slices.Sorted(maps.Keys(want.files)) {
		if text, ok := got.files[name]; !ok {
			p.t.Errorf("%q: no %s", args, name)
		} else if text != want.files[name] {
			p.t.Errorf("%q: %s differs from what is made here (%d bytes, %d here)", args, name, len(text), len(want.files[name]))
		}
	}
	for name := range got.files {
		if _, ok := want.files[name]; !ok {
			p.t.Errorf("%q: %s is not made here", args, name)
		}
	}
}

func realPath(t testing.TB, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// startTrees runs a server that shows trees with gcc and more compilers.
func startTrees(t *testing.T, change func(*Options), more ...string) (*testServer, *testClient) {
	t.Helper()
	ts := startServer(t, change)
	if !ts.places.Trees {
		need.Skipf(t, need.Sandbox, "needs the right to make namespaces")
	}
	if len(more) > 0 {
		ts.link(more...)
		if err := ts.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return ts, dial(t, ts.addr, &job.Hello{})
}

// inAnsweredTrees has servers make private trees by answers to compiles' calls.
var inAnsweredTrees bool

// TestAnsweredTrees: jobs in trees that are made by answers give what they give in others.
func TestAnsweredTrees(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("compiles for a minute")
	}
	if ts := startServer(t, func(o *Options) { o.Sandbox, o.Tree = SandboxAuto, TreeAnswered }); !ts.places.Trees {
		need.Skipf(t, need.Sandbox, "needs a kernel that lets calls be answered: %s", ts.Status().NoTree)
	} else if !ts.Status().Sandbox.Measures.Has(sandbox.Names) {
		t.Errorf("the measures are %s", ts.Status().Sandbox.Measures)
	}
	inAnsweredTrees = true
	defer func() { inAnsweredTrees = false }()
	for name, test := range map[string]func(*testing.T){
		"files": TestSourcesGiveTheLocalFiles, "names": TestSourceNames, "many": TestManyFiles, "PWD": TestPWDThroughALink, "same": TestSameFile,
		"not brought": TestWhatIsNotBrought, "undeclared": TestUndeclaredFile, "toolchain": TestNamesOfTheToolchain, "programs": TestProgramsAreNotBrought,
		"outputs": TestLayoutOfOutputs,
	} {
		t.Run(name, test)
	}
}

const macros = "#define TWICE(x) ((x) + (x))\n#define CALL(f, x) f(TWICE(x))\nint f(int);\n"

// TestSourcesGiveTheLocalFiles: object with debug information, dependency file
// and messages are those that the compiler makes here.
func TestSourcesGiveTheLocalFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for seconds; the programs' own tests do so in short as well")
	}
	ts, c := startTrees(t, nil, "g++", "clang")
	if !c.welcome.Tree {
		t.Error("the welcome does not tell of trees")
	}
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			p := newProject(t, cc, map[string]string{
				"src/a.c":     "#include <stdio.h>\n#include \"m.h\"\n#include <n.h>\nint g(int a) {\n\tint unused;\n\tputs(__FILE__);\n\treturn CALL(f, a) + N;\n}\n",
				"src/m.h":     macros,
				"inc/sub/n.h": "#define N 3\n",
				"src/warn.c":  "#include \"m.h\"\nint g(int a) { if (a = CALL(f, a)) return 1; }\nint w(void) { int *p = 1.5; return TWICE(p); }\n",
			})
			p.env = []string{"PWD=" + p.dir}
			for _, args := range []string{
				"-c src/a.c", "-c -g src/a.c -Iinc/sub -o a.o", "-c -g3 -O2 -Wall -Wextra -Iinc/../inc/sub src/a.c -o src/a.o",
				"-S -g src/a.c -Isrc/../inc/sub -o a.s", "-c -g -O1 -I inc/sub -MD -MF deps.d -MT target src/a.c -o a2.o",
				"-c -O2 -Iinc/sub -MMD -MP src/a.c", "-c -Wall src/warn.c", "-Wall -Werror -c src/warn.c -MD -o w.o",
				"-c -g -gsplit-dwarf src/a.c -Iinc/sub -o src/split.o", "-c -g -gsplit-dwarf src/a.c -Iinc/sub", "-c -save-temps -g src/a.c -Iinc/sub",
				"-c -save-temps=obj src/a.c -Iinc/sub -o inc/saved.o", "-c -ftest-coverage -frandom-seed=1 src/a.c -Iinc/sub -o cov.o",
				"-c -fdiagnostics-color=always -Wall src/warn.c", "-c -w src/warn.c",
				"-c -Wall -g src/../src/a.c -Iinc/sub -o su.o",
			} {
				words := strings.Fields(args)
				if !strings.Contains(args, "warn") && !strings.Contains(args, "inc/sub") {
					words = append(words, "-Iinc/sub")
				}
				if cc == "clang" {
					words = slices.DeleteFunc(words, func(w string) bool { return w == "-frandom-seed=1" })
				}
				p.compare(c, ts.tool(cc), words)
			}
		})
	}
}

// TestSourceNames: files have their names of the build host, however odd.
func TestSourceNames(t *testing.T) {
	ts, c := startTrees(t, nil)
	p := newProject(t, "gcc", map[string]string{
		"work/a.c":                                "#include \"h.h\"\nint a = H;\nconst char *s = __FILE__;\n",
		"work/h.h":                                "#define H 1\n",
		"work/with space.c":                       "#include \"a b.h\"\nint b = AB; const char *s = __FILE__;\n",
		"work/a b.h":                              "#define AB 2\n",
		"work/\u00fcber/\u65e5\u672c.c":           "#include \"\u0434.h\"\nint c; const char *s = __FILE__;\n",
		"work/\u00fcber/\u0434.h":                 "\n",
		"work/new\nline.c":                        "int d; const char *s = __FILE__;\n",
		"elsewhere/e.c":                           "#include \"../work/h.h\"\n#include \"../work/../work/h.h\"\nint e = H; const char *s = __FILE__;\n",
		"work/-dash.c":                            "int f;\n",
		"work/deep/er/than/that/h.h":              "#define D 1\n",
		"work/many/x.c":                           "#include \"../h.h\"\nint x = H;\n",
		"work/" + strings.Repeat("n", 250) + ".c": "int n; const char *s = __FILE__;\n",
	})
	top := p.root
	p.dir += "/work"
	for _, args := range [][]string{
		{"-c", "-g", "a.c", "-o", "a.o"},
		{"-c", "-g", top + "/work/a.c", "-o", top + "/abs.o"},
		{"-c", "-g", "with space.c"},
		{"-c", "-g", "\u00fcber/\u65e5\u672c.c", "-o", "\u00fcber/\u00e9.o"},
		{"-c", "-g", "../elsewhere/e.c"},
		{"-c", "-g", "many/../many/x.c", "-o", "many/../x.o"},
		{"-c", "-g", strings.Repeat("n", 250) + ".c"},
	} {
		p.compare(c, ts.tool("gcc"), args)
	}
	// make's syntax has no way to write this one.
	args := []string{"-c", "-g", "new\nline.c", "-o", "new line.o"}
	p.names = []string{"new\nline.c"}
	p.compare(c, ts.tool("gcc"), args)
}

// TestManyFiles: a compile of two hundred headers, in many directories.
func TestManyFiles(t *testing.T) {
	ts, c := startTrees(t, nil)
	files := map[string]string{}
	var src strings.Builder
	for i := range 200 {
		name := fmt.Sprintf("inc%d/h%d.h", i%20, i)
		files[name] = fmt.Sprintf("static int v%d = __LINE__;\n", i)
		fmt.Fprintf(&src, "#include \"%s\"\n", name)
	}
	files["a.c"] = src.String()
	p := newProject(t, "gcc", files)
	for range 3 {
		p.compare(c, ts.tool("gcc"), []string{"-c", "-g", "a.c"})
	}
}
