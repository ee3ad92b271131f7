package proto

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ConnDataSize is the length of a ConnData in bytes.
const ConnDataSize = 40

// version is the only one there is.
const version = 1

// Flags of a ConnData.
const (
	flagBig   = 1 << 0 // the sender's byte order is network order
	flagIOMap = 1 << 1 // the sender's table has map entries behind it
)

// TableEntries is the number of SGEs in our table. librdmacm has as many.
const TableEntries = 2

// Order is a byte order.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// ConnData is the private data that each side sends at start-up, in network order.
//
//	0         1       2         4          7        8           24          40
//	| version | flags | credits | reserved | iomaps | table SGE | buffer SGE |
type ConnData struct {
	BigEndian bool   // byte order of the sender's table and messages
	Credits   uint16 // data messages that the sender's peer may send at first
	// IOMaps is how many maps the sender's table has room for behind its SGEs. Only
	// numbers that ScaleIOMaps returns can be told.
	IOMaps int
	Table  SGE // Length counts entries, not bytes
	Buffer SGE // the first half of the receive buffer
}

// Order returns the sender's byte order.
func (d *ConnData) Order() Order {
	if d.BigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Append appends the encoded data.
func (d *ConnData) Append(b []byte) []byte {
	flags := byte(flagIOMap)
	if d.BigEndian {
		flags |= flagBig
	}
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, d.Credits)
	b = append(b, 0, 0, 0, scale(d.IOMaps))
	b = d.Table.Append(b, binary.BigEndian)
	return d.Buffer.Append(b, binary.BigEndian)
}

// ParseConnData parses the private data of a peer. What may follow it is ignored.
func ParseConnData(b []byte) (d ConnData, err error) {
	if len(b) < ConnDataSize {
		return d, fmt.Errorf("%w: private data of %d bytes instead of %d: not an rsocket?", ErrProtocol, len(b), ConnDataSize)
	}
	if b[0] != version {
		return d, fmt.Errorf("%w: version %d, this side has %d", ErrProtocol, b[0], version)
	}
	d.BigEndian = b[1]&flagBig != 0
	d.Credits = binary.BigEndian.Uint16(b[2:])
	if b[1]&flagIOMap != 0 {
		d.IOMaps = unscale(b[7])
	}
	d.Table = parseSGE(b[8:], binary.BigEndian)
	d.Buffer = parseSGE(b[24:], binary.BigEndian)
	table := uint64(d.Table.Length)*SGESize + uint64(d.IOMaps)*IOMapSize
	switch {
	case d.Credits == 0:
		err = fmt.Errorf("%w: no credits", ErrProtocol)
	case d.Table.Length < TableEntries:
		err = fmt.Errorf("%w: table of %d entries", ErrProtocol, d.Table.Length)
	case d.Table.Addr > math.MaxUint64-table:
		err = fmt.Errorf("%w: a table that wraps around", ErrProtocol)
	case d.Buffer.Length == 0:
		err = fmt.Errorf("%w: empty receive buffer", ErrProtocol)
	case d.Buffer.wraps():
		err = fmt.Errorf("%w: a receive buffer that wraps around", ErrProtocol)
	}
	return d, err
}

// ScaleIOMaps returns the number of maps, not less than n, that a ConnData can tell: up to 128, or
// a multiple of 256 up to 32512. It is less only if n is more than that.
func ScaleIOMaps(n int) int {
	if n <= 128 {
		return max(n, 0)
	}
	return min((n+255)&^255, 127<<8)
}

// scale encodes a number of maps in eight bits.
func scale(n int) byte {
	if n <= 128 {
		return byte(n)
	}
	return byte(128 | n>>8)
}

// unscale decodes a number of maps.
func unscale(b byte) int {
	if b <= 128 {
		return int(b)
	}
	return int(b&127) << 8
}
