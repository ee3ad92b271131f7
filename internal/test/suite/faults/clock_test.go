package faults

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestClockJumps: what is left in files of a time that has not come yet, or is long
// gone, keeps no manager from being started.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.file("hello.c", "int hello;\n")
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		lock := filepath.Join(s.Dir, ipc.LockName)
		if err := os.WriteFile(lock, []byte("failed\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(jump)
		if err := os.Chtimes(lock, then, then); err != nil {
			t.Fatal(err)
		}
		o := s.run([]string{"RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
			t.Errorf("a failure of %v from now: %+v, want it done by the host", jump, o)
		}
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
		if out, err := s.command(nil, s.Wrapper, "stop").CombinedOutput(); err != nil {
			t.Errorf("stop: %v: %s", err, out)
		}
	}
}

// wallClock lists the files that read the wall clock, and what for. Everything else uses the monotonic part
// of time.Now, which cannot be set.
var wallClock = map[string]string{
	"cmd/rdistcc/once.go":                 "an mtime, in both directions",
	"cmd/rdistcc/record.go":               "a record says when",
	"cmd/rdistcc/refusal.go":              "files' times, in both directions; an edit that they hide is seen when the refusal is old",
	"cmd/rdistcc/several.go":              "a seed",
	"cmd/rdistcc/start.go":                "an mtime, in both directions",
	"pkg/iwarp/lastwords.go":              "a deadline that has passed",
	"internal/test/kit/iwarptest/pcap.go": "a file's format",
	"pkg/worker/workdir/area.go":          "an mtime; a work area that is not seen as old is so an hour later",
	"pkg/worker/run/text_tree.go":         "an mtime, as a compiler sees it",
	"pkg/worker/serve.go":                 "what the clock says is told to clients, for rdistcc doctor",
	"pkg/worker/files/learn.go":           "mtimes as identity",
	"pkg/connmgr/known/images.go":         "a stamp as identity; a clock that was set back costs the recipe",
	"internal/ctl/doctor_host.go":         "two machines' clocks are compared",

	"pkg/connmgr/known/made/image.go": "the same stamp",
	"pkg/connmgr/known/past.go":       "a file says when, to the day; a clock that was set costs the recipe",
}

// TestTimeOutsGoByTheMonotonicClock looks for what takes the monotonic clock's reading
// out of a time.
func TestTimeOutsGoByTheMonotonicClock(t *testing.T) {
	for name := range wallClock {
		if _, err := os.Stat(filepath.Join("../../../..", name)); err != nil {
			t.Errorf("an exception for a file that is not there: %v", err)
		}
	}
	strips := []string{"Unix", "UnixNano", "UnixMicro", "UnixMilli", "UTC", "Local", "In", "Round", "Truncate", "AddDate"}
	for _, tree := range []string{"cmd/rdistcc", "cmd/rdistccd", "cmd/rdistcc-cm", "internal/ctl", "pkg/connmgr", "pkg/worker", "pkg/scheduler", "internal/rdmaread", "pkg/iwarp"} {
		err := filepath.WalkDir(filepath.Join("../../../..", tree), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, _ := filepath.Rel("../../../..", path) // both are relative
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if ok && slices.Contains(strips, sel.Sel.Name) && ofTime(sel.X) && wallClock[name] == "" {
					t.Errorf("%s: %s of a time: a wall clock that is set would count; if it may, say so here", name, sel.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// ofTime reports whether an expression is package time, or a call of its Now: what can be
// told without types.
func ofTime(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "time" || x.Name == "now"
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Now"
	}
	return false
}
