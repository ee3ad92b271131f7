package capture

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Blocks of pcapng (draft-ietf-opsawg-pcapng), in little-endian order.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6
	byteOrder      = 0x1a2b3c4d
	linkEthernet   = 1
	optResolution  = 9 // if_tsresol: here nanoseconds
)

// block returns a block of pcapng around body.
func block(kind uint32, body ...[]byte) []byte {
	n := 12
	for _, p := range body {
		n += len(p)
	}
	size := n + -n&3
	b := make([]byte, 0, size)
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	for _, p := range body {
		b = append(b, p...)
	}
	b = append(b, make([]byte, -n&3)...)
	return binary.LittleEndian.AppendUint32(b, uint32(size))
}

// fileHead returns the head of a file: a section, and its one interface.
func fileHead() []byte {
	section := binary.LittleEndian.AppendUint32(nil, byteOrder)
	section = append(section, 1, 0, 0, 0)                           // version 1.0
	section = binary.LittleEndian.AppendUint64(section, ^uint64(0)) // of unknown length
	dev := append([]byte{linkEthernet, 0, 0, 0, 0, 0, 0, 0},        // packets are not cut
		optResolution, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0)
	return append(block(blockSection, section), block(blockInterface, dev)...)
}

// Flags of TCP.
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagPSH = 0x08
	flagACK = 0x10
)

const (
	etherIPv4, etherIPv6 = 0x0800, 0x86dd
	protoTCP             = 6
	hops                 = 64
	tcpHead              = 20
)

// packets makes the packets of a connection. Side 0 has dialled.
type packets struct {
	addr [2]netip.AddrPort
	seq  [2]uint32 // next
}

// init says whose connection it is. Addresses of two families are written as IPv6.
func (p *packets) init(dialler, listener netip.AddrPort) {
	p.addr = [2]netip.AddrPort{dialler, listener}
}

// open returns the three packets by which a connection begins.
func (p *packets) open(at time.Time) []byte {
	b := p.packet(0, flagSYN, nil, at)
	p.seq[0]++
	b = append(b, p.packet(1, flagSYN|flagACK, nil, at)...)
	p.seq[1]++
	return append(b, p.packet(0, flagACK, nil, at)...)
}

// data returns the packet with which side sends b, which fits into one: no FPDU is longer than 64776 bytes.
func (p *packets) data(side int, b []byte, at time.Time) []byte {
	packet := p.packet(side, flagPSH|flagACK, b, at)
	p.seq[side] += uint32(len(b))
	return packet
}

// finish returns the packet with a side's FIN.
func (p *packets) finish(side int, at time.Time) []byte {
	packet := p.packet(side, flagFIN|flagACK, nil, at)
	p.seq[side]++
	return packet
}

func (p *packets) packet(side int, flags byte, payload []byte, at time.Time) []byte {
	src, dst := p.addr[side], p.addr[1-side]
	head := make([]byte, 12, 14+40+tcpHead) // Ethernet's addresses are zeros
	var sum uint32                          // of the pseudo header
	length := tcpHead + len(payload)
	if src.Addr().Is4() && dst.Addr().Is4() {
		a, b := src.Addr().As4(), dst.Addr().As4()
		head = binary.BigEndian.AppendUint16(head, etherIPv4)
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, hops, protoTCP, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		ip = append(append(ip, a[:]...), b[:]...)
		binary.BigEndian.PutUint16(ip[10:], ^fold(add(0, ip)))
		head = append(head, ip...)
		sum = add(add(0, a[:]), b[:])
	} else {
		a, b := src.Addr().As16(), dst.Addr().As16()
		head = binary.BigEndian.AppendUint16(head, etherIPv6)
		head = append(head, 0x60, 0, 0, 0)
		head = binary.BigEndian.AppendUint16(head, uint16(length))
		head = append(append(append(head, protoTCP, hops), a[:]...), b[:]...)
		sum = add(add(0, a[:]), b[:])
	}
	ack := p.seq[1-side]
	if flags&flagACK == 0 {
		ack = 0
	}
	tcp := binary.BigEndian.AppendUint16(nil, src.Port())
	tcp = binary.BigEndian.AppendUint16(tcp, dst.Port())
	tcp = binary.BigEndian.AppendUint32(tcp, p.seq[side])
	tcp = binary.BigEndian.AppendUint32(tcp, ack)
	tcp = append(tcp, tcpHead/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(tcp[16:], ^fold(add(add(sum+protoTCP+uint32(length), tcp), payload)))

	ns := uint64(at.UnixNano())
	n := uint32(len(head) + len(tcp) + len(payload))
	packet := binary.LittleEndian.AppendUint32(nil, 0) // the interface
	packet = binary.LittleEndian.AppendUint32(packet, uint32(ns>>32))
	packet = binary.LittleEndian.AppendUint32(packet, uint32(ns))
	packet = binary.LittleEndian.AppendUint32(packet, n) // captured
	packet = binary.LittleEndian.AppendUint32(packet, n) // sent
	return block(blockPacket, packet, head, tcp, payload)
}

// add adds b, of 16-bit words, to the sum of a checksum (RFC 1071). A sum takes 64 KiB without an overflow.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
