// Package lzo packs and unpacks bytes in the format LZO1X, which distcc's protocol uses. It does no I/O.
//
// A stream is a sequence of instructions, each of which copies bytes that came earlier, or says how many of the next bytes
// stand for themselves. It ends with an instruction of its own. There is no sum over the content, and no length of it.
package lzo

import (
	"errors"
	"math"
)

// ErrCorrupt is the error for a stream that is not LZO1X, or that does not end where it should.
var ErrCorrupt = errors.New("not a complete LZO1X stream")

// ErrTooBig is the error for a stream that unpacks to more bytes than are allowed.
var ErrTooBig = errors.New("unpacks to too many bytes")

// Distances of the kinds of copies.
const (
	near   = 0x800  // of the shortest instruction
	middle = 0x4000 // a copy from exactly here, as the farthest kind has it, is the end
	far    = 0xbfff
)

// end is the last instruction of a stream.
var end = [...]byte{0x11, 0, 0}

// Size returns how many bytes src unpacks to, without unpacking it: nothing is allocated. It stops with ErrTooBig if they are
// more than most.
func Size(src []byte, most int) (int, error) {
	n := 0
	err := walk(src, func(literals []byte) error { return add(&n, len(literals), most) }, func(distance, length int) error {
		if distance > n {
			return ErrCorrupt
		}
		return add(&n, length, most)
	})
	return n, err
}

func add(n *int, more, most int) error {
	if more > most-*n {
		return ErrTooBig
	}
	*n += more
	return nil
}

// Unpack returns the content of src, which has at most that many bytes.
func Unpack(src []byte, most int) ([]byte, error) {
	n, err := Size(src, most)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, n)
	err = walk(src, func(literals []byte) error {
		out = append(out, literals...)
		return nil
	}, func(distance, length int) error {
		for range length { // the copy may overlap what it makes
			out = append(out, out[len(out)-distance])
		}
		return nil
	})
	return out, err
}

// reader is what remains of a stream.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) byte() int {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return int(b)
}

// long returns a length: given if it is not 0, otherwise base and what the following bytes add, of which each 0 stands for 255.
func (r *reader) long(given, base int) int {
	if given != 0 {
		return given
	}
	n := base
	for !r.bad {
		b := r.byte()
		if b != 0 {
			return n + b
		}
		if n > math.MaxInt32-512 {
			r.bad = true
		}
		n += 255
	}
	return n
}

// walk calls literal and match for the instructions of src, in their order, until one returns an error or the stream ends.
func walk(src []byte, literal func([]byte) error, match func(distance, length int) error) error {
	r := reader{rest: src}
	plain := func(n int) error {
		if r.bad || n > len(r.rest) {
			return ErrCorrupt
		}
		b := r.rest[:n]
		r.rest = r.rest[n:]
		return literal(b)
	}
	// state is how many literals the last instruction brought along, or 4 after one that brought nothing else.
	state := 0
	if len(src) > 0 && src[0] > 17 {
		n := r.byte() - 17
		if err := plain(n); err != nil {
			return err
		}
		state = min(n, 4)
	}
	for {
		op := r.byte()
		var distance, length, behind int
		switch {
		case op >= 64:
			behind = op & 3
			length = op>>5 + 1
			distance = op>>2&7 + r.byte()<<3 + 1
		case op >= 32:
			length = r.long(op&31, 31) + 2
			low := r.byte()
			behind = low & 3
			distance = low>>2 + r.byte()<<6 + 1
		case op >= 16:
			length = r.long(op&7, 7) + 2
			low := r.byte()
			behind = low & 3
			distance = middle + op>>3&1<<14 + low>>2 + r.byte()<<6
			if distance == middle {
				if r.bad || length != 3 || len(r.rest) > 0 {
					return ErrCorrupt
				}
				return nil
			}
		case state == 0:
			if err := plain(r.long(op, 15) + 3); err != nil {
				return err
			}
			state = 4
			continue
		default:
			behind = op & 3
			length, distance = 2, op>>2+r.byte()<<2+1
			if state == 4 {
				length, distance = 3, distance+near
			}
		}
		if r.bad {
			return ErrCorrupt
		}
		if err := match(distance, length); err != nil {
			return err
		}
		if err := plain(behind); err != nil {
			return err
		}
		state = behind
	}
}
