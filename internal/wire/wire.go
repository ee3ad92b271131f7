// Package wire has the encoding that the project's own protocols share: little-endian integers, booleans as a byte 0 or
// 1, strings after a length, and lists after a count, of 32 bits each.
//
// It has hardly any dependencies, as it is linked into the wrapper.
package wire

import "encoding/binary"

// AppendBool appends a boolean as a byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendUint16 appends 2 bytes.
func AppendUint16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }

// AppendUint32 appends 4 bytes.
func AppendUint32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

// AppendUint64 appends 8 bytes.
func AppendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// AppendString appends s after its length.
func AppendString(b []byte, s string) []byte {
	return append(AppendUint32(b, uint32(len(s))), s...)
}

// AppendStrings appends a list of strings after their number.
func AppendStrings(b []byte, list []string) []byte {
	b = AppendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = AppendString(b, s)
	}
	return b
}

// Reader reads fields from the front of Rest. The first fault stays: later reads return zeros, so that a
// parser checks once, at its end. Strings read from a string are parts of it, others are copies.
type Reader[B string | []byte] struct {
	Rest  B
	Fault string // the first error; "": none
}

// Fail records a fault, unless there is one already.
func (r *Reader[B]) Fail(what string) {
	if r.Fault == "" {
		r.Fault = what
	}
	r.Rest = r.Rest[:0]
}

// End returns the fault. Not having read everything is one too.
func (r *Reader[B]) End() string {
	if len(r.Rest) != 0 {
		r.Fail("bytes behind the end")
	}
	return r.Fault
}

// Take reads n bytes, or none if there are fewer.
func (r *Reader[B]) Take(n int) (b B) {
	if n > len(r.Rest) {
		r.Fail("cut short")
		return b
	}
	b, r.Rest = r.Rest[:n], r.Rest[n:]
	return b
}

// Uint8 reads a byte.
func (r *Reader[B]) Uint8() uint8 {
	if b := r.Take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// Uint16 reads 2 bytes.
func (r *Reader[B]) Uint16() uint16 {
	if b := r.Take(2); len(b) == 2 {
		return uint16(b[0]) | uint16(b[1])<<8
	}
	return 0
}

// Uint32 reads 4 bytes.
func (r *Reader[B]) Uint32() uint32 {
	if b := r.Take(4); len(b) == 4 {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	return 0
}

// Uint64 reads 8 bytes.
func (r *Reader[B]) Uint64() uint64 {
	if b := r.Take(8); len(b) == 8 {
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	}
	return 0
}

// Bool reads a byte that is 0 or 1.
func (r *Reader[B]) Bool() bool {
	v := r.Uint8()
	if v > 1 {
		r.Fail("neither true nor false")
	}
	return v == 1
}

// Count reads the length of a list whose entries take at least least bytes each, so that it is never longer
// than what is left could hold.
func (r *Reader[B]) Count(least int) int {
	n := r.Uint32()
	if uint64(n) > uint64(len(r.Rest)/least) {
		r.Fail("list past the end")
		return 0
	}
	return int(n)
}

// Text reads a string.
func (r *Reader[B]) Text() string {
	n := r.Uint32()
	if uint64(n) > uint64(len(r.Rest)) {
		r.Fail("cut short")
		return ""
	}
	return string(r.Take(int(n)))
}

// Texts reads a list of strings; an empty one is nil.
func (r *Reader[B]) Texts() []string {
	n := r.Count(4)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.Text()
	}
	return list
}
