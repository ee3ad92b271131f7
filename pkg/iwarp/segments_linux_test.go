//go:build !race

package iwarp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// ethernet is a network namespace whose loopback is like an Ethernet: packets of
// 1500 bytes, cut by TCP and not by the device. do runs f in it.
func ethernet(t *testing.T, mtu int) (do func(f func())) {
	t.Helper()
	work := make(chan func())
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = setUpLoopback(mtu)
		}
		ready <- err
		for f := range work {
			f()
		}
	}()
	t.Cleanup(func() { close(work) })
	if err := <-ready; err != nil {
		need.Skipf(t, need.Network, "no network namespace with an Ethernet's packets: %v (needs root)", err)
	}
	return func(f func()) {
		done := make(chan struct{})
		work <- func() { f(); close(done) }
		<-done
	}
}

func setUpLoopback(mtu int) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(s, unix.SIOCSIFMTU, ifr); err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return err
	}
	for _, cmd := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO} {
		value := struct{ cmd, data uint32 }{cmd, 0}
		req := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{name: [unix.IFNAMSIZ]byte{'l', 'o'}, data: unsafe.Pointer(&value)}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
			return fmt.Errorf("switch segmentation offload off: %w", e)
		}
	}
	return nil
}

// segmentOf is a TCP segment with payload.
type segmentOf struct {
	port    uint16 // of the sender
	seq     uint32
	payload []byte
}

// sniff captures what arrives at the loopback until stop.
func sniff(t *testing.T, do func(func())) (stop func() []segmentOf) {
	t.Helper()
	var s int
	var err error
	do(func() {
		s, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(uint16(unix.ETH_P_IP)>>8|uint16(unix.ETH_P_IP&0xff)<<8))
	})
	if err == nil {
		err = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	}
	if err != nil {
		need.Skipf(t, need.Network, "no packet socket: %v", err)
	}
	return func() (all []segmentOf) {
		defer unix.Close(s)
		b := make([]byte, 1<<17)
		for {
			n, from, err := unix.Recvfrom(s, b, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return all // all that was captured is read
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype != unix.PACKET_HOST || n < 14+20+20 || b[14+9] != unix.IPPROTO_TCP {
				continue
			}
			ip := b[14:n]
			tcp := ip[int(ip[0]&15)*4 : binary.BigEndian.Uint16(ip[2:])]
			if payload := tcp[int(tcp[12]>>4)*4:]; len(payload) > 0 {
				all = append(all, segmentOf{binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint32(tcp[4:]), bytes.Clone(payload)})
			}
		}
	}
}

