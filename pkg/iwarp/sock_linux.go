package iwarp

import (
	"math"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/tcpaddr"
)

// tuneConn sets what an RDMA stream needs of its TCP connection: no Nagle, whose wait for an ACK
// costs a round trip in the middle of a message; the congestion control that suits the path; and an end after
// stall for a peer that acknowledges nothing, not even a keepalive: the kernel alone would try for a quarter of
// an hour.
func tuneConn(c net.Conn, stall time.Duration) {
	t := socketOf(c)
	if t == nil {
		return
	}
	_ = t.SetNoDelay(true) // Go's default as well
	control(t, func(fd int) {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, tcpaddr.Control(c))       // where the kernel has it
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(stall.Milliseconds())) // always available
	})
}

// segmentSize returns the payload of a full TCP segment of c in bytes (EMSS), or 0 where it is not
// known. Below TLS it would be known, but FPDUs do not end where segments do.
func segmentSize(c net.Conn) int {
	n := 0
	if t, ok := c.(*net.TCPConn); ok {
		control(t, func(fd int) { n = socketSegment(fd) })
	}
	return n
}

// socketSegment is segmentSize for a socket. The kernel has deducted the options that each segment
// carries.
func socketSegment(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return 0
	}
	return n
}

// unacked returns how many bytes the socket below c has taken that the peer's host has not acknowledged.
func unacked(c net.Conn) uint64 {
	n := 0
	if t := socketOf(c); t != nil {
		control(t, func(fd int) {
			if v, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil {
				n = v
			}
		})
	}
	return uint64(n)
}

// pathStats returns what the kernel knows of c's path, from TCP_INFO.
func pathStats(c net.Conn) (s PathStats) {
	t := socketOf(c)
	if t == nil {
		return s
	}
	control(t, func(fd int) {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		s.RTT = time.Duration(i.Min_rtt) * time.Microsecond
		if i.Min_rtt == 0 || i.Min_rtt == math.MaxUint32 { // before Linux 4.6, or none measured
			s.RTT = time.Duration(i.Rtt) * time.Microsecond
		}
		s.Window = uint64(i.Snd_cwnd) * uint64(i.Snd_mss)
		s.Rate, s.Acked = i.Delivery_rate, i.Bytes_acked
		// tcpi_delivery_rate_app_limited, a bit for which x/sys has no name: the lowest bit of the last byte
		// of eight, or the highest where bit fields begin at that end.
		s.Floor = (*[8]byte)(unsafe.Pointer(i))[7]&0x81 != 0
	})
	return s
}

// limitUnsent sets ConnParam.Unsent.
func limitUnsent(c net.Conn, n int) {
	if t := socketOf(c); t != nil && n > 0 {
		control(t, func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) }) // always there
	}
}

func control(c syscall.Conn, f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // fails once closed: then nothing needs to be set
	}
}
