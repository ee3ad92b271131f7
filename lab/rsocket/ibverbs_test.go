//go:build ibverbs && cgo && linux

package rsocket

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ibverbs"
)

// The tests run on an iWARP device too, whose address and name RDISTCC_IBVERBS has: "10.0.2.15,siw0". The guest of
// make interop has one.
func init() {
	host, device, _ := strings.Cut(os.Getenv("RDISTCC_IBVERBS"), ",")
	if host == "" {
		return
	}
	providers["ibverbs"] = func(t testing.TB) (a, b iwarp.Device, addr string) {
		open := func() iwarp.Device {
			d, err := ibverbs.Open(ibverbs.Config{Device: device})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { iwarptest.Close(t, d) })
			return d
		}
		return open(), open(), net.JoinHostPort(host, "0")
	}
}
