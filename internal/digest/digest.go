// Package digest computes end-to-end sums of what travels between manager and daemon: the CRC of MPA covers
// the wire, not memory, disk or a broken host. It guards against accidents, not against an adversary, who
// could send another digest as well.
package digest

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"
)

// Size is the size of a digest, in bytes.
const Size = 16

// block is how much is summed at a time, in bytes: the second sum then finds in the cache what the first
// one has read.
const block = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the digest of b. It is never all zeros, which means that there is none:
//
//	0      8          12        16 bytes
//	| XXH64 | CRC32C | length |
//
// little-endian, with the length's two halves xored. There are two sums of different kinds, as each misses
// some errors. A pass costs about 0.1 ms per MiB.
func Sum(b []byte) [Size]byte {
	if len(b) <= block {
		return join(xxhash.Sum64(b), crc32.Checksum(b, castagnoli), uint64(len(b)))
	}
	var h Hash
	_, _ = h.Write(b) // never fails
	return h.Sum()
}

// Hash computes the sum of what is written piece by piece. Its zero value is ready.
type Hash struct {
	xx  xxhash.Digest
	crc uint32
	n   uint64
}

// Write adds b. It always takes all of it.
func (h *Hash) Write(b []byte) (int, error) {
	if h.n == 0 {
		h.xx.Reset() // its own zero value is not ready
	}
	n := len(b)
	h.n += uint64(n)
	for len(b) > 0 {
		k := min(len(b), block)
		_, _ = h.xx.Write(b[:k]) // never fails
		h.crc = crc32.Update(h.crc, castagnoli, b[:k])
		b = b[k:]
	}
	return n, nil
}

// Sum returns the digest of what was written so far; more may follow.
func (h *Hash) Sum() [Size]byte {
	if h.n == 0 {
		return Sum(nil)
	}
	return join(h.xx.Sum64(), h.crc, h.n)
}

func join(xx uint64, crc uint32, n uint64) (d [Size]byte) {
	binary.LittleEndian.PutUint64(d[0:], xx)
	binary.LittleEndian.PutUint32(d[8:], crc)
	binary.LittleEndian.PutUint32(d[12:], uint32(n)^uint32(n>>32))
	if d == ([Size]byte{}) {
		d[0] = 1
	}
	return d
}
