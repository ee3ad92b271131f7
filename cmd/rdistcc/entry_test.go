package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEntryLeavesNoTrace runs a compiler that says what it was given. Neither the words that
// entry puts into the environment nor its timer slack are for the programs that run here.
func TestEntryLeavesNoTrace(t *testing.T) {
	b := newBench(t, "RDISTCC_MODE=local")
	cc := filepath.Join(b.dir, "cc")
	script := "#!/bin/sh\n/usr/bin/env | sed -n 's/^GOMAXPROCS=/procs /p'\necho slack $(cat /proc/$$/timerslack_ns) argv $*\n"
	if err := os.WriteFile(cc, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Skip("the kernel tells no timer slack of a process: ", err)
	}
	slack := "slack " + strings.TrimSpace(string(own))
	for _, c := range []struct{ name, env, want string }{
		{"nothing said", "OTHER=1", slack + " argv a b"},
		{"the user's own number", "GOMAXPROCS=3", "procs 3\n" + slack + " argv a b"},
		{"no number", "GOMAXPROCS=", "procs \n" + slack + " argv a b"},
	} {
		for _, nested := range []string{"", "1"} { // as a child, and in place of the wrapper
			cmd := exec.Command(rdistcc, cc, "a", "b")
			cmd.Env = append(b.env, c.env)
			if nested != "" {
				cmd.Env = append(cmd.Env, safeguard+"="+nested)
			}
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("%s, nested %q: %q, %v, want %q", c.name, nested, got, err, c.want)
			}
		}
	}
}

// TestEntryWithoutEnvironment starts with nothing in the places in which entry looks.
func TestEntryWithoutEnvironment(t *testing.T) {
	for _, env := range [][]string{{}, {"A"}, {"GOMAXPROCS=2"}} {
		cmd := exec.Command(rdistcc, "--help")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != usage {
			t.Errorf("environment %q: %v: %s", env, err, out)
		}
	}
}

// TestEntryIsLinked looks at a wrapper that waits: one that begins at entry has another timer slack.
func TestEntryIsLinked(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("entry is written for amd64 and arm64, not for ", runtime.GOARCH)
	}
	b := newBench(t)
	cc := filepath.Join(b.dir, "cc")
	// The wrapper takes a moment behind the start of its child.
	const script = `#!/bin/sh
for i in 1 2 3 4 5 6 7 8 9; do
	read slack < /proc/$PPID/timerslack_ns
	[ $slack = 1000000 ] && break
	sleep 0.$i
done
echo $slack
`
	if err := os.WriteFile(cc, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(rdistcc, cc)
	cmd.Env = append(b.env, "RDISTCC_MODE=local")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "1000000\n" {
		t.Errorf("timer slack of the wrapper: %q, %v, want 1000000", out, err)
	}
	if out, err := exec.Command("make", "-n", "-C", "../..", "rdistcc").CombinedOutput(); err != nil || !strings.Contains(string(out), "-E main.entry") {
		t.Errorf("make does not link entry: %v: %s", err, out)
	}
}
