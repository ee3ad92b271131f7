package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestServesBesideIdentifying: a server welcomes clients and runs their jobs while it is still identifying
// compilers. It says so, announces each compiler as it becomes known, and says when the list is complete. A
// compiler that hangs delays no job.
func TestServesBesideIdentifying(t *testing.T) {
	part.Skip(t)
	for name, mode := range map[string]SandboxMode{"off": SandboxOff, "auto": SandboxAuto, "strict": SandboxStrict} {
		t.Run(name, func(t *testing.T) {
			if mode == SandboxStrict {
				startServer(t, func(o *Options) { o.Sandbox = SandboxAuto }).needLevel(sandbox.Confined)
			}
			var gate string
			ts := beginServer(t, func(o *Options) {
				o.Sandbox, o.Answer = mode, patience
				gate = filepath.Join(o.Dirs[0], "gate")
				if err := unix.Mkfifo(gate, 0o600); err != nil {
					t.Fatal(err)
				}
				waits := "#!/bin/sh\nread line <" + gate + "\nexit 1\n"
				if err := os.WriteFile(filepath.Join(o.Dirs[0], "gcc-99"), []byte(waits), 0o755); err != nil {
					t.Fatal(err)
				}
			})
			if err := ts.Ready(); err != nil || !ts.Identifying() {
				t.Errorf("a server that identifies compilers: ready: %v, identifying: %v", err, ts.Identifying())
			}
			c := dial(t, ts.addr, nil)
			c.send(&job.Hello{})
			c.wait("gcc", func() bool { return len(c.ids) == 1 && len(c.credits) > 0 })
			if !c.welcome.Identifying || c.listed {
				t.Errorf("welcome %+v, the list ended: %v; want a server that identifies", c.welcome, c.listed)
			}
			if r := c.do(c.ids[0], request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
				t.Errorf("a job meanwhile: %+v", r.Result)
			}
			f, err := os.OpenFile(gate, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			c.wait("the end of the list", func() bool { return c.listed })
			until(t, "the line that tells the end of it", func() bool {
				return !ts.Identifying() && strings.Contains(ts.log.String(), `msg="compilers are known" toolchains=1`)
			})
			if n := strings.Count(ts.log.String(), "compiler not offered"); n != 1 {
				t.Errorf("one compiler that tells nothing has %d lines", n)
			}
			if d := dial(t, ts.addr, &job.Hello{}); d.welcome.Identifying || d.welcome.Toolchains != 1 {
				t.Errorf("a later welcome: %+v", d.welcome)
			}
		})
	}
}

// TestKnownCompilersAreThereAtOnce: compilers that an earlier server has identified are in the first Welcome.
func TestKnownCompilersAreThereAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	bin := ""
	with := func(o *Options) {
		o.Compilers = filepath.Join(dir, "compilers")
		if bin == "" {
			bin = o.Dirs[0]
		}
		o.Dirs = []string{bin}
	}
	startServer(t, with)
	ts := beginServer(t, with)
	c := dial(t, ts.addr, nil)
	c.send(&job.Hello{})
	c.wait("the welcome", func() bool { return c.welcome != nil })
	if c.welcome.Toolchains != 1 || c.welcome.Identifying {
		t.Errorf("welcome %+v, want one with the compiler that is known", c.welcome)
	}
}

// TestNoCompiler: a server without compilers serves, and logs once what it lacks.
func TestNoCompiler(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Dirs = SandboxAuto, []string{t.TempDir(), "/does/not/exist"} })
	for range 2 {
		if err := ts.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(ts.log.String(), "no compiler found"); n != 1 {
		t.Errorf("told %d times", n)
	}
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(unit.ToolchainID{1}, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRefused || r.Cause != job.CauseToolchain {
		t.Errorf("answer %+v", r.Result)
	}
	if err := ts.Ready(); err == nil {
		t.Error("a server without compilers is ready")
	}
}

// TestManyCompilers: 200 toolchains are more than a message holds, and all of them run.
func TestManyCompilers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts hundreds of programs")
	}
	const many = 200
	ts := beginServer(t, func(o *Options) {
		o.Sandbox = SandboxAuto
		for i := range many {
			text := fmt.Sprintf(`#!/bin/sh
# compiler %d
case $1 in
-v) echo "Target: test" >&2; echo "gcc version 12.0.%d" >&2; exit;;
-print-prog-name=cc1) echo /bin/sh; exit;;
-print-prog-name=*) echo ${1#*=}; exit;;
-print-libgcc-file-name) echo libgcc.a; exit;;
-###) exit;;
esac
exec gcc "$@"
`, i, i)
			if err := os.WriteFile(filepath.Join(o.Dirs[0], fmt.Sprintf("gcc-%d", i)), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})
	c := dial(t, ts.addr, nil)
	c.send(&job.Hello{})
	c.wait("the end of the list", func() bool { return c.listed })
	if len(c.ids) != many+1 || len(ts.Toolchains()) != many+1 {
		t.Errorf("%d toolchains are listed, %d offered, want %d", len(c.ids), len(ts.Toolchains()), many+1)
	}
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("a job: %+v", r.Result)
	}
}
