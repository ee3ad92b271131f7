package rdmap_test

import (
	"math/rand/v2"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// fetchAdd is RFC 7306 §5.1.1 to the letter, bit by bit.
func fetchAdd(orig, add, mask uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		s := carry + orig>>i&1 + add>>i&1
		sum |= s & 1 << i
		carry = s >> 1 &^ (mask >> i) & 1
	}
	return sum
}

// TestFetchAddFields covers EXT-09: fields of every size, and the carry out of each
// is dropped.
func TestFetchAddFields(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 3))
	masks := []uint64{0, 1 << 63, 0x8080808080808080, 0x8000800080008000, 0x80000000, ^uint64(0), 1, 0x8000000080000001}
	for range 20_000 {
		mask := masks[rng.IntN(len(masks))]
		if rng.IntN(2) == 0 {
			mask = rng.Uint64() & rng.Uint64()
		}
		r := rdmap.AtomicRequest{Op: rdmap.FetchAdd, Data: rng.Uint64(), Mask: mask}
		old := rng.Uint64()
		if got, want := r.Apply(old), fetchAdd(old, r.Data, mask); got != want {
			t.Fatalf("%016x + %016x in fields %016x: got %016x, want %016x", old, r.Data, mask, got, want)
		}
	}
}

// TestCmpSwapMasks covers EXT-10.
func TestCmpSwapMasks(t *testing.T) {
	for _, x := range []struct{ old, compare, cmask, swap, smask, want uint64 }{
		{5, 5, ^uint64(0), 9, ^uint64(0), 9},
		{5, 6, ^uint64(0), 9, ^uint64(0), 5},
		{0x15, 0x25, 0x0f, 0xffff, 0xf0, 0xf5}, // equal in the compared bits, swapped in the masked ones
		{0x15, 0x25, 0xf0, 0xffff, 0xf0, 0x15},
		{5, 99, 0, 9, ^uint64(0), 9}, // nothing compared: always
		{5, 5, ^uint64(0), 9, 0, 5},  // nothing swapped: never
	} {
		r := rdmap.AtomicRequest{Op: rdmap.CmpSwap, Data: x.swap, Mask: x.smask, Compare: x.compare, CompareMask: x.cmask}
		if got := r.Apply(x.old); got != x.want {
			t.Errorf("%+v: got %#x, want %#x", x, got, x.want)
		}
	}
}
