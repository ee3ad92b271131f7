package run

import (
	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// packLeast is the shortest result, in bytes, that is compressed. A shorter one fits in one or two TCP
// segments anyway.
const packLeast = 4 << 10

// seal finishes a result: it sets the digest, and compresses mem in place if the client asked for that and it
// is worth it. It returns how many bytes of mem to send.
func (p *Place) seal(j *Job, mem []byte, res *job.Result) int {
	n := len(mem)
	res.Digest = digest.Sum(mem)
	bound := compress.Bound(n)
	if !j.Asked.Zstd || n < packLeast || bound > scratchSize {
		return n
	}
	if packed, err := compress.Pack(p.scratch.room(bound)[:0], mem); err == nil && worthIt(len(packed), n) {
		copy(mem, packed)
		res.Packed = uint64(len(packed))
		return len(packed)
	}
	return n
}

// sealLarge does what seal does, for a result in large memory. It takes over l and returns the part that
// holds the result.
func (p *Place) sealLarge(j *Job, l *large.Part, res *job.Result) *large.Part {
	res.Digest = digest.Sum(l.Mem)
	if !j.Asked.Zstd {
		return l
	}
	to, err := p.h.Large.TryGet(j.Allowance, int64(compress.Bound(len(l.Mem))), job.CauseFull)
	if err != nil {
		return l // no memory to compress into: send it uncompressed
	}
	packed, err := compress.Pack(to.Mem[:0], l.Mem)
	if err != nil || !worthIt(len(packed), len(l.Mem)) || len(packed) > len(to.Mem) {
		to.Free()
		return l
	}
	l.Free()
	to.Mem = to.Mem[:len(packed)]
	res.Packed = uint64(len(packed))
	return to
}

// worthIt reports whether compressing saves an eighth: the time saved in transit must pay for unpacking.
func worthIt(packed, plain int) bool { return packed <= plain-plain/8 }
