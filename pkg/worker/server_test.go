package worker

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// patience bounds every wait of a test: it is reached only when something is
// wrong.
const patience = 60 * time.Second

// testServer is a server on loopback with tools of its own.
type testServer struct {
	*Server
	t    testing.TB
	dev  iwarp.Device
	addr string
	base string // holds the work area
	bin  string // directory with the compilers that it finds
	log  *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startServer is beginServer, and waits for the end of the server's start.
func startServer(t testing.TB, change func(*Options)) *testServer {
	t.Helper()
	ts := beginServer(t, change)
	ts.settle()
	return ts
}

// beginServer runs a server whose compilers are those in bin: real ones through links, or scripts. It is
// closed and checked for leaks at the test's end.
func beginServer(t testing.TB, change func(*Options)) *testServer {
	t.Helper()
	part.Skip(t)
	checkLeaks(t)
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{t: t, dev: dev, base: t.TempDir(), bin: t.TempDir(), log: new(syncBuffer)}
	ts.link("gcc")
	known := filepath.Join(t.TempDir(), "compilers")
	if err := os.WriteFile(known, knownCompilers(), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Device: dev, Log: slog.New(slog.NewTextHandler(ts.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: NewMetrics(),
		Jobs: 2, Clients: 8, Slot: 4 << 20, Prefault: 64 << 10, WorkBase: ts.base, Compilers: known, Heartbeat: time.Second, Silence: patience, Grace: time.Millisecond,
		Settings: Settings{JobTimeout: patience, Dirs: []string{ts.bin}},
	}
	if change != nil {
		change(&o)
	}
	if inAnsweredTrees && o.Tree == TreeAuto {
		o.Tree, o.Sandbox = TreeAnswered, SandboxAuto
	}
	if ts.Server, err = New(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	l, err := dev.Listen(context.Background(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ts.addr = l.Addr().String()
	ts.Serve(l)
	t.Cleanup(ts.finish)
	return ts
}

// knownCompilers is what a server remembers about gcc for the next one. Without it, each server reads 90 MB
// and asks gcc 20 times.
var knownCompilers = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "rdistccd-test-")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(dir)
	c := toolchain.Cache{File: filepath.Join(dir, "compilers")}
	if path, err := exec.LookPath("gcc"); err == nil {
		_, _ = c.Identify(context.Background(), path)
	}
	text, _ := os.ReadFile(c.File) // without it all is done as without
	return text
})

// settle waits for the end of the server's start.
func (ts *testServer) settle() {
	ts.t.Helper()
	until(ts.t, "the end of the start", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.settledLocked()
	})
}

// finish closes the server and checks that nothing of it is left.
func (ts *testServer) finish() {
	ts.Close()
	if st := ts.dev.Stats(); st.QPs != 0 || st.MRs != 0 || st.RegisteredBytes != 0 {
		ts.t.Errorf("left on the device: %d QPs, %d regions of %d bytes", st.QPs, st.MRs, st.RegisteredBytes)
	}
	if err := ts.dev.Close(); err != nil {
		ts.t.Error(err)
	}
	if left, err := os.ReadDir(ts.base); err != nil || len(left) > 0 {
		ts.t.Errorf("left in the work base: %v, %v", left, err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		ts.t.Error(err)
	}
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, ts.base+"/") {
			ts.t.Errorf("%s: still in %s", link, cwd)
		}
	}
	if ts.t.Failed() {
		ts.t.Logf("server's log:\n%s", ts.log)
	}
}

// link makes compilers of this machine known to the server's next scan.
func (ts *testServer) link(names ...string) {
	ts.t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(ts.bin, name))
		}
		if err != nil {
			ts.t.Skipf("needs %s: %v", name, err)
		}
	}
}

// checkLeaks compares descriptors and goroutines with the current ones, once the test and its other clean-up
// are over. Only the first call of a test and its subtests does so: what it finds left over includes that of
// later servers, and a later call would count what the first server opens meanwhile as a leak of its own.
func checkLeaks(t testing.TB) {
	t.Helper()
	leaks.Lock()
	defer leaks.Unlock()
	outer, _, _ := strings.Cut(t.Name(), "/")
	if leaks.of[outer] {
		return
	}
	leaks.of[outer] = true
	fds, goroutines := openFDs(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		leaks.Lock()
		delete(leaks.of, outer)
		leaks.Unlock()
		// What has been told to end may take a moment to be gone.
		var after []string
		for range 6000 {
			if after = openFDs(t); len(after) <= len(fds) && runtime.NumGoroutine() <= goroutines {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 1<<16)
		t.Errorf("descriptors before and after:\n%s\n%s\ngoroutines: %d before, %d after\n%s",
			strings.Join(fds, " "), strings.Join(after, " "), goroutines, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

// leaks has the tests, by the names of the outermost ones, whose end is checked for leaks.
var leaks = struct {
	sync.Mutex
	of map[string]bool
}{of: make(map[string]bool)}

// openFDs returns what this process's descriptors lead to, without those of the Go runtime.
func openFDs(t testing.TB) (open []string) {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range dir {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "anon_inode:[event") {
			open = append(open, to)
		}
	}
	return open
}

// tool returns the ID of a compiler in bin.
func (ts *testServer) tool(name string) unit.ToolchainID {
	ts.t.Helper()
	for _, t := range ts.Toolchains() {
		if filepath.Base(t.Exec) == name {
			return t.ID
		}
	}
	ts.t.Skipf("needs %s", name)
	return unit.ToolchainID{}
}

// fake makes a compiler that runs script. The server takes it for a gcc, because it says that it is one. $out
// is where the object belongs.
func (ts *testServer) fake(name, script string) unit.ToolchainID {
	ts.t.Helper()
	path := filepath.Join(ts.bin, name)
	text := `#!/bin/sh
case $1 in
-v) echo "Target: test" >&2; echo "gcc version 12.0.0" >&2; exit;;
-print-prog-name=cc1) echo /bin/sh; exit;;
-print-prog-name=*) echo ${1#*=}; exit;;
-print-libgcc-file-name) echo libgcc.a; exit;;
-###) exit;;
esac
while [ "$1" != -o ]; do shift; done
out=$2
` + script
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		ts.t.Fatal(err)
	}
	if err := ts.Rescan(context.Background()); err != nil {
		ts.t.Fatal(err)
	}
	return ts.tool(name)
}

// until polls until other processes have done something.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for start := time.Now(); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("waiting for %s", what)
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && unix.Kill(pid, 0) == nil
}
