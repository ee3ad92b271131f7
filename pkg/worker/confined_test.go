package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// grounds runs a test with compiles unconfined, in trees, and in bare directories.
func grounds(t *testing.T, test func(t *testing.T, on func(*Options))) {
	t.Run("off", func(t *testing.T) { test(t, func(*Options) {}) })
	confined(t, test)
}

// confined runs a test with compiles in trees, and in bare directories.
func confined(t *testing.T, test func(t *testing.T, on func(*Options))) {
	for name, mode := range map[string]TreeMode{"tree": TreeAuto, "bare": TreeOff, "answered": TreeAnswered} {
		t.Run(name, func(t *testing.T) {
			test(t, func(o *Options) {
				o.Sandbox, o.Tree = SandboxAuto, mode
				if os.Geteuid() != 0 {
					return
				}
				o.Users = 61184
				for _, dir := range []string{o.WorkBase, o.Dirs[0]} { // they have to get there
					if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// needLevel skips the test if the machine does not offer the level.
func (ts *testServer) needLevel(l sandbox.Level) {
	ts.t.Helper()
	if st := ts.Status().Sandbox; st.Breach != "" {
		ts.t.Fatalf("breach: %s", st.Breach)
	} else if st.Measures.Level() < l {
		need.Skipf(ts.t, need.Sandbox, "compiles are %s here (%v), and the test needs %s", st.Measures.Level(), st.Measures, l)
	}
}

// TestConfinedObjectsEqualLocal: an object is the same wherever it is made, by the driver or by cc1 and as.
func TestConfinedObjectsEqualLocal(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("compiles for seconds; TestObjectEqualsLocal has one way")
	}
	grounds(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, on)
		ts.link("g++", "clang")
		if err := ts.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := dial(t, ts.addr, &job.Hello{Name: "test"})
		for range 3 { // the driver, the question what it would run, and that
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
			}
		}
		if ts.places.Recipes() == 0 {
			t.Error("no driver was asked what it would run")
		}
		if got := sandbox.Set(c.welcome.Sandbox); got != ts.Status().Sandbox.Measures || (got == 0) != (ts.o.Sandbox == SandboxOff) {
			t.Errorf("the welcome tells of %v, status of %v", got, ts.Status().Sandbox.Measures)
		}
	})
}

// TestConfinedFilesAndWords: side files, messages and failures are returned.
func TestConfinedFilesAndWords(t *testing.T) {
	part.Skip(t)
	confined(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, on)
		c := dial(t, ts.addr, &job.Hello{})
		b := compileBody("cpp-output", "a.c", "-O1", "-fstack-usage")
		b.Outputs = []unit.Output{{Kind: unit.OutputAssembly, Name: "a.s"}, {Kind: unit.OutputStackUsage, Name: "a.su"}}
		r := c.do(ts.tool("gcc"), request{body: b, text: hello})
		if len(r.Files) != 2 || !strings.Contains(string(r.bytes(r.Files[0].Segment)), "main:") || !strings.Contains(string(r.bytes(r.Files[1].Segment)), "main\t") {
			t.Errorf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
		r = c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "w.c", "-Wall"), text: "static int unused;\n"})
		if r.Exit != 0 || len(r.Files) != 1 || !strings.Contains(string(r.bytes(r.Stderr)), "unused") {
			t.Errorf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
		r = c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "wrong.c"), text: "int main( {\n"})
		if r.Status != job.StatusRan || r.Exit != 1 || len(r.Files) != 0 || !strings.Contains(string(r.bytes(r.Stderr)), "wrong.c:1") {
			t.Errorf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
	})
}

// TestTextMayNotLoadMemory: a text that makes gcc load a precompiled header is refused, confined or not.
func TestTextMayNotLoadMemory(t *testing.T) {
	part.Skip(t)
	grounds(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, on)
		c := dial(t, ts.addr, &job.Hello{})
		r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: "#pragma GCC pch_preprocess \"a.c\"\nint x;\n"})
		if r.Status != job.StatusRefused || r.Cause != job.CausePolicy {
			t.Errorf("%+v, want it refused", r.Result)
		}
	})
}
