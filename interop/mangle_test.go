package interop

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync"
)

// mangler is a connection whose MPA frames, in one direction each, can be changed on their way: so both
// stacks get what no verbs program makes the other one send.
type mangler struct {
	net.Conn
	in, out *frames
}

// frames cuts one direction of a connection into frames and changes them.
type frames struct {
	mu     sync.Mutex
	change func(fpdu []byte) []byte // the first FPDU that it does not return nil for is replaced
	buf    []byte                   // not a whole frame yet
	ready  []byte                   // changed
	begun  bool                     // start-up's frame has passed
}

// feed takes bytes as they come and returns those that may go on. Not for use with
// markers.
func (f *frames) feed(b []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf, b...)
	var out []byte
	for {
		n := 0
		switch {
		case !f.begun && len(f.buf) >= 20:
			n = 20 + int(binary.BigEndian.Uint16(f.buf[18:]))
		case f.begun && len(f.buf) >= 2:
			n = (2+int(binary.BigEndian.Uint16(f.buf))+3)&^3 + 4
		}
		if n == 0 || n > len(f.buf) {
			return out
		}
		frame := f.buf[:n:n]
		f.buf = f.buf[n:]
		if f.begun && f.change != nil {
			if other := f.change(frame); other != nil {
				frame, f.change = other, nil
			}
		}
		f.begun = true
		out = append(out, frame...)
	}
}

func (m *mangler) Write(b []byte) (int, error) {
	if out := m.out.feed(b); len(out) > 0 {
		if _, err := m.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (m *mangler) Read(b []byte) (int, error) {
	var tmp [16 << 10]byte
	for len(m.in.ready) == 0 {
		n, err := m.Conn.Read(tmp[:])
		m.in.ready = m.in.feed(tmp[:n])
		if err != nil && len(m.in.ready) == 0 {
			return 0, err
		}
	}
	n := copy(b, m.in.ready)
	m.in.ready = m.in.ready[n:]
	return n, nil
}

// CloseWrite is that of TCP.
func (m *mangler) CloseWrite() error { return m.Conn.(*net.TCPConn).CloseWrite() }

// Octets of an FPDU: after the length, the DDP and RDMAP control octets; after those the fields of an
// untagged segment (RFC 5041 §4.3).
const (
	offDDP   = 2
	offRDMAP = 3
	offSTag  = 4 // of a tagged one
	offTO    = 8
	offQN    = 8
	offMSN   = 12
	offMO    = 16
)

// edit makes a change out of an edit of FPDUs with opcode op, whose CRC is corrected.
func edit(op byte, f func(fpdu []byte)) func([]byte) []byte {
	return func(fpdu []byte) []byte {
		if fpdu[offRDMAP]&0xf != op {
			return nil
		}
		f(fpdu)
		return seal(fpdu)
	}
}

// seal puts the right CRC at the end of an FPDU.
func seal(fpdu []byte) []byte {
	n := len(fpdu) - 4
	binary.LittleEndian.PutUint32(fpdu[n:], crc32.Checksum(fpdu[:n], crc32.MakeTable(crc32.Castagnoli)))
	return fpdu
}

// put sets 32 bits.
func put(off int, v uint32) func([]byte) {
	return func(fpdu []byte) { binary.BigEndian.PutUint32(fpdu[off:], v) }
}
