package modules

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Meaning returns a sum over what an index of ThinLTO says, whatever the modules are called that it names: instead of its path, the
// content of each counts, of which content returns a sum. A linker that has members of archives compiled elsewhere names them after its
// own process. ok is false if the index is of a form that is not known here, or content returns false.
//
// Where the paths end decides only how long the blocks around them are: blocks begin and end at a multiple of 32 bits, and what is behind
// the paths names modules by their numbers.
func Meaning(index []byte, content func(path string) (sum [sha256.Size]byte, ok bool)) (sum [sha256.Size]byte, ok bool) {
	type span struct{ from, end uint64 }
	var lengths, paths []span
	h := sha256.New()
	r := stream{end: uint64(len(index)) * 8, blocks: []uint64{moduleBlock, pathsBlock}}
	r.read = func(b []byte, off int64) bool { return copy(b, index[min(off, int64(len(index))):]) == len(b) }
	r.enter = func(id, from, end uint64) {
		lengths = append(lengths, span{from - 4, from})
		if id == pathsBlock {
			paths = append(paths, span{from, end})
		}
	}
	r.record = func(block uint64, ops []uint64, _ string) {
		if block != pathsBlock {
			return
		}
		entry := ops[0] == pathsEntry && len(ops) > 2
		said := ops
		if entry {
			said = ops[:2]
		}
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(said)))
		for _, v := range said {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		if entry {
			path, text := characters(nil, ops[2:])
			of, known := content(string(path))
			b = append(b, of[:]...)
			r.bad = r.bad || !text || !known
		}
		h.Write(b)
	}
	if len(index) < 8 || len(index)%4 != 0 || r.fixed(32) != bitcode {
		return sum, false
	}
	for r.at < r.end && !r.bad {
		if r.fixed(2) != enterBlock {
			return sum, false
		}
		r.block(0)
	}
	rest := slices.Clone(index)
	for _, s := range lengths {
		clear(rest[s.from:s.end])
	}
	slices.SortFunc(paths, func(x, y span) int { return int(y.from) - int(x.from) })
	for _, s := range paths {
		rest = slices.Delete(rest, int(s.from), int(s.end))
	}
	h.Write(rest)
	return [sha256.Size]byte(h.Sum(nil)), !r.bad
}
