package entrypoint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestPrograms links a program in each way: it has the slack, and the programs that it starts have what it was given.
func TestPrograms(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("entry points are written for amd64 and arm64, not for ", runtime.GOARCH)
	}
	// The go command shows a result again only while what a test has looked at is as it was.
	for _, pattern := range []string{"*", "testdata/say/*", "../../Makefile"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			_, _ = os.Stat(f)
		}
	}
	const getTimerSlack = 30 // PR_GET_TIMERSLACK, for which package syscall has no name
	given, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, getTimerSlack, 0, 0)
	for _, c := range []struct {
		flags string
		slack int
	}{{"", int(given)}, {"-E github.com/rdistcc/rdistcc/internal/entrypoint.long", slack}, {"-E github.com/rdistcc/rdistcc/internal/entrypoint.short", slack}} {
		say := filepath.Join(t.TempDir(), "say")
		build := exec.Command("go", "build", "-o", say, "-ldflags", c.flags, "./testdata/say")
		build.Env = append(build.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, env := range [][]string{{}, {"A=1"}, {"A=1", "GOMAXPROCS=2"}} {
			cmd := exec.Command(say)
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			want := fmt.Sprintf("slack %d environment %s\n%d\n", c.slack, strings.Join(env, " "), given)
			if err != nil || string(out) != want {
				t.Errorf("%q with %q: %v, %q, want %q", c.flags, env, err, out, want)
			}
		}
	}
}

// TestMakeLinks: the programs that mostly wait begin here.
func TestMakeLinks(t *testing.T) {
	for program, want := range map[string]string{"rdistcc": "quick.start'", "rdistcc-cm": "entrypoint.long'", "rdistccd": "entrypoint.long'"} {
		out, err := exec.Command("make", "-n", "-C", "../..", program).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("make %s: %v: %s does not contain %q", program, err, out, want)
		}
	}
}