// TestFPDUsAlignWithSegments covers MPA-34 and INT-05: on a path with an Ethernet's segments, TCP segments
// begin and end with an FPDU, whatever the messages: each of them if the program says so, otherwise all but
// those cut by a full window or socket. Without any measures almost none does. Bulk data still fills the
// segments.
func TestFPDUsAlignWithSegments(t *testing.T) {
	for _, x := range []struct {
		name string
		mtu  int
		p    iwarp.ConnParam
		full float64 // how full segments of bulk data are at least
	}{
		{"Ethernet", 1500, iwarp.ConnParam{}, 0.9},
		{"strict", 1500, iwarp.ConnParam{StrictSegments: true}, 0.9},
		{"odd MTU", 1499, iwarp.ConnParam{StrictSegments: true}, 0.9},
		{"jumbo", 9000, iwarp.ConnParam{StrictSegments: true}, 0.85},
		{"markers", 1500, iwarp.ConnParam{StrictSegments: true, Markers: true}, 0.9},
		{"short FPDUs share segments", 1500, iwarp.ConnParam{StrictSegments: true, MaxULPDU: 300}, 0.75},
		{"without CRC", 1500, iwarp.ConnParam{StrictSegments: true, CRC: iwarp.CRCOffIfAgreed}, 0.9},
	} {
		t.Run(x.name, func(t *testing.T) {
			do := ethernet(t, x.mtu)
			cfg := iwarp.Config{
				Dial: func(ctx context.Context, addr string) (c net.Conn, err error) {
					do(func() { c, err = new(net.Dialer).DialContext(ctx, "tcp4", addr) })
					return c, err
				},
				Listen: func(ctx context.Context, addr string) (l net.Listener, err error) {
					do(func() {
						var lc net.ListenConfig
						lc.SetMultipathTCP(false)
						l, err = lc.Listen(ctx, "tcp4", addr)
					})
					return l, err
				},
			}
			stop := sniff(t, do)
			a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
			b := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
			iwarptest.Connect(t, a, b, "127.0.0.1:0", &x.p, &x.p)
			const size = 300_000
			for i, e := range []struct{ from, to *iwarptest.End }{{a, b}, {b, a}} {
				src := e.from.Reg(t, bytes.Repeat([]byte{byte(i + 1)}, size), 0, nil)
				dst := e.to.Reg(t, make([]byte, size), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
				for n := range 40 {
					wr := iwarp.SendWR{ID: uint64(n), SGL: []iwarp.SGE{{Addr: src.Base(), Length: uint32(1 + n*n*n), LKey: src.STag()}}}
					switch n % 4 {
					case 0:
						wr.Op, wr.STag, wr.TO = iwarp.OpWrite, dst.STag(), dst.Base()
						wr.SGL[0].Length = size
					case 1, 2:
						wr.Op, wr.STag, wr.TO = iwarp.OpWrite, dst.STag(), dst.Base()
						wr.Flags = iwarp.More // goes with the next
					case 3:
						wr.Op = iwarp.OpSend
						e.to.Recv(t, uint64(n), size)
					}
					e.from.Post(t, &wr)
					if n%4 == 3 {
						for k := range uint64(4) {
							e.from.WaitOK(t, uint64(n)-3+k)
						}
						e.to.WaitOK(t, uint64(n))
					}
				}
			}
			checkAligned(t, stop(), &x.p, x.full)
		})
	}
}

// checkAligned looks at every segment of every direction.
func checkAligned(t *testing.T, all []segmentOf, p *iwarp.ConnParam, full float64) {
	t.Helper()
	ports := make(map[uint16][]segmentOf)
	for _, s := range all {
		ports[s.port] = append(ports[s.port], s)
	}
	if len(ports) != 2 {
		t.Fatalf("segments from %d ports, want 2", len(ports))
	}
	for port, segs := range ports {
		if !bytes.HasPrefix(segs[0].payload, []byte("MPA ID")) {
			t.Fatalf("port %d begins with %x", port, segs[0].payload[:4])
		}
		base := segs[0].seq + uint32(len(segs[0].payload))
		longest, end := 0, 0
		for _, s := range segs[1:] {
			longest = max(longest, len(s.payload))
			end = max(end, int(s.seq-base)+len(s.payload))
		}
		stream := make([]byte, end)
		for _, s := range segs[1:] { // in whatever order they were captured
			copy(stream[s.seq-base:], s.payload)
		}
		starts := map[int]bool{0: true}
		for at := 0; at < len(stream); {
			if p.Markers {
				at += markedLength(stream, at)
			} else {
				at += mpa.FPDUSize(int(binary.BigEndian.Uint16(stream[at:])))
			}
			starts[at] = true
		}
		cut := 0
		for _, s := range segs[1:] {
			at := int(s.seq - base)
			if !starts[at] || !starts[at+len(s.payload)] {
				cut++
			}
		}
		if p.StrictSegments && cut > 0 || cut > len(segs)/2 {
			t.Errorf("port %d: %d of %d segments begin or end inside an FPDU", port, cut, len(segs))
		}
		if got := float64(len(stream)) / float64(longest*len(segs)); got < full {
			t.Errorf("port %d: %d segments of up to %d bytes carry %d bytes: %.2f full", port, len(segs), longest, len(stream), got)
		}
		t.Logf("port %d: %d FPDUs in %d segments of up to %d bytes, %d bytes; %d cut", port, len(starts)-1, len(segs), longest, len(stream), cut)
	}
}

// TestNoAllocationWhenAligned: nor does the way of short segments allocate, by the
// poster or by tx.
func TestNoAllocationWhenAligned(t *testing.T) {
	short := iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1460) }), err)
		}}
		return d.DialContext(ctx, "tcp", addr)
	}}
	for _, strict := range []bool{false, true} {
		for _, size := range []int{64, 128 << 10} {
			a := iwarptest.NewEnd(t, iwarptest.Open(t, short), iwarp.QPInitAttr{})
			b := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
			iwarptest.Connect(t, a, b, "127.0.0.1:0", &iwarp.ConnParam{StrictSegments: strict}, nil)
			f := message(t, a, b, size)
			for range 100 { // pools and slots fill
				f()
			}
			if n := testing.AllocsPerRun(50, f); n >= 1 {
				t.Errorf("strict %v: %.1f allocations a message of %d bytes", strict, n, size)
			}
		}
	}
}
