package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mdnsPort is the UDP port of mDNS (RFC 6762 §3).
const mdnsPort = 5353

var (
	group4 = netip.AddrFrom4([4]byte{224, 0, 0, 251})
	group6 = netip.MustParseAddr("ff02::fb")
)

// heardPacket is a message received from the local network.
type heardPacket struct {
	data []byte
	from netip.AddrPort
	on   *member
}

// member is a socket that has joined the group on one interface, for one address family.
type member struct {
	key   memberKey
	index int
	addrs []netip.Addr // the interface's
	conn  *net.UDPConn
	to    netip.AddrPort
}

type memberKey struct {
	iface string
	six   bool
}

// multicast takes part in the group on all interfaces. It shares the port with any other mDNS program on
// this machine.
type multicast struct {
	names []string // of interfaces; empty: all that are suitable
	in    chan heardPacket

	mu      sync.Mutex
	members map[memberKey]*member
	closed  bool
	readers sync.WaitGroup
	done    chan struct{}
}

func newMulticast(names []string) *multicast {
	return &multicast{names: names, in: make(chan heardPacket, 64), members: make(map[memberKey]*member), done: make(chan struct{})}
}

// refresh joins the group on interfaces that are new or have other addresses, and leaves it on those that
// are gone. changed reports whether there was one to join.
func (m *multicast) refresh() (changed bool, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false, net.ErrClosed
	}
	var problems []error
	there := make(map[memberKey]bool)
	for i := range all {
		ifi := &all[i]
		if !m.wants(ifi) {
			continue
		}
		addrs := addressesOf(ifi)
		for _, six := range []bool{false, true} {
			if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is6() == six }) {
				continue
			}
			k := memberKey{ifi.Name, six}
			old := m.members[k]
			if old != nil && old.index == ifi.Index && slices.Equal(old.addrs, addrs) {
				there[k] = true
				continue
			}
			s, err := join(ifi, six, addrs)
			if err != nil {
				problems = append(problems, fmt.Errorf("mDNS on %s: %w", ifi.Name, err))
				continue
			}
			if old != nil {
				old.conn.Close()
			}
			m.members[k] = s
			there[k], changed = true, true
			m.readers.Go(func() { m.read(s) })
		}
	}
	for k, s := range m.members {
		if !there[k] {
			s.conn.Close()
			delete(m.members, k)
		}
	}
	if len(m.members) > 0 {
		return changed, nil
	}
	if len(problems) == 0 {
		problems = append(problems, errors.New("mDNS: no network interface takes multicast"))
	}
	return changed, problems[0]
}

func (m *multicast) wants(ifi *net.Interface) bool {
	if ifi.Flags&net.FlagUp == 0 {
		return false
	}
	if len(m.names) > 0 {
		return slices.Contains(m.names, ifi.Name)
	}
	return ifi.Flags&net.FlagMulticast != 0 && ifi.Flags&(net.FlagLoopback|net.FlagPointToPoint) == 0
}

func addressesOf(ifi *net.Interface) []netip.Addr {
	list, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// join makes a socket that hears the group on one interface only, and sends there.
func join(ifi *net.Interface, six bool, addrs []netip.Addr) (*member, error) {
	group, network := group4, "udp4"
	if six {
		group, network = group6.WithZone(ifi.Name), "udp6"
	}
	to := netip.AddrPortFrom(group, mdnsPort)
	setup := func(fd int) error {
		set := func(level, option, value int) error { return unix.SetsockoptInt(fd, level, option, value) }
		if six {
			return errors.Join(
				set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
				set(unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, ifi.Index), set(unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
				unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group6.As16(), Interface: uint32(ifi.Index)}))
		}
		on := &unix.IPMreqn{Multiaddr: group4.As4(), Ifindex: int32(ifi.Index)}
		return errors.Join(
			set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
			// Otherwise it would hear what other sockets of this machine have joined elsewhere.
			set(unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0), set(unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255),
			unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(ifi.Index)}),
			unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, on))
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = setup(int(fd)) }), err)
	}}
	p, err := c.ListenPacket(context.Background(), network, to.String())
	if err != nil {
		return nil, err
	}
	return &member{key: memberKey{ifi.Name, six}, index: ifi.Index, addrs: addrs, conn: p.(*net.UDPConn), to: to}, nil
}

// read passes on the packets that s receives, until it is closed.
func (m *multicast) read(s *member) {
	buf := make([]byte, 9000) // the longest message allowed (RFC 6762 §17)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-m.done:
				return
			case <-time.After(100 * time.Millisecond): // an interface that is down yields one error for each packet
			}
			continue
		}
		select {
		case m.in <- heardPacket{data: slices.Clone(buf[:n]), from: from, on: s}:
		case <-m.done:
			return
		}
	}
}

// each calls f with all members. Like any packet, one that is sent may get lost.
func (m *multicast) each(f func(s *member)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.members {
		f(s)
	}
}

func (s *member) send(to netip.AddrPort, msg []byte) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = s.conn.WriteToUDPAddrPort(msg, to) // it is repeated anyway
}

// close leaves the group on all interfaces.
func (m *multicast) close() {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.done)
	}
	for _, s := range m.members {
		s.conn.Close()
	}
	m.mu.Unlock()
	m.readers.Wait()
}
