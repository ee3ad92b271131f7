package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// auditLines are the lines of a log that is closed, by what they are about.
func auditLines(t *testing.T, path string) map[string][]map[string]any {
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

// TestAuditLog: who had what compiled is a line a job, with nothing in it that a peer
// could break the line with, and nothing of what is compiled.
func TestAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a, err := OpenAudit(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("server", func(t *testing.T) {
		ts, addr := startNamed(t, func(o *Options) {
			o.Clients, o.Audit = 2, a
		})
		id := ts.tool("gcc")
		c := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{Name: "build1 {\"msg\":\"job\"} \u202e\u009b31m"})
		body := compileBody("cpp-output", "secret-plan.c")
		body.Env = []string{"TOKEN=hunter2"}
		c.do(id, request{body: body, text: hello}) // with an environment that is not allowed, or dropped
		for _, q := range []request{
			{body: compileBody("cpp-output", "a.c"), text: hello},
			{body: compileBody("cpp-output", "b.c"), text: "int f( { private words\n"},
			{body: compileBody("cpp-output", "c.c", "-fplugin=secret-option"), text: hello},
		} {
			c.do(id, q)
		}
		g := job.Greeting{Version: job.Version}
		if j := rejectionOn(t, from("127.0.0.2"), addr, g.Append(nil)); j.Cause != job.CauseFull {
			t.Errorf("one connection too many: %+v", j)
		}
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
	got := auditLines(t, path)
	for what, n := range map[string]int{"client connected": 1, "client refused": 1, "client gone": 1, "job": 4} {
		if len(got[what]) != n {
			t.Errorf("%d lines %q, want %d", len(got[what]), what, n)
		}
	}
	results := ""
	for _, m := range got["job"][1:] {
		results += fmt.Sprint(m["source"], " ", m["result"], " ", m["exit"], " ", m["cause"], "; ")
		for _, k := range []string{"time", "tenant", "remote", "proof", "name", "job", "toolchain", "language", "form", "wall_us", "rss"} {
			if m[k] == nil {
				t.Errorf("no field %s in %v", k, m)
			}
		}
		if m["tenant"] != "tls:127.0.0.2" || m["proof"] != "certificate" {
			t.Errorf("whose: %v", m)
		}
	}
	if want := "a.c ok 0 <nil>; b.c failed 1 <nil>; c.c refused 0 policy; "; results != want {
		t.Errorf("jobs: %s, want %s", results, want)
	}
	if m := got["client refused"][0]; m["cause"] != "full" || m["tenant"] != "tls:127.0.0.2" {
		t.Errorf("refused: %v", m)
	}
	text, _ := os.ReadFile(path)
	for _, secret := range []string{"hunter2", "private words", "stdio", "\x1b"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

// TestAuditFile: the file is the daemon's own, is opened anew when asked to, and what
// cannot be one is refused with a clear word.
func TestAuditFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	quiet := slog.New(slog.DiscardHandler)
	a, err := OpenAudit(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	a.event("one")
	until(t, "the line", func() bool { b, err := os.ReadFile(path); return err == nil && len(b) > 0 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Reopen(); err != nil {
		t.Fatal(err)
	}
	a.event("two")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.event("three") // after the end: nobody is there
	for name, want := range map[string]string{path + ".1": "one", path: "two"} {
		if got := auditLines(t, name); len(got) != 1 || len(got[want]) != 1 {
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
		if a, err := OpenAudit(bad, quiet); err == nil {
			a.Close()
			t.Errorf("%s is taken", bad)
		}
	}
	var none *Audit
	none.event("nothing")
	if none.Reopen() != nil || none.Close() != nil || none.Lost() != 0 {
		t.Error("no log is none")
	}
}

// TestAuditDiskFull: lines are lost then, which is said once, and jobs go on; once there
// is room it goes on with a whole line.
func TestAuditDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("rdistccd-audit", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs root to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	said := new(syncBuffer)
	path := filepath.Join(dir, "audit.log")
	a, err := OpenAudit(path, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 50<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 0; a.Lost() < 20; i++ {
		a.event("line", slog.String("text", strings.Repeat("x", 200)))
		if i%100 == 0 {
			until(t, "an empty queue", func() bool { return len(a.lines) == 0 })
		}
	}
	until(t, "an empty queue", func() bool { return len(a.lines) == 0 })
	if n := strings.Count(said.String(), "lines are lost"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	a.event("the last line")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "written again") {
		t.Errorf("that it goes on was not said:\n%s", said)
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
