package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
)

// lines returns the lines of a log, by their messages.
func lines(t *testing.T, path string) map[string][]map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]map[string]any{}
	for line := range bytes.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("a line that is no JSON object: %v\n%q", err, line)
		}
		what, _ := m["msg"].(string)
		out[what] = append(out[what], m)
	}
	return out
}

// until waits until a goroutine has done something.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for start := time.Now(); !cond(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("waiting for %s", what)
		}
	}
}

// said collects the messages about trouble.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestLines: each line has its fields, and strings from a peer can neither break a line nor fill the disk.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	evil := "x\n{\"msg\":\"job\"}\x1b[31m\xff" + strings.Repeat("é", 300)
	p := Peer{Tenant: evil, Remote: "192.0.2.1:5", Proof: "key", Client: 7, Name: evil}
	a.Connected(p)
	a.Refused(evil, "192.0.2.1:6", &job.Rejection{Cause: job.CauseFull, Detail: evil})
	a.Gone(p, 3, 1500*time.Millisecond, errors.New(evil))
	m := &job.Job{ID: 9, TextLen: 100}
	a.Job(&Job{Peer: p, Asked: m, Answer: &job.Result{Window: job.Window{Len: 50}}, Language: evil, Source: "/secret/a.c", Files: 2, Compiler: "gcc-12"})
	a.Job(&Job{Peer: p, Asked: m, Answer: &job.Result{Status: job.StatusRefused, Cause: job.CausePolicy, Detail: evil, Signal: 9}, Written: 5, Source: "b.c", Excess: "memory"})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, path)
	if len(got["client connected"]) != 1 || len(got["client refused"]) != 1 || len(got["client gone"]) != 1 || len(got["job"]) != 2 {
		t.Fatalf("lines: %v", got)
	}
	want := func(m map[string]any, fields map[string]any) {
		t.Helper()
		for k, v := range fields {
			if m[k] != v {
				t.Errorf("%v: %s is %v, want %v", m["msg"], k, m[k], v)
			}
		}
		for k, v := range m {
			if s, ok := v.(string); ok && (len(s) > 256+len("...") || !utf8.ValidString(s)) {
				t.Errorf("%v: %s is %q", m["msg"], k, s)
			}
		}
	}
	want(got["client connected"][0], map[string]any{"remote": "192.0.2.1:5", "proof": "key", "client": 7.0})
	want(got["client refused"][0], map[string]any{"remote": "192.0.2.1:6", "cause": "full"})
	want(got["client gone"][0], map[string]any{"client": 7.0, "jobs": 3.0, "after_ms": 1500.0})
	want(got["job"][0], map[string]any{"job": 9.0, "source": "a.c", "form": "sources", "files": 2.0, "result": "ok", "sent": 50.0, "text": 100.0, "compiler": "gcc-12", "cause": nil, "excess": nil, "signal": nil})
	want(got["job"][1], map[string]any{"source": "b.c", "form": "text", "result": "refused", "sent": 5.0, "cause": "policy", "excess": "memory", "signal": 9.0})
}

// TestAuditFile: the file belongs to the daemon alone, Reopen opens it again, and a file that is unsuitable
// is refused with a clear message.
func TestAuditFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	quiet := slog.New(slog.DiscardHandler)
	a, err := Open(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	a.line("one")
	until(t, "the line", func() bool { b, err := os.ReadFile(path); return err == nil && len(b) > 0 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Reopen(); err != nil {
		t.Fatal(err)
	}
	a.line("two")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.line("three") // after the end: nobody is there
	for name, want := range map[string]string{path + ".1": "one", path: "two"} {
		if got := lines(t, name); len(got) != 1 || len(got[want]) != 1 {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	link, fifo, open := filepath.Join(dir, "link"), filepath.Join(dir, "fifo"), filepath.Join(dir, "open")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, fifo, open, "/dev/full", filepath.Join(dir, "none", "x")} {
		if a, err := Open(bad, quiet); err == nil {
			a.Close()
			t.Errorf("%s is taken", bad)
		}
	}
	var none *Log
	none.line("nothing")
	if none.Reopen() != nil || none.Close() != nil || none.Lost() != 0 {
		t.Error("no log is none")
	}
}

// TestAuditDiskFull: while the disk is full, lines are lost, which is reported once, and jobs go on. Once
// there is room, the log goes on with a whole line.
func TestAuditDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("rdistccd-audit", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs root to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	trouble := new(said)
	path := filepath.Join(dir, "audit.log")
	a, err := Open(path, slog.New(slog.NewTextHandler(trouble, nil)))
	if err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 50<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 0; a.Lost() < 20; i++ {
		a.line("line", slog.String("text", strings.Repeat("x", 200)))
		if i%100 == 0 {
			until(t, "an empty queue", func() bool { return len(a.lines) == 0 })
		}
	}
	until(t, "an empty queue", func() bool { return len(a.lines) == 0 })
	if n := strings.Count(trouble.String(), "lines are lost"); n != 1 {
		t.Errorf("said %d times:\n%s", n, trouble)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	a.line("the last line")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(trouble.String(), "written again") {
		t.Errorf("that it goes on was not said:\n%s", trouble)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var m map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil || m["msg"] != "the last line" {
		t.Errorf("the last line is %q (%v)", lines[len(lines)-1], err)
	}
}
