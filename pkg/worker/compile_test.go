package worker

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func itoa(n int) string { return strconv.Itoa(n) }

const hello = "int printf(const char *, ...);\nint main(void) { return printf(\"hello %d\\n\", 42); }\n"

// local compiles text in the test itself, in the way that the daemon is asked to.
func local(t *testing.T, compiler, lang, name, text string, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("needs %s", compiler)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, "-x", lang, "-c", name, "-o", "x.o")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "x.o"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestObjectEqualsLocal(t *testing.T) {
	ts := startServer(t, nil)
	ts.link("g++", "clang")
	if err := ts.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, ts.addr, &job.Hello{Name: "test"})
	for _, q := range []struct{ compiler, lang, name string }{
		{"gcc", "cpp-output", "a.c"}, {"gcc", "c", "b.c"}, {"g++", "c++-cpp-output", "c.cc"}, {"clang", "cpp-output", "d.c"},
	} {
		args := []string{"-O2", "-Wall"}
		if q.lang == "c" {
			args = append([]string{"-fpreprocessed", "-fdirectives-only"}, args...)
		}
		r := c.do(ts.tool(q.compiler), request{body: compileBody(q.lang, q.name, args...), text: hello})
		if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 || r.Stdout.Len+r.Stderr.Len != 0 {
			t.Errorf("%s: %+v\n%s", q.compiler, r.Result, r.bytes(r.Stderr))
			continue
		}
		if want := local(t, q.compiler, q.lang, q.name, hello, args...); !bytes.Equal(r.bytes(r.Files[0].Segment), want) {
			t.Errorf("%s: the object differs from the local one", q.compiler)
		}
		if r.Next == nil || r.CPU == 0 || r.Wall == 0 || r.MaxRSS == 0 || r.Load.Jobs != 2 {
			t.Errorf("%s: %+v", q.compiler, r.Result)
		}
	}
}

func TestAssemblyAndStackUsage(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	b := compileBody("cpp-output", "a.c", "-O1", "-fstack-usage")
	b.Outputs = []unit.Output{{Kind: unit.OutputAssembly, Name: "a.s"}, {Kind: unit.OutputStackUsage, Name: "a.su"}}
	r := c.do(ts.tool("gcc"), request{body: b, text: hello})
	if len(r.Files) != 2 || r.Files[1].Index != 1 {
		t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	if s := string(r.bytes(r.Files[0].Segment)); !strings.Contains(s, "main:") {
		t.Errorf("assembly is %q", s)
	}
	if s := string(r.bytes(r.Files[1].Segment)); !strings.Contains(s, "main\t") {
		t.Errorf("stack usage is %q", s)
	}
}

// A compile that fails is a result like any other.
func TestCompilerSaysNo(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "wrong.c"), text: "int main( {\n"})
	if r.Status != job.StatusRan || r.Exit != 1 || len(r.Files) != 0 {
		t.Errorf("%+v", r.Result)
	}
	if s := string(r.bytes(r.Stderr)); !strings.Contains(s, "wrong.c:1") {
		t.Errorf("stderr is %q", s)
	}
}

func TestWarningsComeBack(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "w.c", "-Wall"), text: "static int unused;\n"})
	if r.Exit != 0 || len(r.Files) != 1 || !strings.Contains(string(r.bytes(r.Stderr)), "unused") {
		t.Errorf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
}

// No file of a job is visible to the next one.
func TestDirectoriesAreEmptyBetweenJobs(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	gcc := ts.fake("gcc-13", "mkdir deep; echo x >deep/file; echo y >$TMPDIR/tmp; ln -s /etc/passwd link; ls -A . .. ../tmp ../out; pwd; env >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	var listing [2]string
	for i := range listing {
		b := compileBody("cpp-output", "a.c")
		b.Env = []string{"LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=1"}
		r := c.do(gcc, request{body: b, text: "text"})
		listing[i] = string(r.bytes(r.Stdout))
		if len(r.Files) != 1 {
			t.Fatalf("%+v", r.Result)
		}
		env := string(r.bytes(r.Files[0].Segment))
		for line := range strings.Lines(env) {
			name, _, _ := strings.Cut(line, "=")
			switch name {
			case "PATH", "TMPDIR", "LC_ALL", "SOURCE_DATE_EPOCH", "PWD", "_", "SHLVL", "OLDPWD":
			default:
				t.Errorf("the compiler's environment has %s", line)
			}
		}
	}
	if listing[0] != listing[1] || !strings.Contains(listing[0], "a.c") {
		t.Errorf("the first job saw\n%sthe second\n%s", listing[0], listing[1])
	}
}

// TestRecipeGivesTheDriversObject: the first compile with a set of options runs the driver, later ones only
// cc1 and as. All make the same object, and failures are the same.
func TestRecipeGivesTheDriversObject(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	args := []string{"-fpreprocessed", "-fdirectives-only", "-O2", "-fPIC"}
	want := local(t, "gcc", "c", "a.c", hello, args...)
	for i := range 4 {
		r := c.do(ts.tool("gcc"), request{body: compileBody("c", "a.c", args...), text: hello})
		if r.Exit != 0 || len(r.Files) != 1 || !bytes.Equal(r.bytes(r.Files[0].Segment), want) {
			t.Errorf("time %d: %+v\n%s", i+1, r.Result, r.bytes(r.Stderr))
		}
		r = c.do(ts.tool("gcc"), request{body: compileBody("c", "a.c", args...), text: "int f(void) { return x; }\n"})
		if r.Exit != 1 || len(r.Files) != 0 || !strings.Contains(string(r.bytes(r.Stderr)), "a.c:1") {
			t.Errorf("time %d: %+v\n%s", i+1, r.Result, r.bytes(r.Stderr))
		}
	}
	if n := ts.places.Recipes(); n != 1 {
		t.Errorf("%d recipes, want 1", n)
	}
}
