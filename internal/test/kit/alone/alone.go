// Package alone runs a test in a process of its own.
package alone

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

const variable = "RDISTCC_TEST_ALONE"

// Here reports whether this process runs t alone. If it does not, Here runs t in one that does, and fails t if it fails there;
// the caller returns then.
//
// It is for tests that change what belongs to a whole process, such as the longest file it may write: go test itself writes
// files in this one.
func Here(t *testing.T) bool {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
