package modules

import (
	"encoding/binary"
	"slices"
)

// stream reads a file in LLVM's bitstream format: blocks of records and of further blocks.
type stream struct {
	read   func(b []byte, off int64) bool                // of the file
	at     uint64                                        // in bits
	end    uint64                                        // of the file, in bits
	bad    bool                                          // it is not in this format
	spent  uint64                                        // numbers that have been read; some take no bits, which must not cost much time
	record func(block uint64, ops []uint64, blob string) // ops is used again for the next one
	blocks []uint64                                      // those that are read, besides the block that describes others
	enter  func(id, from, end uint64)                    // if not nil, called with a block that is read and where its content is, in bytes

	infos  map[uint64][]abbreviation // by block, from the block that describes others
	window []byte                    // a part of the file
	from   uint64                    // where it begins, in bytes
	ops    []uint64                  // of a record
}

// abbreviation says how the fields of a record are written.
type abbreviation []field

type field struct {
	kind  uint64
	value uint64 // of a literal, or the width in bits
}

// IDs and encodings of the format.
const (
	endBlock, enterBlock, defineAbbreviation, unabbreviated = 0, 1, 2, 3

	literal, fixedWidth, variableWidth, array, char6, blobs = 0, 1, 2, 3, 4, 5

	infoBlock = 0 // describes others
	setBlock  = 1 // in it: a record with the block that what follows is about
)

// Limits of what is read. What is beyond them is not what clang writes.
const (
	maxDepth  = 8       // blocks in each other
	maxOps    = 1 << 20 // numbers of a record
	maxWindow = 16 << 10
)

// byteAt returns a byte of the file.
func (r *stream) byteAt(i uint64) byte {
	if i-r.from >= uint64(len(r.window)) { // before it, too
		n := min(maxWindow, r.end/8-i)
		if cap(r.window) == 0 {
			r.window = make([]byte, 0, maxWindow)
		}
		r.window, r.from = r.window[:n], i
		if n == 0 || !r.read(r.window, int64(i)) {
			r.bad, r.window = true, r.window[:0]
			return 0
		}
	}
	return r.window[i-r.from]
}

// fixed reads a number of n bits, at most 64.
func (r *stream) fixed(n uint64) (v uint64) {
	if r.bad || n > 64 || n > r.end-r.at {
		r.bad = true
		return 0
	}
	if i := r.at/8 - r.from; r.at%8+n <= 64 && i < uint64(len(r.window)) && i+8 <= uint64(len(r.window)) { // nearly always
		v = binary.LittleEndian.Uint64(r.window[i:]) >> (r.at % 8) & (1<<n - 1)
		r.at += n
		return v
	}
	for i := uint64(0); i < n && !r.bad; {
		take := min(8-r.at%8, n-i)
		v |= uint64(r.byteAt(r.at/8)) >> (r.at % 8) & (1<<take - 1) << i
		i, r.at = i+take, r.at+take
	}
	return v
}

// variable reads a number in groups of n bits.
func (r *stream) variable(n uint64) (v uint64) {
	if n < 2 || n > 32 {
		r.bad = true
		return 0
	}
	for shift := uint64(0); shift < 64 && !r.bad; shift += n - 1 {
		part := r.fixed(n)
		v |= part & (1<<(n-1) - 1) << shift
		if part>>(n-1) == 0 {
			return v
		}
	}
	r.bad = true
	return 0
}

// skip leaves out bits, and what is left of the last word of 32 bits.
func (r *stream) skip(n uint64) {
	if n > r.end-r.at {
		r.bad = true
		return
	}
	r.at = min((r.at+n+31)&^31, r.end)
}

