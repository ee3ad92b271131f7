package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// events are lines of `go test -json`: one package passes, with a test that is skipped, one fails, one does not end its test.
const events = `{"Action":"start","Package":"github.com/rdistcc/rdistcc/pkg/a"}
{"Action":"run","Package":"github.com/rdistcc/rdistcc/pkg/a","Test":"TestA"}
{"Action":"output","Package":"github.com/rdistcc/rdistcc/pkg/a","Test":"TestA","Output":"    a_test.go:7: no clang\n"}
{"Action":"output","Package":"github.com/rdistcc/rdistcc/pkg/a","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"github.com/rdistcc/rdistcc/pkg/a","Test":"TestA","Elapsed":0}
{"Action":"pass","Package":"github.com/rdistcc/rdistcc/pkg/a","Elapsed":1.5}
{"Action":"start","Package":"github.com/rdistcc/rdistcc"}
{"Action":"run","Package":"github.com/rdistcc/rdistcc","Test":"TestB"}
{"Action":"run","Package":"github.com/rdistcc/rdistcc","Test":"TestB/a+b"}
{"Action":"output","Package":"github.com/rdistcc/rdistcc","Test":"TestB/a+b","Output":"    b_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"github.com/rdistcc/rdistcc","Test":"TestB/a+b","Elapsed":0}
{"Action":"fail","Package":"github.com/rdistcc/rdistcc","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"github.com/rdistcc/rdistcc","Elapsed":2}
{"Action":"start","Package":"github.com/rdistcc/rdistcc/pkg/c"}
{"Action":"run","Package":"github.com/rdistcc/rdistcc/pkg/c","Test":"TestC"}
{"Action":"output","Package":"github.com/rdistcc/rdistcc/pkg/c","Test":"TestC","Output":"panic: too bad\n"}
{"Action":"fail","Package":"github.com/rdistcc/rdistcc/pkg/c","Elapsed":2}
`

func TestWatcher(t *testing.T) {
	var out bytes.Buffer
	used := map[string]usage{"pkg/a": {"pkg/a", 5 * time.Second, 0}, ".": {".", 9 * time.Second, 0}, "pkg/c": {"pkg/c", 6 * time.Second, 0}}
	w := newWatcher(&out, 3, "20785/8", func(pkg string) (usage, bool) { u, ok := used[pkg]; return u, ok })
	if err := w.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	b := budget{"pkg/a": 2 * time.Second, ".": 20 * time.Second}
	w.sum(b, used, b.over(used))
	for _, want := range []string{
		"ok   pkg/a                                    1.5 s, 5.0 s of CPU (1 of 3)\n",
		"    b_test.go:9: got 1, want 2\nFAIL .  ", "panic: too bad\nFAIL pkg/c ",
		"skipped: no clang: pkg/a TestA\n", "20 s of CPU, 27 s granted\n",
		"FAIL pkg/a used 5.0 s of CPU, its budget is 2 s\n",
		"over pkg/c used 6.0 s of CPU, its budget is 5 s; more than 2 times that fails\n",
		"FAIL . TestB/a+b; again: RDISTCC_TEST_PART=20785/8 go test ./ -run '^TestB$/^a\\+b$'\n     b_test.go:9: got 1, want 2\n",
		"FAIL pkg/c; again: RDISTCC_TEST_PART=20785/8 go test ./pkg/c\n",
		"\n0 passed, 4 failed, 1 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if w.failed != 3 {
		t.Errorf("%d failed, want the test, its parent, and the package that did not end", w.failed)
	}
}

// TestQuiet: no ten seconds pass without a line.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, events := io.Pipe()
		var out bytes.Buffer
		w := newWatcher(&out, 2, "", func(string) (usage, bool) { return usage{}, false })
		done := make(chan error)
		go func() { done <- w.read(r) }()
		fmt.Fprintln(events, `{"Action":"start","Package":"github.com/rdistcc/rdistcc/pkg/a"}`)
		fmt.Fprintln(events, `{"Action":"run","Package":"github.com/rdistcc/rdistcc/pkg/a","Test":"TestLong/part"}`)
		time.Sleep(35 * time.Second)
		events.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[0], "0 of 2 packages; running: pkg/a TestLong") {
			t.Errorf("%d lines in 35 s: %q", len(lines), lines)
		}
	})
}

// TestMeasure: what a test binary uses counts with the processes that it waits for, and its status is its own.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := filepath.Join(dir, "used")
	for script, want := range map[string]int{"sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'": 0, "exit 3": 3} {
		status, err := measure(file, []string{"sh", "-c", script})
		if err != nil || status != want {
			t.Errorf("%s: status %d, %v", script, status, err)
		}
		all, err := readUsage(file, filepath.Dir(dir))
		if u := all[filepath.Base(dir)]; err != nil || want == 0 && u.cpu < 10*time.Millisecond {
			t.Errorf("%s: %v, %v", script, all, err)
		}
	}
}

func TestBudget(t *testing.T) {
	file := filepath.Join(t.TempDir(), "budget")
	for text, want := range map[string]string{"# all\npkg/a 3\npkg/b 0.5\n": "", "pkg/a\n": ":1: ", "pkg/a 1\n\npkg/a 2\n": ":3: ", "pkg/a x\n": ":1: "} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := readBudget(file)
		if want == "" && (err != nil || b.of("pkg/b") != time.Second/2 || b.of("pkg/c") != ungranted) {
			t.Errorf("%q: %v, %v", text, b, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	pkgs := []string{"x", "pkg/b", "pkg/a"}
	budget{"pkg/a": 3, "pkg/b": 1}.longestFirst(pkgs)
	if fmt.Sprint(pkgs) != "[pkg/a pkg/b x]" {
		t.Error(pkgs)
	}
	budget{"pkg/a": 3, "pkg/b": 1}.longestFirst(pkgs, "x", "pkg/none")
	if fmt.Sprint(pkgs) != "[x pkg/a pkg/b]" {
		t.Error(pkgs)
	}
}

// TestMachine: of the packages, those are told apart whose tests meet the machine, and those that are none of the product's.
func TestMachine(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	patterns := []string{module + "/internal/wire", module + "/pkg/scheduler", module + "/internal/privatetree", module + "/internal/test/suite/equal", module + "/pkg/connmgr/known"}
	_, all, err := list(t.Context(), patterns, func(listed) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	_, some, err := list(t.Context(), patterns, listed.meetsMachine)
	if err != nil {
		t.Fatal(err)
	}
	if l := (listed{ImportPath: module + "/lab/rdistcc-perf"}); !l.beside() || (listed{ImportPath: module + "/internal/test/suite/equal"}).beside() {
		t.Error("not what is beside the product")
	}
	if len(all) != 5 || fmt.Sprint(some) != "[internal/privatetree internal/test/suite/equal pkg/connmgr/known]" {
		t.Errorf("%v of %v", some, all)
	}
}
