package interop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStreams runs the tests of package stream on the provider ibverbs, siw with siw: nettest's suite for a net.Conn, and
// bytes both ways at once, with every policy.
func TestStreams(t *testing.T) {
	g := Boot(t)
	needRDMA(t)
	note := row(t, "siw through libibverbs", "pkg/stream is a net.Conn")
	bin := filepath.Join(t.TempDir(), "stream.test")
	build(t, "test", "-c", "-tags", "ibverbs", "-o", bin, "./pkg/stream")
	path := g.Put(t, bin)
	out, status := g.Exec(t, "cd /tmp && RDISTCC_IBVERBS="+guestAddr+","+guestDevice+" "+path+" -test.v -test.timeout 280s -test.run '/ibverbs'", 5*time.Minute)
	passed := strings.Count(out, "\n        --- PASS: TestConn/") + strings.Count(out, "\n    --- PASS: TestBytes/")
	*note = fmt.Sprintf("%d cases", passed)
	if status != 0 || passed < 11*5+5 {
		t.Errorf("exit status %d, %d cases\n%s", status, passed, tail(out, 60))
	}
}
