package shelf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestParts: of those who share a shelf, one that puts as much as it likes does not push the others' entries out as long as these
// take no more than their even part, and what the others put stays readable. It may use what they leave.
func TestParts(t *testing.T) {
	const data = 1 << 20
	for _, size := range []int{100, 3000, 20000} {
		for seed := range uint64(3) {
			rnd := rand.New(rand.NewPCG(seed, uint64(size)))
			b := newBench(t, data)
			entry := func(n uint64) []byte {
				r := rand.New(rand.NewPCG(n, 7))
				return bytes.Repeat([]byte{byte(r.Uint32()), byte(n)}, 1+r.IntN(size))
			}
			takes := func(n uint64) uint64 { return b.takes(uint64(len(entry(n)))) }
			var modest []uint64 // entries of one that has less than its part of three
			sum := uint64(0)
			n, floods := uint64(0), 0
			for round := range 6000 {
				n++
				e := entry(n)
				switch part := uint64(data-data/slack) / 3; {
				case round%10 == 0 && sum+takes(n) <= part:
					b.PutFor("modest", key(n), e[:len(e)/2], e[len(e)/2:])
					modest, sum = append(modest, n), sum+takes(n)
				case rnd.IntN(3) == 0:
					b.PutFor("other", key(n), e)
				default:
					floods++
					b.PutFor("flood", key(n), e)
				}
				if round%500 == 499 {
					b.refresh()
					for _, m := range modest {
						if got, ok := b.get(key(m)); !ok || !bytes.Equal(got, entry(m)) {
							t.Fatalf("size %d, seed %d, round %d: entry %d of %d that are modest is gone or another: %v", size, seed, round, m, len(modest), ok)
						}
					}
				}
			}
			st := b.Stats()
			if st.Bytes < data*2/3 && size > 100 || st.Evicted+uint64(st.Entries) != n || len(modest) < 10 || floods < 1000 {
				t.Errorf("size %d: %+v of %d, %d of them modest", size, st, n, len(modest))
			}
			has := uint64(0)
			for _, x := range b.parts.has {
				has += x
			}
			if len(b.parts.owner) != st.Entries || len(b.parts.has) != 3 || has < b.used {
				t.Errorf("%d entries have owners, %d: %d bytes", len(b.parts.owner), len(b.parts.has), has)
			}
			b.Clear()
			if len(b.parts.owner)+len(b.parts.has) != 0 {
				t.Errorf("after all, %d entries have owners, %d", len(b.parts.owner), len(b.parts.has))
			}
		}
	}
}

// TestPartOfOne: who is alone on a shelf has all of it, and its oldest entries make room, as without owners.
func TestPartOfOne(t *testing.T) {
	b := newBench(t, 1<<20)
	plain := newBench(t, 1<<20)
	for n := range uint64(3000) {
		e := []byte(fmt.Sprint(n, string(make([]byte, n%3000))))
		if !b.PutFor("one", key(n), e) || !plain.Put(key(n), e) {
			t.Fatal("not put")
		}
	}
	if b.PutFor("one", key(1), make([]byte, 1<<19)) {
		t.Error("an entry that is too long is put")
	}
	if x, y := b.Stats(), plain.Stats(); x != y {
		t.Errorf("%+v, without owners %+v", x, y)
	}
}

// BenchmarkPutFor is what an entry of 10 KB costs, of one who floods a shelf beside one who has half of it.
func BenchmarkPutFor(b *testing.B) {
	for _, flood := range []bool{false, true} {
		b.Run(fmt.Sprintf("flood=%v", flood), func(b *testing.B) {
			s := newBench(b, 64<<20)
			e := make([]byte, 10<<10)
			n := uint64(0)
			for s.Shelf.used < s.limit*7/16 && flood {
				n++
				s.PutFor("other", key(n), e)
			}
			for b.Loop() {
				n++
				s.PutFor("one", key(n), e)
			}
		})
	}
}
