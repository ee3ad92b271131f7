// Package netlab is a network of hosts on one machine: network namespaces, each with one cable to a switch
// in user space. The switch gives the cable delay, rate, queue and loss, and can cut it, in one direction,
// for one flow or altogether. It needs no netem.
//
//	namespace 1 ─ net0 (TUN) ─ cable ─┐
//	namespace 2 ─ net0 (TUN) ─ cable ─┼─ switch: goroutines of this process
//	namespace 3 ─ net0 (TUN) ─ cable ─┘
//
// Host i, from 1, has the address 10.99.0.i. The namespaces have no names: only descriptors of this
// process, and the processes started in them, hold them. So nothing is left of a network when its process
// is gone, however it ended.
//
// It needs the rights to make namespaces and interfaces in them (root), and /dev/net/tun; see Available.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxHosts is how many hosts a network can have.
const MaxHosts = 250

// Net is the network that all hosts of a Lab are in.
var Net = netip.MustParsePrefix("10.99.0.0/24")

// Line is one direction of a cable. The zero value is perfect.
type Line struct {
	Delay time.Duration // of a packet's flight
	Rate  float64       // bits per second, including Ethernet framing; 0: no limit
	Queue int64         // bytes that may wait for the line, more are lost; 0: no limit
	Loss  float64       // probability that a packet is lost, 0 to 1
	Drop  bool          // everything is lost
}

// Lab is a network.
type Lab struct {
	Hosts []*Host

	seed uint64
	wg   sync.WaitGroup // of the switch's goroutines

	filter filter
}

// Host is one machine of a Lab.
type Host struct {
	Addr netip.Addr

	lab   *Lab
	index int
	ns    *os.File // its network namespace
	port  port
}

// Available returns what is missing for a Lab, in one line, or nil.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		return fmt.Errorf("no TUN devices: %w", err)
	} else {
		f.Close()
	}
	l, err := New(1, 1)
	if err != nil {
		return err
	}
	l.Close()
	return nil
}

// New returns a network of n hosts with perfect cables. Which packets a lossy line loses depends only on
// seed, the line, and how many it has carried.
func New(n int, seed uint64) (l *Lab, err error) {
	if n < 1 || n > MaxHosts {
		return nil, fmt.Errorf("netlab: %d hosts, want 1 to %d", n, MaxHosts)
	}
	l = &Lab{seed: seed}
	l.filter.init()
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	addr := Net.Addr()
	for i := range n {
		addr = addr.Next()
		h := &Host{Addr: addr, lab: l, index: i}
		if err := h.open(); err != nil {
			return nil, fmt.Errorf("netlab: host %v: %w", addr, err)
		}
		l.Hosts = append(l.Hosts, h)
		if err := h.port.init(seed, i); err != nil {
			return nil, fmt.Errorf("netlab: host %v: %w", addr, err)
		}
	}
	for _, h := range l.Hosts {
		l.wg.Add(2)
		go h.receive()
		go h.deliver()
	}
	return l, nil
}

// Close takes the network apart and waits for the switch to end. Processes that still run in it keep their
// namespaces, without a cable.
func (l *Lab) Close() {
	for _, h := range l.Hosts {
		h.port.stop()
	}
	l.wg.Wait()
	for _, h := range l.Hosts {
		h.close()
	}
}

// Set gives the cables of all hosts the same properties, in both directions.
func (l *Lab) Set(line Line) error {
	for _, h := range l.Hosts {
		if err := h.Set(line, line); err != nil {
			return err
		}
	}
	return nil
}

// Set gives the host's cable its properties: up from the host, down to it. A
// round trip between two hosts takes the delays of four lines.
func (h *Host) Set(up, down Line) error {
	h.port.up.Store(&up)
	h.port.down.Store(&down)
	// Segments of 64 KiB are passed on whole, unless losing one would mean losing 45 packets, or one would
	// hold up others for long, on any line.
	whole := true
	for _, h := range h.lab.Hosts {
		for _, l := range []*Line{h.port.up.Load(), h.port.down.Load()} {
			whole = whole && l.Loss == 0 && (l.Rate == 0 || l.Rate >= 200e6)
		}
	}
	for _, h := range h.lab.Hosts {
		if err := h.port.offload(whole); err != nil {
			return err
		}
	}
	return nil
}

// Lines returns the properties of the host's cable.
func (h *Host) Lines() (up, down Line) { return *h.port.up.Load(), *h.port.down.Load() }

// Unplug disconnects the host's interface from its cable, or reconnects it: unlike with a line that drops
// everything, the host notices.
func (h *Host) Unplug(out bool) error {
	return h.Do(func() error {
		return setFlags("net0", unix.IFF_UP|unix.IFF_RUNNING, !out)
	})
}

// Do calls f on a thread inside the host's network: the sockets that it makes,
// and the processes that it starts, belong to the host.
func (h *Host) Do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		if err := h.Enter(); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// Enter moves the calling goroutine into the host's network for good: its thread is locked, and ends with
// it. The thread must not be locked before.
func (h *Host) Enter() error {
	runtime.LockOSThread()
	if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %v: %w", h.Addr, err)
	}
	return nil
}

// Start starts a command in the host's network.
func (h *Host) Start(cmd *exec.Cmd) error { return h.Do(cmd.Start) }

// Dial connects from the host.
func (h *Host) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	var d net.Dialer
	err = h.Do(func() error {
		// For a name, look-ups and further addresses would be tried on other threads.
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return err
		}
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Listen listens on the host.
func (h *Host) Listen(network, addr string) (ln net.Listener, err error) {
	err = h.Do(func() error {
		ln, err = net.Listen(network, addr)
		return err
	})
	return ln, err
}
