package run

import (
	"bytes"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// scratchSize is the most bytes that a Scratch is used for. Anything longer takes large memory, which is
// accounted.
const scratchSize = 4 << 20

// Scratch is reusable memory to compress and decompress in. It belongs to one goroutine.
type Scratch struct{ mem []byte }

// room returns n bytes, which the caller may use until the next call.
func (s *Scratch) room(n int) []byte {
	if n > len(s.mem) {
		s.mem = make([]byte, n)
	}
	return s.mem[:n]
}

// Source is the memory that holds a job's body and text: the slot of its credit, or memory like it; the copy of
// the message that carried them; large memory if they were fetched into that; or where they were unpacked.
type Source struct {
	Slot []byte // used by this job only, and then by its result; nil: it has none yet

	came  []byte      // the source as its message carried it, or what is left of that; nil: it did not
	give  func()      // gives the memory of what the message carried back; may be nil
	part  *large.Part // holds a fetched source, or a large unpacked one
	plain []byte      // the unpacked source, in part or in a scratch; nil: the source is where it arrived
}

// Fetched makes part the source. The Source frees it.
func (s *Source) Fetched(part *large.Part) { s.part = part }

// Brought makes came, which is this job's own copy, the source. give is called when it is no longer needed.
func (s *Source) Brought(came []byte, give func([]byte)) {
	s.came, s.give = came, func() { give(came) }
}

// Content returns the memory that holds body and text.
func (s *Source) Content() []byte {
	if s.plain != nil {
		return s.plain
	}
	if s.part != nil {
		return s.part.Mem
	}
	if s.came != nil {
		return s.came
	}
	return s.Slot
}

// Drop releases what was fetched or unpacked.
func (s *Source) Drop() {
	s.part.Free()
	if s.give != nil {
		s.give()
	}
	s.part, s.plain, s.came, s.give = nil, nil, nil, nil
}

// open unpacks a job's source and compares it with its digest, before any of it is interpreted. The client
// can no longer change it: the Job message has invalidated the slot's STag, or the source was fetched. open
// returns an answer if the job ends here, nil otherwise.
func (s *Source) open(m *job.Job, a *large.Allowance, mem *large.Memory, scratch *Scratch) *job.Result {
	if m.Packed != 0 {
		if res := s.unpack(m, a, mem, scratch); res != nil {
			return res
		}
	}
	return sumUp(s.Content()[:uint64(m.TextOff)+m.TextLen], m.Digest)
}

// sumUp compares the unpacked bytes of a source with a digest; a zero digest is not checked. It returns an
// answer if they differ, nil otherwise.
func sumUp(plain []byte, sum [digest.Size]byte) *job.Result {
	if sum != ([digest.Size]byte{}) && digest.Sum(plain) != sum {
		return Failed(job.Refuse(job.CauseDigest, "the source is not the one that was sent"))
	}
	return nil
}

// unpack decompresses the source. It returns an answer if the job ends here, nil otherwise.
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

// settleCopied is the most bytes that a job without a slot may hold while it waits, beside what its message
// carried.
const settleCopied = 64 << 10

// Settle moves own, the bytes of the source that are still needed, to memory that a waiting job may hold: its
// slot, or large memory if they do not fit there, or a copy of a few bytes if it has no slot. It returns where they are, and releases other memory of the
// source.
func (s *Source) Settle(own []byte, mem *large.Memory, a *large.Allowance) ([]byte, error) {
	switch {
	case s.part == nil && s.plain == nil: // in the slot, or carried
		return own, nil
	case len(own) <= len(s.Slot):
		own = s.Slot[:copy(s.Slot, own)]
		s.Drop()
		return own, nil
	case s.plain == nil || s.part != nil: // in large memory
		return own, nil
	case s.Slot == nil && len(own) <= settleCopied:
		own = bytes.Clone(own)
		s.Drop()
		s.came = own
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
