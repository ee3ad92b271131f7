package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
)

// TestAuditLog: each job has a line that says for which peer it was compiled. Nothing from a peer can break
// the line, and it has nothing of what is compiled.
func TestAuditLog(t *testing.T) {
	part.Skip(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	a, err := auditlog.Open(path, slog.New(slog.DiscardHandler))
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
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[any][]map[string]any{} // by what they are about
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		got[m["msg"]] = append(got[m["msg"]], m)
	}
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
	for _, secret := range []string{"hunter2", "private words", "stdio", "\x1b"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
