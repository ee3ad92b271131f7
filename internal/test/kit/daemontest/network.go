package daemontest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Network is an in-memory network of devices, for tests in simulated time.
type Network struct {
	*iwarptest.Network
	Slow    map[string]int    // bytes per second by the address dialled; others are not limited
	Dialled func(addr string) // called for each attempt to connect; may be nil

	t testing.TB
}

// NewNetwork returns a network without devices.
func NewNetwork(t testing.TB) *Network {
	return &Network{Network: iwarptest.NewNetwork(), Slow: make(map[string]int), t: t}
}

// Open returns a new device on the network. The caller closes it.
func (n *Network) Open() iwarp.Device {
	n.t.Helper()
	cfg := n.Config()
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if n.Dialled != nil {
			n.Dialled(addr)
		}
		c, err := dial(ctx, addr)
		if rate := n.Slow[addr]; err == nil && rate > 0 {
			c = slowConn{c, rate}
		}
		return c, err
	}
	dev, err := iwarp.Open(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return dev
}

// slowConn is a connection that sends at a limited rate.
type slowConn struct {
	net.Conn
	rate int // bytes per second
}

func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
	return c.Conn.Write(p)
}
