//go:build ibverbs && cgo && linux

package ibverbs

import (
	"net"
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// addrEnv names an address of an iWARP device, and the device if there are several:
// "10.0.2.15" or "10.0.2.15,siw0". The guest of make interop has one.
const addrEnv = "RDISTCC_IBVERBS"

// target is where tests run, or skips.
func target(t testing.TB) (addr, device string) {
	t.Helper()
	v := os.Getenv(addrEnv)
	if v == "" {
		t.Skipf("needs an iWARP device, whose address %s names; make interop has one", addrEnv)
	}
	for i, r := range v {
		if r == ',' {
			return net.JoinHostPort(v[:i], "0"), v[i+1:]
		}
	}
	return net.JoinHostPort(v, "0"), ""
}

func open(t testing.TB, device string) iwarp.Device {
	t.Helper()
	d, err := Open(Config{Device: device})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSuite(t *testing.T) {
	addr, device := target(t)
	iwarptest.Suite(t, func(t testing.TB) (a, b iwarp.Device, _ string) {
		return open(t, device), open(t, device), addr
	})
}
