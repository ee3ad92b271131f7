package inproc

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Network is where devices find one another.
type Network struct {
	mu        sync.Mutex // guards everything of the network
	listeners map[Addr]*listener
	port      int

	// Work to do before the lock is released.
	runnable []*qp // may now execute requests
	broken   []*cq // have overflowed
}

// NewNetwork makes a network without devices.
func NewNetwork() *Network {
	return &Network{listeners: make(map[Addr]*listener), port: 1}
}

// Addr is an address of a network: any string. Listening on one that ends with ":0" picks a free
// number in place of the 0.
type Addr string

// Network returns "inproc".
func (Addr) Network() string { return "inproc" }

func (a Addr) String() string { return string(a) }

// freshAddr returns an address of host that has not been used before.
func (n *Network) freshAddr(host string) Addr {
	n.port++
	return Addr(fmt.Sprintf("%s:%d", host, n.port))
}

// listenAddr returns the address that addr asks for.
func (n *Network) listenAddr(addr string) (Addr, error) {
	if host, ok := strings.CutSuffix(addr, ":0"); ok {
		return n.freshAddr(host), nil
	}
	if n.listeners[Addr(addr)] != nil {
		return "", fmt.Errorf("%w: address %s is in use", iwarp.ErrInvalid, addr)
	}
	return Addr(addr), nil
}

// lock begins an exported method.
func (n *Network) lock() { n.mu.Lock() }

// unlock ends an exported method, after finishing what follows from it. The effects of an
// overflowing CQ or an opened gate are deferred until here, so that nothing else happens in the
// middle of a request.
func (n *Network) unlock() {
	for len(n.runnable)+len(n.broken) > 0 {
		if len(n.runnable) > 0 {
			q := n.runnable[0]
			n.runnable = n.runnable[1:]
			q.run()
			continue
		}
		c := n.broken[0]
		n.broken = n.broken[1:]
		c.endUsers()
	}
	n.mu.Unlock()
}
