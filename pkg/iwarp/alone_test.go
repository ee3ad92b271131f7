package iwarp_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestStandsAlone: a program that uses this package builds nothing of rdistcc but the stack and two small packages, and of others' modules a
// CRC and system calls.
func TestStandsAlone(t *testing.T) {
	const module = "github.com/rdistcc/rdistcc/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		module + "pkg/iwarp", module + "pkg/iwarp/mpa", module + "pkg/iwarp/ddp", module + "pkg/iwarp/rdmap",
		module + "internal/spin", module + "internal/tcpaddr",
		"github.com/klauspost/crc32", "golang.org/x/sys/cpu", "golang.org/x/sys/unix",
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct {
			ImportPath string
			Standard   bool
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if !p.Standard && !slices.Contains(allowed, p.ImportPath) {
			t.Errorf("it needs %s", p.ImportPath)
		}
	}
}

// TestPageHasExample: the example in docs/iwarp.md is the one that runs.
func TestPageHasExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/iwarp.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_whole_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(code)+"```\n") {
		t.Error("docs/iwarp.md does not hold example_whole_test.go: copy it there")
	}
}
