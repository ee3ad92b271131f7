package rdistcc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestGainOfKnownCompilers runs a build whose compilers take a known time, on a farm and beside it, and compares what
// `rdistcc build` estimates with that time. The compilers count their CPU time, which no other load changes much.
func TestGainOfKnownCompilers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for seconds")
	}
	part.Skip(t)
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "no make")
	}
	const (
		units = 16
		each  = 150 * time.Millisecond
	)
	cc := farmtest.StandIn(t)
	root := farmtest.Dir(t)
	f := farmtest.New(t, root)
	dir := filepath.Join(root, "src")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, all := make(map[string]string), "all:"
	for i := range units {
		all += fmt.Sprintf(" u%d.o", i)
		files[fmt.Sprintf("u%d.c", i)] = fmt.Sprintf("/* stand-in: cpu %d output 2000 */\nint unit_%d;\n", each.Milliseconds(), i)
	}
	files["Makefile"] = all + "\n%.o: %.c\n\t$(CC) -c $< -o $@\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settings := filepath.Join(root, "daemon.yaml")
	if err := os.WriteFile(settings, []byte("toolchains: {dirs: ["+filepath.Dir(cc)+"]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := f.StartDaemon(t.Context(), "d1", "--config", settings, "--jobs", "4")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.StartManager(t.Context(), "--hosts", d.Addr); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), f.Wrapper, args...)
		cmd.Env, cmd.Dir = f.Env(), dir
		var errOut strings.Builder
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("rdistcc %q: %v: %s", args, err, errOut.String())
		}
		return out
	}
	run("build", "--", "make", "-s", "-j4", "CC="+f.Wrapper+" "+cc) // on hosts
	run("build", "--", "env", "RDISTCC_MODE=local", "make", "-s", "-B", "-j4", "CC="+f.Wrapper+" "+cc)
	var list []builds.Build
	if err := json.Unmarshal(run("builds", "--json"), &list); err != nil || len(list) != 2 {
		t.Fatalf("%d builds, %v", len(list), err)
	}
	const work = units * each
	far, near := &list[1], &list[0]
	if n := far.Gain.Of("remote"); n != units {
		t.Errorf("%d of %d compiles ran on the host: %+v", n, units, far.Gain)
	}
	if n := near.Gain.Of("local"); n != units {
		t.Errorf("%d of %d compiles ran here: %+v", n, units, near.Gain)
	}
	// The compilers end when they have used that much; their start, and another process on the same core, come on top.
	if ratio := float64(far.Gain.Work) / float64(work); ratio < 0.9 || ratio > 2 {
		t.Errorf("compiles of %v on the host are estimated as %v of work here", work, far.Gain.Work)
	}
	if ratio := float64(near.Gain.Work) / float64(work); ratio < 0.9 || ratio > 2 {
		t.Errorf("compiles of %v here are taken for %v of work", work, near.Gain.Work)
	}
	for _, b := range list {
		cores := min(runtime.NumCPU(), 4)
		if least := b.Gain.Work / time.Duration(cores); b.Gain.Alone < least || b.Gain.Alone > b.Gain.Work+b.Wall() {
			t.Errorf("%v of work on %d processors are estimated to take %v, in a build of %v", b.Gain.Work, cores, b.Gain.Alone, b.Wall())
		}
	}
	t.Logf("known %v; on the host %v, here %v; alone %v and %v, took %v and %v", work, far.Gain.Work, near.Gain.Work,
		far.Gain.Alone, near.Gain.Alone, far.Wall(), near.Wall())
}
