package iwarptest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Constants of the pcap format, as used here.
const (
	pcapMagicMicro = 0xa1b2c3d4
	pcapMagicNano  = 0xa1b23c4d
	linkEthernet   = 1
	linkRaw        = 101 // packets start with the IP header
	protoTCP       = 6
	// maxSegment is the capacity of an IPv4 packet, rounded down to a multiple of 4, the unit of
	// FPDUs: Wireshark loses synchronization when a packet ends amid a ULPDU_Length.
	maxSegment = 65492
)

// TCP flags.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
)

// PcapWriter writes TCP conversations that were not captured: it is given the data sent and makes up
// the packets around it. It is safe for concurrent use, and keeps its first error.
type PcapWriter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewPcapWriter returns a PcapWriter after writing the file's header.
func NewPcapWriter(w io.Writer) *PcapWriter {
	p := &PcapWriter{w: w}
	h := binary.LittleEndian.AppendUint32(nil, pcapMagicNano)
	h = binary.LittleEndian.AppendUint16(h, 2)
	h = binary.LittleEndian.AppendUint16(h, 4)
	h = append(h, make([]byte, 8)...)
	h = binary.LittleEndian.AppendUint32(h, 1<<18)
	h = binary.LittleEndian.AppendUint32(h, linkRaw)
	_, p.err = w.Write(h)
	return p
}

// Err returns the first error of writing.
func (p *PcapWriter) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// PcapConn is one connection in a PcapWriter.
type PcapConn struct {
	p    *PcapWriter
	addr [2]netip.AddrPort
	seq  [2]uint32 // guarded by p.mu, like fin
	fin  [2]bool
}

// Conn starts a connection with its three-way handshake. Both addresses must be IPv4.
func (p *PcapWriter) Conn(client, server netip.AddrPort) *PcapConn {
	c := &PcapConn{p: p, addr: [2]netip.AddrPort{client, server}, seq: [2]uint32{1000, 2000}}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.packetLocked(0, tcpSYN, nil)
	c.seq[0]++
	c.packetLocked(1, tcpSYN|tcpACK, nil)
	c.seq[1]++
	c.packetLocked(0, tcpACK, nil)
	return c
}

// Data adds octets that one side has sent.
func (c *PcapConn) Data(fromClient bool, b []byte) {
	d := direction(fromClient)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), maxSegment)
		c.packetLocked(d, tcpPSH|tcpACK, b[:n])
		c.seq[d] += uint32(n)
		b = b[n:]
	}
}

// CloseWrite adds a side's FIN, once.
func (c *PcapConn) CloseWrite(fromClient bool) {
	d := direction(fromClient)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.fin[d] {
		return
	}
	c.fin[d] = true
	c.packetLocked(d, tcpFIN|tcpACK, nil)
	c.seq[d]++
}

func direction(fromClient bool) int {
	if fromClient {
		return 0
	}
	return 1
}

