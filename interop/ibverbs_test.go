package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// guestDevice and guestAddr are the guest's iWARP device that the host reaches.
const (
	guestDevice = "siw0"
	guestAddr   = "10.0.2.15"
)

// needRDMA skips the test where the provider ibverbs cannot be built.
func needRDMA(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"go", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, to build the provider ibverbs", tool)
		}
	}
	cmd := exec.Command("gcc", "-E", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n")
	if cmd.Run() != nil {
		t.Skip("needs the headers of libibverbs and librdmacm (on Debian: make deps)")
	}
}

// build runs the go command with the provider ibverbs, in the project's directory.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestIbverbsSuite runs the conformance suite on the provider ibverbs, siw with siw.
func TestIbverbsSuite(t *testing.T) {
	g := Boot(t)
	needRDMA(t)
	note := row(t, "siw through libibverbs", "conformance suite of verbs")
	bin := filepath.Join(t.TempDir(), "ibverbs.test")
	build(t, "test", "-c", "-tags", "ibverbs", "-o", bin, "./pkg/iwarp/ibverbs")
	path := g.Put(t, bin)
	out, status := g.Exec(t, "cd /tmp && RDISTCC_IBVERBS="+guestAddr+","+guestDevice+" "+path+" -test.v -test.run TestSuite -test.timeout 280s", 5*time.Minute)
	passed, skipped := strings.Count(out, "\n    --- PASS: TestSuite/"), strings.Count(out, "\n    --- SKIP: TestSuite/")
	*note = fmt.Sprintf("%d cases, %d more beyond the device", passed, skipped)
	if status != 0 || passed == 0 {
		var bad []string
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- PASS") && !strings.Contains(line, "--- SKIP") {
				bad = append(bad, line)
			}
		}
		t.Errorf("exit status %d\n%s", status, tail(strings.Join(bad, ""), 60))
	}
}

// TestIbverbsRevocation measures what an STag for each job costs on siw, and attacks by a Write after the job.
func TestIbverbsRevocation(t *testing.T) {
	g := Boot(t)
	needRDMA(t)
	note := row(t, "siw through libibverbs", "a slot for each job: its price, and a late Write")
	bin := filepath.Join(t.TempDir(), "ibverbs.test")
	build(t, "test", "-c", "-tags", "ibverbs", "-o", bin, "./pkg/iwarp/ibverbs")
	path := g.Put(t, bin)
	out, status := g.Exec(t, "cd /tmp && RDISTCC_IBVERBS="+guestAddr+","+guestDevice+" "+path+" -test.v -test.run TestPriceOfRevocation -test.timeout 280s", 5*time.Minute)
	prices := regexp.MustCompile(`price: (.*)`).FindAllStringSubmatch(out, -1)
	if status != 0 || len(prices) == 0 {
		t.Fatalf("exit status %d\n%s", status, tail(out, 60))
	}
	for i, m := range prices {
		if i > 0 {
			*note += "; "
		}
		*note += m[1]
	}
}

// sameFiles reports whether two files have the same content.
func sameFiles(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
