package daemontest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/iwarptest"
)

// Network is devices without sockets, for tests in simulated time.
type Network struct {
	*iwarptest.Network
	Slow    map[string]int    // bytes a second to an address
	Dialled func(addr string) // nil, or called for each attempt to connect

	t testing.TB
}

// NewNetwork returns one without a device.
func NewNetwork(t testing.TB) *Network {
	return &Network{Network: iwarptest.NewNetwork(), Slow: make(map[string]int), t: t}
}

// Open returns one more device on the network, which the caller closes.
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

// slowConn lets bytes out at a rate.
type slowConn struct {
	net.Conn
	rate int // bytes a second
}

func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
	return c.Conn.Write(p)
}
