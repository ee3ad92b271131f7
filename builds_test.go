package rdistcc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestBuildSystems runs testdata/build: the recipes of docs/build-systems.md, each
// with the real tool on a small project. Beside the commands of TestScripts there are
//
//	objects FILE DIR    writes the digest and path of each object below DIR to FILE
//	places 'N PLACE, ...'
//	                    so many commands ran there since the last time: PLACE is
//	                    "remote" or what the report says
func TestBuildSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and starts farms")
	}
	for _, tool := range []string{"gcc", "g++", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "no %s", tool)
		}
	}
	p := scripts(t.Context(), "testdata/build", farmtest.Programs(t))
	p.Cmds["objects"], p.Cmds["places"] = objects, places
	testscript.Run(t, todays(t, p))
}

func objects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: objects FILE DIR")
	}
	var list strings.Builder
	dir := ts.MkAbs(args[1])
	ts.Check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".o" {
			return err
		}
		content, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, dir)
		fmt.Fprintf(&list, "%x %s\n", sha256.Sum256(content), name)
		return err
	}))
	if list.Len() == 0 {
		ts.Fatalf("no objects below %s", dir)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(list.String()), 0o600))
}

func places(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: places 'N PLACE, N PLACE'")
	}
	report, err := os.ReadFile(ts.MkAbs("report"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		ts.Check(err)
	}
	_ = os.Remove(ts.MkAbs("report")) // the counts start over
	count := map[string]int{}
	for line := range strings.Lines(string(report)) {
		place := strings.TrimSpace(line)
		if host, ok := strings.CutPrefix(place, "remote:"); ok && host != "" {
			place = "remote"
		}
		count[place]++
	}
	want := map[string]int{}
	for _, w := range strings.Split(args[0], ", ") {
		var n int
		var place string
		if _, err := fmt.Sscanf(w, "%d %s", &n, &place); err != nil {
			ts.Fatalf("%q: %v", w, err)
		}
		if n > 0 {
			want[place] = n
		}
	}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		ts.Fatalf("commands ran at %v, want %v", count, want)
	}
}
