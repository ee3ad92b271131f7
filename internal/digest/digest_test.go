package digest

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// Values of XXH64 (seed 0) and CRC32C from their specifications: of nothing, and of
// "123456789", whose CRC32C is the check value of the catalogue.
func TestSumIsTheTwoSumsAndTheLength(t *testing.T) {
	for _, x := range []struct{ in, want string }{
		{"", "99e9d85137db46ef" + "00000000" + "00000000"},
		{"a", "5b6e8ca9f1c44ed2" + "3043d0c1" + "01000000"},
		{"123456789", "83aee640db41b88c" + "839206e3" + "09000000"},
	} {
		if got := Sum([]byte(x.in)); hex.EncodeToString(got[:]) != x.want {
			t.Errorf("Sum(%q) = %x, want %s", x.in, got, x.want)
		}
	}
}

func TestSumIsNeverZero(t *testing.T) {
	if join(0, 0, 0) == ([Size]byte{}) {
		t.Error("three zeros gave the digest that means none")
	}
}

// text is n bytes that compress to nothing.
func text(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPiecesGiveTheSameSum(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, block - 1, block, block + 1, 3*block + 7} {
		b := text(n)
		want := Sum(b)
		for _, piece := range []int{1, 31, 4096, block, block + 5, n + 1} {
			if piece < 31 && n > 4096 {
				continue
			}
			var h Hash
			for rest := b; len(rest) > 0; {
				k := min(piece, len(rest))
				if m, err := h.Write(rest[:k]); m != k || err != nil {
					t.Fatalf("Write of %d bytes: %d, %v", k, m, err)
				}
				_ = h.Sum() // in between, without effect
				rest = rest[k:]
			}
			if got := h.Sum(); got != want {
				t.Errorf("%d bytes in pieces of %d: %x, want %x", n, piece, got, want)
			}
		}
	}
}

func TestWhatGoesWrongIsSeen(t *testing.T) {
	b := text(2*block + 100)
	want := Sum(b)
	for _, bit := range []int{0, 7, 8*block - 1, 8 * block, 8*len(b) - 1} {
		c := bytes.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		if Sum(c) == want {
			t.Errorf("bit %d flipped: the same digest", bit)
		}
	}
	c := bytes.Clone(b)
	copy(c[:4096], b[4096:8192])
	copy(c[4096:8192], b[:4096])
	if Sum(c) == want {
		t.Error("two pages exchanged: the same digest")
	}
	if Sum(b[:len(b)-1]) == want || Sum(append(bytes.Clone(b), 0)) == want {
		t.Error("another length: the same digest")
	}
	clear(c)
	if Sum(c[:4096]) == Sum(c[:8192]) {
		t.Error("pages of zeros: the same digest for two lengths")
	}
}

func TestSumAllocatesNothing(t *testing.T) {
	b := text(block + 1)
	if n := testing.AllocsPerRun(10, func() { Sum(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{4 << 10, 1 << 20, 16 << 20} {
		b.Run(map[int]string{4 << 10: "4KiB", 1 << 20: "1MiB", 16 << 20: "16MiB"}[n], func(b *testing.B) {
			x := text(n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				Sum(x)
			}
		})
	}
}
