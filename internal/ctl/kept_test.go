package ctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestAfterTheEnd: what the last manager wrote down is shown as just that.
func TestAfterTheEnd(t *testing.T) {
	s := newShell(t)
	at := time.Now().Add(-5*time.Hour - 30*time.Minute - 10*time.Second)
	k := report.Kept{At: at, Ended: true, Why: "nothing was compiled for 10m0s", Status: reporttest.Sample(),
		Stats: report.Stats{Version: "v1", Since: at.Add(-time.Hour), Jobs: reporttest.Sample().Jobs, Retries: 3}}
	k.Status.Since, k.Status.ListFrom = k.Stats.Since, ""
	k.Status.Recent = []report.JobRecord{{ID: 7, Began: time.Now(), Source: "x.c", Compiler: "/usr/bin/gcc", Host: "a:7632", Finished: true}}
	keep := func() string {
		t.Helper()
		data, err := json.Marshal(&k)
		if err != nil {
			t.Fatal(err)
		}
		path := s.file("state/cm.kept", string(data))
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := keep()
	head := "no connection manager runs at " + s.env["RDISTCC_DIR"] + "/cm.sock; the first compile starts one\n" +
		"the last one (v1) ran for 1h0m and ended 5h30m ago: nothing was compiled for 10m0s\nwhat it knew then:\n\n"
	for _, cmd := range []string{"status", "stats"} {
		out := s.want(0, "", "", cmd)
		if !strings.HasPrefix(out, head) || !strings.Contains(out, "a:7632") || strings.Contains(out, "\n\n\n") {
			t.Errorf("%s prints\n%s\nwant\n%s...", cmd, out, head)
		}
		s.want(0, `"why": "nothing was compiled for 10m0s"`, "", cmd, "--json")
	}
	if out := s.want(0, head, "", "top", "--times", "1"); !strings.Contains(out, "a:7632") {
		t.Errorf("top prints\n%s", out)
	}
	s.want(0, "x.c", "", "why")
	s.want(0, "x.c: ran on a:7632", "", "why", "x.c")
	s.want(100, "", "nothing is known of y.c: 1 command since", "why", "y.c")

	k.Ended, k.Why = false, ""
	keep()
	s.want(0, "the last one (v1) started 6h30m ago and was killed; it wrote this down 5h30m ago\n", "", "status")

	// A configuration with which none starts comes first.
	s.env["RDISTCC_CONFIG"] = s.file("bad.yaml", "jobz: 1\n")
	s.want(101, "", "with this none starts", "status")
	delete(s.env, "RDISTCC_CONFIG")

	// What cannot be believed, or read, counts as nothing.
	whole := filepath.Join(s.dir, "elsewhere")
	if err := os.Rename(path, whole); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"nonsense":    func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		"a link":      func() error { return os.Symlink(whole, path) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if code, out, errOut := s.run("status"); code != 100 || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errOut)
		}
	}
}
