package worker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// workArea returns a directory where the daemon would make its work area.
func workArea(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(workdir.DefaultBase(""), "rdistcc-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// BenchmarkEmptyJob compiles an empty C file on a daemon in a process of its own, in both forms, confined and
// not, and reports the CPU time per job of the daemon and all that it starts.
func BenchmarkEmptyJob(b *testing.B) {
	path, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	bin := b.TempDir()
	if err := os.Symlink(path, filepath.Join(bin, "gcc")); err != nil {
		b.Fatal(err)
	}
	out := []unit.Output{{Kind: unit.OutputObject, Name: "empty.o"}}
	// What glibc has every compile include.
	predef := "/* stdc-predef.h */\n"
	sources := job.Body{
		Argv0: "gcc", Args: []string{"-O2", "-c", "empty.c"}, Language: "c", Name: "empty.c", Cwd: "/home/user/src", Outputs: out,
		Files: []unit.File{{Name: "empty.c"}, {Name: "/usr/include/stdc-predef.h", Len: uint64(len(predef))}},
	}
	many, text := sources, predef+strings.Repeat("\n", 200<<10)
	for i := range 200 {
		many.Files = append(many.Files, unit.File{Name: fmt.Sprintf("/usr/include/dir%d/header%d.h", i%20, i), Len: 1 << 10})
	}
	for _, form := range []struct {
		name string
		req  request
	}{
		{"text", request{body: compileBody("cpp-output", "empty.c", "-O2"), text: "# 1 \"empty.c\"\n"}},
		{"sources", request{body: sources, text: predef}},
		{"sources-200", request{body: many, text: text}},
	} {
		for _, mode := range []string{"off", "strict"} {
			b.Run(form.name+"/"+mode, func(b *testing.B) {
				b.Setenv(sandboxVariable, strings.TrimPrefix(mode, "off"))
				benchmarkJob(b, bin, form.req, form.req)
			})
		}
	}
}

// BenchmarkManyHeaders does the same for an empty file with 350 headers of 4.8 MB, sent with each job or sent
// once.
func BenchmarkManyHeaders(b *testing.B) {
	path, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	bin := b.TempDir()
	if err := os.Symlink(path, filepath.Join(bin, "gcc")); err != nil {
		b.Fatal(err)
	}
	q := request{body: treeBody("gcc")}
	q.body.Files = []unit.File{{Name: "a.c"}}
	var text strings.Builder
	for i := range 350 {
		header := strings.Repeat(fmt.Sprintf("int v%d[] = {%d};\n", i, i), 1000)[:14<<10]
		text.WriteString(header)
		q.body.Files = append(q.body.Files, unit.File{Name: fmt.Sprintf("/usr/include/dir%d/header%d.h", i%20, i), Len: uint64(len(header))})
	}
	q.text = text.String()
	all := inParts(q)
	first := all.named(true)
	for _, mode := range []string{"off", "strict"} {
		b.Run("inline/"+mode, func(b *testing.B) {
			b.Setenv(sandboxVariable, strings.TrimPrefix(mode, "off"))
			benchmarkJob(b, bin, q, q)
		})
		b.Run("lists/"+mode, func(b *testing.B) {
			b.Setenv(sandboxVariable, strings.TrimPrefix(mode, "off"))
			benchmarkJob(b, bin, first, all.named(false))
		})
	}
}

// BenchmarkIncludedHeaders compiles a C++ source that includes all of the standard library's headers, which the tree keeps, in both kinds
// of private trees.
func BenchmarkIncludedHeaders(b *testing.B) {
	path, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	bin, src := b.TempDir(), b.TempDir()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(os.Symlink(path, filepath.Join(bin, "gcc")))
	const source = "#include <bits/stdc++.h>\nint f() { return 1; }\n"
	must(os.WriteFile(filepath.Join(src, "a.cc"), []byte(source), 0o600))
	cmd := exec.Command("gcc", "-M", "-g", "a.cc")
	cmd.Dir = src
	rule, err := cmd.Output()
	if err != nil {
		b.Skip("needs g++")
	}
	q := request{body: treeBody("gcc")}
	q.body.Args, q.body.Language, q.body.Name = []string{"-c", "-g", "a.cc", "-o", "x.o"}, "c++", "a.cc"
	q.body.Files = []unit.File{{Name: "a.cc", Len: uint64(len(source))}}
	text := source
	for _, name := range strings.Fields(string(rule))[2:] {
		if header, err := os.ReadFile(name); err == nil && name != "\\" {
			q.body.Files = append(q.body.Files, unit.File{Name: name, Len: uint64(len(header))})
			text += string(header)
		}
	}
	q.text = text
	all := inParts(q)
	b.Logf("%d headers", len(q.body.Files)-1)
	for _, mode := range []string{"strict", "answered"} {
		b.Run(mode, func(b *testing.B) {
			b.Setenv(sandboxVariable, mode)
			benchmarkJob(b, bin, all.named(true), all.named(false))
		})
	}
}

// benchmarkJob does first once, and then q repeatedly.
func benchmarkJob(b *testing.B, bin string, first, q request) {
	cmd, addr, stdin := startProcess(b, workArea(b), bin)
	c := dial(b, addr, &job.Hello{})
	if q.body.HasFiles() && !c.welcome.Tree {
		b.Skip("needs the right to make namespaces")
	}
	first.sink, q.sink = 1<<20, 1<<20
	do := func(q request) {
		r := c.do(c.ids[0], q)
		if r.Status != job.StatusRan || r.Exit != 0 {
			b.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
		if err := r.mr.Dereg(); err != nil {
			b.Fatal(err)
		}
	}
	do(first)
	do(q)
	before := daemonTicks(b, cmd.Process.Pid)
	for b.Loop() {
		do(q)
	}
	after := daemonTicks(b, cmd.Process.Pid)
	for i, what := range []string{"daemon-ms/op", "trees-ms/op", "compilers-ms/op"} {
		b.ReportMetric(float64(after[i]-before[i])*10/float64(b.N), what)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// daemonTicks returns the CPU time of a daemon, of its trees' processes, and of all compilers, in 1/100 s.
func daemonTicks(tb testing.TB, pid int) (t [3]int) {
	tb.Helper()
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		tb.Fatal(err)
	}
	t[0], t[2] = cpuTicks(tb, pid)
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for _, f := range strings.Fields(string(children)) {
			name, err := os.ReadFile("/proc/" + f + "/cmdline")
			if pid, cerr := strconv.Atoi(f); err == nil && cerr == nil && strings.HasPrefix(string(name), privatetree.Arg0) {
				own, reaped := cpuTicks(tb, pid)
				t[1] += own
				t[2] += reaped
			}
		}
	}
	return t
}

// cpuTicks returns a process's own CPU time, and that of the children that it has waited for, in 1/100 s.
func cpuTicks(tb testing.TB, pid int) (own, reaped int) {
	tb.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	var n [4]int
	for i, f := range strings.Fields(rest)[11:15] {
		if n[i], err = strconv.Atoi(f); err != nil {
			tb.Fatal(err)
		}
	}
	return n[0] + n[1], n[2] + n[3]
}
