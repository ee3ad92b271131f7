package worker

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// sandboxVariable is the environment variable that says how a daemon in a process of its own confines
// compiles; empty: not at all.
const sandboxVariable = "RDISTCCD_TEST_SANDBOX"

// serveForTest runs this program as a daemon that can be killed: it prints where it listens and serves until
// then.
func serveForTest(base, bin string) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		panic(err)
	}
	mode := map[string]SandboxMode{"": SandboxOff, "auto": SandboxAuto, "strict": SandboxStrict, "answered": SandboxStrict}[os.Getenv(sandboxVariable)]
	tree := TreeAuto
	if os.Getenv(sandboxVariable) == "answered" {
		tree = TreeAnswered
	}
	s, err := New(context.Background(), Options{
		Sandbox: mode, Tree: tree,
		Device: dev, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Jobs: 2, Clients: 8, Slot: 8 << 20,
		WorkBase: base, Heartbeat: time.Second, Silence: patience, Grace: time.Millisecond, Settings: Settings{JobTimeout: patience, Dirs: []string{bin}},
	})
	if err != nil {
		panic(err)
	}
	l, err := dev.Listen(context.Background(), cmp.Or(os.Getenv("RDISTCCD_TEST_LISTEN"), "127.0.0.1:0"), nil)
	if err != nil {
		panic(err)
	}
	s.Serve(l)
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Close()
	os.Exit(0)
}

func startProcess(t testing.TB, base, bin string) (cmd *exec.Cmd, addr string, stdin io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Args[0] = serverArg0
	cmd.Args = append(cmd.Args, base, bin)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line), in
}

// A daemon that is killed leaves no compiler and no directory.
func TestKilledDaemonLeavesNothing(t *testing.T) { forms(t, testKilledDaemonLeavesNothing) }

func testKilledDaemonLeavesNothing(t *testing.T, b job.Body) {
	base := t.TempDir()
	ts := &testServer{t: t, bin: t.TempDir()}
	ts.Server = &Server{o: Options{Log: slog.New(slog.DiscardHandler)}, places: new(run.Host)}
	ts.wake = sync.NewCond(&ts.mu)
	ts.settings.Store(&Settings{Dirs: []string{ts.bin}})
	ts.openCompilers()
	id, pids, _ := ts.slow()
	cmd, addr, _ := startProcess(t, base, ts.bin)
	c := dial(t, addr, &job.Hello{})
	c.start(id, request{body: b})
	c.start(id, request{body: b})
	until(t, "the compilers", func() bool { return len(pids()) == 4 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wantDead(t, pids())
	until(t, "the work directory to go", func() bool {
		left, err := os.ReadDir(base)
		return err == nil && len(left) == 0
	})
	<-c.done
}

func TestDaemonThatEndsLeavesNothing(t *testing.T) {
	base := t.TempDir()
	cmd, _, stdin := startProcess(t, base, t.TempDir())
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
