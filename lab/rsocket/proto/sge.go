package proto

import "encoding/binary"

// SGESize is the length of an SGE in bytes.
const SGESize = 16

// SGE names memory of the side that has sent it.
//
//	0       8      12       16
//	| addr  | key  | length |
type SGE struct {
	Addr   uint64 // TO of the first byte
	Key    uint32 // STag
	Length uint32 // bytes
}

// Append appends the SGE in the given byte order.
func (s SGE) Append(b []byte, order binary.AppendByteOrder) []byte {
	b = order.AppendUint64(b, s.Addr)
	b = order.AppendUint32(b, s.Key)
	return order.AppendUint32(b, s.Length)
}

// parseSGE parses the SGE at the beginning of b.
func parseSGE(b []byte, order binary.ByteOrder) SGE {
	return SGE{order.Uint64(b), order.Uint32(b[8:]), order.Uint32(b[12:])}
}

// wraps reports whether the memory goes beyond the end of the address space.
func (s SGE) wraps() bool { return s.Addr+uint64(s.Length) < s.Addr }

// IOMapSize is the length of an IOMap in bytes.
const IOMapSize = 24

// IOMap offers memory for direct writes: byte 0 of it has the offset Offset.
//
//	0        8      24
//	| offset | SGE  |
type IOMap struct {
	Offset uint64
	Mem    SGE
}

// Append appends the map in the given byte order.
func (m IOMap) Append(b []byte, order binary.AppendByteOrder) []byte {
	return m.Mem.Append(order.AppendUint64(b, m.Offset), order)
}

// span returns where the bytes of the map from offset on are, at most n, or false if it has none.
func (m IOMap) span(offset uint64, n int) (SGE, bool) {
	if offset < m.Offset || offset-m.Offset >= uint64(m.Mem.Length) {
		return SGE{}, false
	}
	at := uint32(offset - m.Offset)
	return SGE{m.Mem.Addr + uint64(at), m.Mem.Key, uint32(min(uint64(n), uint64(m.Mem.Length-at)))}, true
}