// block reads a block whose entry has been read.
func (r *stream) block(depth int) {
	id, width := r.variable(8), r.variable(4)
	r.skip(0)
	size := r.fixed(32) * 32
	if r.bad || size > r.end-r.at || width < 2 || width > 32 || depth > maxDepth {
		r.bad = true
		return
	}
	end := r.at + size
	if id != infoBlock && !slices.Contains(r.blocks, id) {
		r.at = end
		return
	}
	if r.enter != nil {
		r.enter(id, r.at/8, end/8)
	}
	known := append([]abbreviation(nil), r.infos[id]...)
	described := uint64(0)
	for r.at < end && !r.bad {
		switch code := r.fixed(width); code {
		case endBlock:
			if r.skip(0); r.at != end {
				r.bad = true
			}
			return
		case enterBlock:
			r.block(depth + 1)
		case defineAbbreviation:
			a := r.abbreviation()
			if id != infoBlock {
				known = append(known, a)
				continue
			}
			if r.infos == nil {
				r.infos = make(map[uint64][]abbreviation)
			}
			r.infos[described] = append(r.infos[described], a)
		case unabbreviated:
			ops := append(r.ops[:0], r.variable(6))
			n := r.variable(6)
			for ; n > 0 && n <= maxOps && !r.bad; n-- {
				ops = append(ops, r.variable(6))
			}
			r.ops = ops
			switch {
			case r.bad || n > 0:
				r.bad = true
			case id == infoBlock && ops[0] == setBlock && len(ops) > 1:
				described = ops[1]
			default:
				r.record(id, ops, "")
			}
		default:
			if code -= unabbreviated + 1; code >= uint64(len(known)) {
				r.bad = true
				return
			}
			r.abbreviated(id, known[code])
		}
	}
	r.bad = true // it has no end
}

// abbreviation reads a definition.
func (r *stream) abbreviation() (a abbreviation) {
	for n := r.variable(5); n > 0 && !r.bad; n-- {
		if r.fixed(1) == 1 {
			a = append(a, field{literal, r.variable(8)})
			continue
		}
		f := field{kind: r.fixed(3)}
		switch f.kind {
		case fixedWidth, variableWidth:
			f.value = r.variable(5)
		case array, char6, blobs:
		default:
			r.bad = true
		}
		a = append(a, f)
	}
	return a
}

// abbreviated reads a record with an abbreviation.
func (r *stream) abbreviated(id uint64, a abbreviation) {
	ops, blob := r.ops[:0], ""
	r.spend(uint64(len(a)))
	for i := 0; i < len(a) && !r.bad; i++ {
		switch f := a[i]; f.kind {
		case array:
			n := r.variable(6)
			if i += 1; i != len(a)-1 || n > maxOps {
				r.bad = true
				return
			}
			r.spend(n)
			for ; n > 0 && !r.bad; n-- {
				ops = append(ops, r.scalar(a[i]))
			}
		case blobs:
			n := r.variable(6)
			r.skip(0)
			if r.bad || n > (r.end-r.at)/8 {
				r.bad = true
				return
			}
			if n <= 2*maxName {
				b := make([]byte, n)
				if n > 0 && !r.read(b, int64(r.at/8)) {
					r.bad = true
				}
				blob = string(b)
			}
			r.skip(n * 8)
		default:
			ops = append(ops, r.scalar(f))
		}
	}
	if r.ops = ops; !r.bad && len(ops) > 0 {
		r.record(id, ops, blob)
	}
}

// spend counts numbers that are about to be read. Those of a file that clang has written have more bits than there are numbers.
func (r *stream) spend(n uint64) {
	if r.spent += n; r.spent > r.end {
		r.bad = true
	}
}

// scalar reads one number.
func (r *stream) scalar(f field) uint64 {
	switch {
	case f.kind == literal:
		return f.value
	case f.kind == char6:
		return uint64("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"[r.fixed(6)])
	case f.value == 0 && (f.kind == fixedWidth || f.kind == variableWidth):
		return 0
	case f.kind == fixedWidth:
		return r.fixed(f.value)
	case f.kind == variableWidth:
		return r.variable(f.value)
	}
	r.bad = true
	return 0
}
