package worker

import (
	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
)

// Bounds of packing, in bytes.
const (
	// scratchSize is what a runner, or an intake, keeps to pack and unpack in; what is larger takes
	// large memory, which is counted.
	scratchSize = 4 << 20
	// packLeast is the shortest result that is packed: a shorter one goes in a segment
	// or two of TCP anyway.
	packLeast = 4 << 10
)

// open makes a task's source plain and holds it against its digest, before any of it
// is looked at: the client cannot write it any more, as the Job has invalidated the
// slot, or it was fetched. A result is why the job ends here.
func (t *task) open(scratch *scratch) *job.Result {
	if t.m.Packed != 0 {
		if res := t.unpack(scratch); res != nil {
			return res
		}
	}
	return t.sumUp(t.content()[:uint64(t.m.TextOff)+t.m.TextLen], t.m.Digest)
}

// sumUp holds plain bytes of the source's against a digest, if there is one.
func (t *task) sumUp(plain []byte, sum [digest.Size]byte) *job.Result {
	if sum != ([digest.Size]byte{}) && digest.Sum(plain) != sum {
		return failed(refuse(job.CauseDigest, "the source is not the one that was sent"))
	}
	return nil
}

// unpack puts the content of the source's frame in its place.
func (t *task) unpack(scratch *scratch) *job.Result {
	n := uint64(t.m.TextOff) + t.m.TextLen
	var to []byte
	var mem *large
	if n <= scratchSize {
		to = scratch.room(int(n))
	} else {
		var err error
		if mem, err = t.c.s.large.tryGet(t.c.allowance, int64(n), job.CauseFull); err != nil {
			return refused(err)
		}
		to = mem.mem
	}
	got, err := compress.Unpack(to[:0:n], t.content()[:t.m.Packed], n)
	if err == nil && uint64(len(got)) != n {
		err = refuse(job.CauseDigest, "a source of %d bytes, not of %d", len(got), n)
	}
	if err != nil {
		mem.free()
		return failed(refuse(job.CauseDigest, "%v", err))
	}
	t.dropSource()
	t.src, t.plain = mem, got
	return nil
}

// scratch is what its one user packs and unpacks in.
type scratch struct{ mem []byte }

// room is n bytes, until it is asked for again.
func (s *scratch) room(n int) []byte {
	if n > len(s.mem) {
		s.mem = make([]byte, n)
	}
	return s.mem[:n]
}

// seal ends a result: its digest, and if the client wants that and it is worth it, a
// frame in its place. It returns how many bytes of mem are to travel.
func (r *runner) seal(t *task, mem []byte, res *job.Result) int {
	n := len(mem)
	res.Digest = digest.Sum(mem)
	bound := compress.Bound(n)
	if !t.m.Zstd || n < packLeast || bound > scratchSize {
		return n
	}
	if p, err := compress.Pack(r.scratch.room(bound)[:0], mem); err == nil && worthIt(len(p), n) {
		copy(mem, p)
		res.Packed = uint64(len(p))
		return len(p)
	}
	return n
}

// sealLarge does the same for a result in large memory, and returns where it is then.
func (r *runner) sealLarge(t *task, l *large, res *job.Result) *large {
	res.Digest = digest.Sum(l.mem)
	if !t.m.Zstd {
		return l
	}
	to, err := r.s.large.tryGet(t.c.allowance, int64(compress.Bound(len(l.mem))), job.CauseFull)
	if err != nil {
		return l // as it is, then
	}
	p, err := compress.Pack(to.mem[:0], l.mem)
	if err != nil || !worthIt(len(p), len(l.mem)) || len(p) > len(to.mem) {
		to.free()
		return l
	}
	l.free()
	to.mem = to.mem[:len(p)]
	res.Packed = uint64(len(p))
	return to
}

// worthIt: what is saved on the way must pay for unpacking.
func worthIt(packed, plain int) bool { return packed <= plain-plain/8 }
