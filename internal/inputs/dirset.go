package inputs

import (
	"math/bits"
	"slices"
)

// dirSet is a set of directory ids: the nonzero words of a bit set. Most commands of a build search the same
// directories, thousands in a big tree, and ten of them take a few bytes here.
type dirSet struct {
	at   []uint32 // which word, in order
	word []uint64
}

// newDirSet returns the set of ids, which it sorts.
func newDirSet(ids []uint32) (s dirSet) {
	slices.Sort(ids)
	for _, id := range ids {
		k := len(s.at) - 1
		if k < 0 || s.at[k] != id/64 {
			s.at, s.word = append(s.at, id/64), append(s.word, 0)
			k++
		}
		s.word[k] |= 1 << (id % 64)
	}
	s.at, s.word = slices.Clip(s.at), slices.Clip(s.word)
	return s
}

// all calls yield with each id, in order.
func (s *dirSet) all(yield func(id uint32) bool) {
	for k, w := range s.word {
		for ; w != 0; w &= w - 1 {
			if !yield(s.at[k]*64 + uint32(bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}