func (c *PcapConn) packetLocked(d int, flags byte, payload []byte) {
	if c.p.err != nil {
		return
	}
	src, dst := c.addr[d].Addr().As4(), c.addr[1-d].Addr().As4()
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protoTCP, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(40+len(payload)))
	ip = append(append(ip, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(ip[10:], ^checksum(0, ip))

	tcp := binary.BigEndian.AppendUint16(nil, c.addr[d].Port())
	tcp = binary.BigEndian.AppendUint16(tcp, c.addr[1-d].Port())
	tcp = binary.BigEndian.AppendUint32(tcp, c.seq[d])
	ack := c.seq[1-d]
	if flags&tcpACK == 0 {
		ack = 0
	}
	tcp = binary.BigEndian.AppendUint32(tcp, ack)
	tcp = append(tcp, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	pseudo := append(append(slices.Clone(src[:]), dst[:]...), 0, protoTCP)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(20+len(payload)))
	sum := checksum(uint32(checksum(uint32(checksum(0, pseudo)), tcp)), payload)
	binary.BigEndian.PutUint16(tcp[16:], ^sum)

	now := time.Now()
	n := uint32(len(ip) + len(tcp) + len(payload))
	rec := binary.LittleEndian.AppendUint32(nil, uint32(now.Unix()))
	rec = binary.LittleEndian.AppendUint32(rec, uint32(now.Nanosecond()))
	rec = binary.LittleEndian.AppendUint32(rec, n)
	rec = binary.LittleEndian.AppendUint32(rec, n)
	_, c.p.err = c.p.w.Write(slices.Concat(rec, ip, tcp, payload))
}

// checksum adds b to the ones' complement sum of RFC 1071, which it returns without complementing it.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// PcapStream is a reassembled TCP connection of a capture.
type PcapStream struct {
	Client, Server netip.AddrPort
	Chunks         []PcapChunk // in the order of capture
}

// PcapChunk is what one packet added to a stream.
type PcapChunk struct {
	FromClient bool
	Data       []byte
}

// Bytes returns what one side sent.
func (s *PcapStream) Bytes(fromClient bool) []byte {
	var b []byte
	for _, c := range s.Chunks {
		if c.FromClient == fromClient {
			b = append(b, c.Data...)
		}
	}
	return b
}

// half is one direction of a stream under reassembly.
type half struct {
	stream *PcapStream
	client bool
	next   uint32            // next sequence number expected
	early  map[uint32][]byte // arrived before its turn
}

// ReadPcap reads the TCP conversations over IPv4 of a little-endian pcap, from
// the SYN on. Packets may be out of order or sent twice.
func ReadPcap(b []byte) ([]*PcapStream, error) {
	if len(b) < 24 {
		return nil, fmt.Errorf("not a pcap: %d bytes", len(b))
	}
	if m := binary.LittleEndian.Uint32(b); m != pcapMagicMicro && m != pcapMagicNano {
		return nil, fmt.Errorf("not a little-endian pcap: magic %#x", m)
	}
	skip := map[uint32]int{linkEthernet: 14, linkRaw: 0}
	off, ok := skip[binary.LittleEndian.Uint32(b[20:])]
	if !ok {
		return nil, fmt.Errorf("pcap of link type %d", binary.LittleEndian.Uint32(b[20:]))
	}
	var all []*PcapStream
	halves := make(map[[2]netip.AddrPort]*half)
	for b = b[24:]; len(b) >= 16; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		if len(b) < 16+n {
			return nil, fmt.Errorf("pcap is cut short")
		}
		p := b[16 : 16+n]
		b = b[16+n:]
		if len(p) < off+20 || p[off]>>4 != 4 || p[off+9] != protoTCP {
			continue
		}
		ip := p[off:]
		hdr, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if total > len(ip) || total < hdr+20 {
			continue
		}
		tcp := ip[hdr:total]
		dataOff := int(tcp[12]>>4) * 4
		if dataOff > len(tcp) {
			continue
		}
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(tcp))
		dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(tcp[2:]))
		seq, flags := binary.BigEndian.Uint32(tcp[4:]), tcp[13]
		if flags&(tcpSYN|tcpACK) == tcpSYN {
			s := &PcapStream{Client: src, Server: dst}
			all = append(all, s)
			halves[[2]netip.AddrPort{src, dst}] = &half{stream: s, client: true, early: make(map[uint32][]byte)}
			halves[[2]netip.AddrPort{dst, src}] = &half{stream: s, early: make(map[uint32][]byte)}
		}
		h := halves[[2]netip.AddrPort{src, dst}]
		if h == nil {
			continue
		}
		if flags&tcpSYN != 0 {
			h.next = seq + 1
			continue
		}
		h.add(seq, tcp[dataOff:])
	}
	return all, nil
}

// add processes one packet's payload, and the early data that it makes contiguous.
func (h *half) add(seq uint32, data []byte) {
	if len(data) == 0 {
		return
	}
	if len(data) > len(h.early[seq]) {
		h.early[seq] = data
	}
	for again := true; again; {
		again = false
		for s, d := range h.early {
			old := h.next - s // how much of data is known already
			if int32(old) < 0 {
				continue
			}
			delete(h.early, s)
			if int(old) < len(d) {
				h.stream.Chunks = append(h.stream.Chunks, PcapChunk{h.client, d[old:]})
				h.next += uint32(len(d)) - old
				again = true
			}
		}
	}
}
