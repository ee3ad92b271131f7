package deploy

import (
	"os/exec"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestStoreAlert: lacks alone, as of a new host, and evictions alone are no reason to raise
// store.memory; both together are.
func TestStoreAlert(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		need.Skipf(t, need.Tools, "promtool is not installed (Debian package prometheus)")
	}
	if out, err := exec.Command("promtool", "test", "rules", "testdata/store.yml").CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}
