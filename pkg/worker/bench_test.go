package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// shm is a directory where the daemon would make its work area.
func shm(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(DefaultBase(""), "rdistcc-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// BenchmarkEmptyJob compiles an empty C file on a daemon in a process of its own
// and reports that process's CPU time a job, its compilers' not included.
func BenchmarkEmptyJob(b *testing.B) {
	path, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	bin := b.TempDir()
	if err := os.Symlink(path, filepath.Join(bin, "gcc")); err != nil {
		b.Fatal(err)
	}
	cmd, addr, stdin := startProcess(b, shm(b), bin)
	c := dial(b, addr, &job.Hello{})
	do := func() {
		r := c.do(c.ids[0], request{body: compileBody("cpp-output", "empty.c", "-O2"), text: "# 1 \"empty.c\"\n", sink: 64 << 10})
		if r.Status != job.StatusRan || r.Exit != 0 {
			b.Fatalf("%+v", r.Result)
		}
		if err := r.mr.Dereg(); err != nil {
			b.Fatal(err)
		}
	}
	do()
	before := cpuTicks(b, cmd.Process.Pid)
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64(cpuTicks(b, cmd.Process.Pid)-before)*10/float64(b.N), "daemon-ms/op")
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// cpuTicks is a process's own CPU time in 1/100 s.
func cpuTicks(tb testing.TB, pid int) int {
	tb.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		tb.Fatal(err1, err2)
	}
	return user + system
}
