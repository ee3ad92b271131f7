package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/lab/exp/all"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
)

func TestMain(m *testing.M) {
	peer.Called(all.Handlers())
	os.Exit(m.Run())
}

// perf runs the program and returns its status, output and messages.
func perf(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, msgs strings.Builder
	code := run(t.Context(), args, &out, &msgs)
	return code, out.String(), msgs.String()
}

func TestExpList(t *testing.T) {
	code, out, _ := perf(t, "exp", "list")
	if code != 0 || strings.Count(out, "\n") != len(all.Experiments) || !strings.Contains(out, "latency-bandwidth") {
		t.Errorf("status %d: %s", code, out)
	}
}

// TestExpKeepsSamples: what --out has kept, --from judges again, in the same words.
func TestExpKeepsSamples(t *testing.T) {
	dir := t.TempDir()
	code, out, msgs := perf(t, "exp", "E13", "--size", "tiny", "--rounds", "1", "--out", dir)
	if code != 0 {
		t.Fatal(msgs)
	}
	for _, f := range []string{"latency-bandwidth.jsonl", "exp-latency-bandwidth-1.svg"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	code, again, msgs := perf(t, "exp", "latency-bandwidth", "--from", dir)
	if code != 0 || again != out {
		t.Errorf("%s\ngot %s\nwant %s", msgs, again, out)
	}
	code, out, _ = perf(t, "exp", "latency-bandwidth", "--from", dir, "--json")
	if code != 0 || !strings.Contains(out, `"verdict":"not to be told here"`) {
		t.Errorf("status %d: %s", code, out)
	}
}

func TestExpRefuses(t *testing.T) {
	for _, args := range [][]string{{}, {"no-such"}, {"E13", "--size", "large"}, {"E13", "--doc", "x.md"}} {
		if code, _, msgs := perf(t, append([]string{"exp"}, args...)...); code != exitArguments {
			t.Errorf("%v: status %d: %s", args, code, msgs)
		}
	}
}
