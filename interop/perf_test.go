package interop

import (
	"fmt"
	"testing"
	"time"
)

// perfLimit bounds one run of a program: the guest is emulated.
const perfLimit = 90 * time.Second

// perfSettle covers siw's lost wake-up with room to spare for a loaded machine.
const perfSettle = "200ms"

// startPerf starts a server of rdistcc-perf that is to end by itself.
func startPerf(t *testing.T, args ...string) *server {
	t.Helper()
	return serve(t, "rdistcc-perf", append(args, "-s", "--settle", perfSettle)...)
}

// wantEnd waits until a server has ended by itself.
func (s *server) wantEnd(t *testing.T) {
	t.Helper()
	select {
	case <-s.read:
	case <-time.After(perfLimit):
		t.Error("our server does not end")
	}
}

// runPerf runs a client of rdistcc-perf, which must succeed, against a port of the
// guest.
func runPerf(t *testing.T, addr string, args ...string) string {
	t.Helper()
	out, err := run(t, perfLimit, "rdistcc-perf", append(args, "-c", addr, "--settle", perfSettle)...)
	if err != nil {
		t.Fatalf("our client: %v", err)
	}
	return out
}

// inGuest runs a program of the guest against ours; it must succeed.
func (g *Guest) inGuest(t *testing.T, format string, args ...any) string {
	t.Helper()
	cmd := fmt.Sprintf(format, args...)
	out, status := g.Exec(t, cmd, perfLimit)
	if status != 0 {
		t.Errorf("in the guest: %s: exit status %d\n%s", cmd, status, tail(out, 15))
	}
	return out
}
