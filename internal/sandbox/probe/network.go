package probe

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// network are attempts to communicate.
var network = []Attempt{
	{Name: "tcp-connect", Class: Net, Do: func(t *Targets) error { return connect(t.TCP4, unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
	{Name: "tcp6-connect", Class: Net, Do: func(t *Targets) error { return connect(t.TCP6, unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
	{Name: "tcp-bind", Class: Net, Do: func(*Targets) error { return bind("127.0.0.1:0", unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
	{Name: "tcp6-bind", Class: Net, Do: func(*Targets) error { return bind("[::1]:0", unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
	{Name: "mptcp-connect", Class: Net, Do: func(t *Targets) error { return connect(t.TCP4, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) }},
	{Name: "mptcp-bind", Class: Net, Do: func(*Targets) error { return bind("127.0.0.1:0", unix.SOCK_STREAM, unix.IPPROTO_MPTCP) }},
	{Name: "tcp-fast-open", Class: Net, Do: fastOpen},
	{Name: "udp-send", Class: Net, Do: func(t *Targets) error { return send(t.UDP) }},
	{Name: "udp-bind", Class: Net, Do: func(*Targets) error { return bind("127.0.0.1:0", unix.SOCK_DGRAM, 0) }},
	{Name: "icmp-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP) }},
	{Name: "raw-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{Name: "packet-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
	{Name: "sctp-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP) }},
	{Name: "netlink-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) }},
	{Name: "vsock-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
	{Name: "alg-socket", Class: Net, Do: func(*Targets) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},
	{Name: "unix-connect", Class: Net, Do: func(t *Targets) error { return connectUnix(t.Unix) }},
	{Name: "unix-connect-abstract", Class: Net, Do: func(t *Targets) error { return connectUnix("@" + t.Abstract) }},
	{Name: "unix-bind-abstract", Class: Net, Do: bindAbstract},
	{Name: "unix-datagram", Class: Net, Do: func(*Targets) error { return socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0) }},
}

func socket(family, kind, proto int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// address returns a socket's address, and its family.
func address(s string) (unix.Sockaddr, int, error) {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return nil, 0, unix.EDESTADDRREQ
	case a.Addr().Is4():
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}, unix.AF_INET, nil
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}, unix.AF_INET6, nil
}

func connect(to string, kind, proto int) error {
	sa, family, err := address(to)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	return unix.Connect(fd, sa)
}

func bind(at string, kind, proto int) error {
	sa, family, err := address(at)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, sa); err != nil || kind != unix.SOCK_STREAM {
		return err
	}
	return unix.Listen(fd, 1)
}

// fastOpen connects by sending its first data, which bypasses filters on connect.
func fastOpen(t *Targets) error {
	sa, family, err := address(t.TCP4)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, sa)
}

func send(to string) error {
	sa, family, err := address(to)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("x"), 0, sa)
}

func connectUnix(name string) error {
	if name == "" || name == "@" {
		return unix.EDESTADDRREQ
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

func bindAbstract(*Targets) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrUnix{Name: "@rdistccd-" + scratch("bind")})
}
