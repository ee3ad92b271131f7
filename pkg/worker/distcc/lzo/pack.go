package lzo

import "encoding/binary"

// shortest is how many bytes have to be the same for a copy: what fewer would save is less than what they cost to find.
const shortest = 4

// tableBits is the logarithm of the number of places that are remembered.
const tableBits = 14

// Append packs src, and appends the stream to dst. It finds a copy for a place by the last other one with the same four bytes.
func Append(dst, src []byte) []byte {
	p := packer{out: dst, first: true}
	var table [1 << tableBits]int32 // of places in src, plus 1; 0: none
	from := 0                       // of the literals that are not written yet
	for i := 0; i+shortest <= len(src); {
		four := binary.LittleEndian.Uint32(src[i:])
		slot := &table[four*0x9e3779b1>>(32-tableBits)]
		at := int(*slot) - 1
		*slot = int32(i + 1)
		if at < 0 || i-at > far || i == 0 || binary.LittleEndian.Uint32(src[at:]) != four {
			i++
			continue
		}
		n := shortest
		for i+n < len(src) && src[at+n] == src[i+n] {
			n++
		}
		p.literals(src[from:i])
		p.match(i-at, n)
		i += n
		from = i
	}
	p.literals(src[from:])
	return append(p.out, end[:]...)
}

// packer writes instructions.
type packer struct {
	out   []byte
	first bool // nothing is written yet
}

// literals writes bytes that stand for themselves, which are followed by a copy or the end.
func (p *packer) literals(b []byte) {
	n := len(b)
	switch {
	case n == 0:
		return
	case p.first && n <= 238:
		p.out = append(p.out, byte(17+n))
	case n <= 3 && !p.first:
		p.out[len(p.out)-2] |= byte(n) // of the copy before
	case n <= 18:
		p.out = append(p.out, byte(n-3))
	default:
		p.out = p.long(append(p.out, 0), n-18)
	}
	p.out = append(p.out, b...)
	p.first = false
}

// match writes a copy of length bytes.
func (p *packer) match(distance, length int) {
	d := distance - 1
	switch {
	case distance <= near && length <= 8:
		p.out = append(p.out, byte((length-1)<<5|d&7<<2), byte(d>>3))
		return
	case distance <= middle:
		p.out = p.length(32, length, 31)
	default:
		d = distance - middle
		p.out = p.length(16|byte(d>>14<<3), length, 7)
		d &= middle - 1
	}
	p.out = append(p.out, byte(d<<2), byte(d>>6))
}

// length writes op with a length: in op itself if it is at most most there, otherwise in the bytes behind.
func (p *packer) length(op byte, length, most int) []byte {
	if n := length - 2; n <= most {
		return append(p.out, op|byte(n))
	}
	return p.long(append(p.out, op), length-2-most)
}

// long writes what reader.long reads.
func (p *packer) long(out []byte, n int) []byte {
	for ; n > 255; n -= 255 {
		out = append(out, 0)
	}
	return append(out, byte(n))
}
