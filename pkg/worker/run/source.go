package run

import (
	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// scratchSize is how many bytes a Scratch keeps; what is longer takes large memory, which is counted.
const scratchSize = 4 << 20

// Scratch is memory that its one user packs and unpacks in.
type Scratch struct{ mem []byte }

// room returns n bytes, which are the caller's until the next call.
func (s *Scratch) room(n int) []byte {
	if n > len(s.mem) {
		s.mem = make([]byte, n)
	}
	return s.mem[:n]
}

// Source is the memory that a job came in: body and text, in the slot of its credit, in large memory if they were
// fetched, or unpacked.
type Source struct {
	Slot []byte // the job's alone, and its result's afterwards

	part  *large.Part // fetched, or unpacked and large
	plain []byte      // unpacked, in part or in a scratch; nil: it is where it came
}

// Fetched has the source be what lies in part, which it frees.
func (s *Source) Fetched(part *large.Part) { s.part = part }

// Content returns where body and text lie.
func (s *Source) Content() []byte {
	if s.plain != nil {
		return s.plain
	}
	if s.part != nil {
		return s.part.Mem
	}
	return s.Slot
}

// Drop gives back what was fetched or unpacked.
func (s *Source) Drop() {
	s.part.Free()
	s.part, s.plain = nil, nil
}

// open makes a job's source plain and holds it against its digest, before any of it
// is looked at: the client cannot write it any more, as the Job has invalidated the
// slot, or it was fetched. An answer is why the job ends here.
func (s *Source) open(m *job.Job, a *large.Allowance, mem *large.Memory, scratch *Scratch) *job.Result {
	if m.Packed != 0 {
		if res := s.unpack(m, a, mem, scratch); res != nil {
			return res
		}
	}
	return sumUp(s.Content()[:uint64(m.TextOff)+m.TextLen], m.Digest)
}

// sumUp holds plain bytes of a source against a digest, if there is one.
func sumUp(plain []byte, sum [digest.Size]byte) *job.Result {
	if sum != ([digest.Size]byte{}) && digest.Sum(plain) != sum {
		return Failed(job.Refuse(job.CauseDigest, "the source is not the one that was sent"))
	}
	return nil
}

// unpack puts the content of the source's frame in its place.
func (s *Source) unpack(m *job.Job, a *large.Allowance, mem *large.Memory, scratch *Scratch) *job.Result {
	n := uint64(m.TextOff) + m.TextLen
	var to []byte
	var part *large.Part
	if n <= scratchSize {
		to = scratch.room(int(n))
	} else {
		var err error
		if part, err = mem.TryGet(a, int64(n), job.CauseFull); err != nil {
			return Refused(err)
		}
		to = part.Mem
	}
	got, err := compress.Unpack(to[:0:n], s.Content()[:m.Packed], n)
	if err == nil && uint64(len(got)) != n {
		err = job.Refuse(job.CauseDigest, "a source of %d bytes, not of %d", len(got), n)
	}
	if err != nil {
		part.Free()
		return Failed(job.Refuse(job.CauseDigest, "%v", err))
	}
	s.Drop()
	s.part, s.plain = part, got
	return nil
}

// Settle keeps the bytes of the source that are still needed, own, where a job may wait with them: in its
// slot, or in large memory if they are too big for that. What they came in is given back.
func (s *Source) Settle(own []byte, mem *large.Memory, a *large.Allowance) ([]byte, error) {
	switch {
	case s.part == nil && s.plain == nil: // in the slot
		return own, nil
	case len(own) <= len(s.Slot):
		own = s.Slot[:copy(s.Slot, own)]
		s.Drop()
		return own, nil
	case s.plain == nil || s.part != nil: // in large memory
		return own, nil
	}
	part, err := mem.TryGet(a, int64(len(own)), job.CauseFull)
	if err != nil {
		return nil, err
	}
	own = part.Mem[:copy(part.Mem, own)]
	s.part, s.plain = part, nil
	return own, nil
}
