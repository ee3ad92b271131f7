package rdmap

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// TestLongestResponse covers RDMAP-12: the end of a response of 2^32-1 bytes is cut
// up to its last byte.
func TestLongestResponse(t *testing.T) {
	const size, to, tail = math.MaxUint32, math.MaxUint64 - math.MaxUint32, 200_000
	memory := make([]byte, (size+1)/1024)
	m := Message{Op: OpReadResponse, STag: 0x5d, TO: to}
	for range 1023 {
		m.Payload = append(m.Payload, memory)
	}
	m.Payload = append(m.Payload, memory[1:])
	s := NewSender(1454)
	s.Start(m)
	if s.left != size {
		t.Fatalf("a message of %d bytes, want %d", s.left, uint32(size))
	}
	s.left, s.sent, s.piece, s.offset = tail, size-tail, 1023, len(memory)-1-tail
	b := mpa.NewBatch()
	next, last := uint64(to+size-tail), false
	for done := false; !done; {
		b.Reset(false)
		done = s.Cut(b)
		for stream := bytes.Join(b.Bufs(), nil); len(stream) > 0; {
			n := int(binary.BigEndian.Uint16(stream))
			h := ddp.ParseTagged(stream[mpa.LengthSize:])
			if h.TO != next || last {
				t.Fatalf("segment at TO %#x, want %#x", h.TO, next)
			}
			next, last = next+uint64(n-ddp.TaggedSize), h.Last
			stream = stream[mpa.FPDUSize(n):]
		}
	}
	if next != math.MaxUint64 || !last {
		t.Errorf("the message ended at TO %#x, last %v", next, last)
	}
}

// TestLongestRead covers RDMAP-12 for the side that has requested 2^32-1 bytes: the last of them are the last.
func TestLongestRead(t *testing.T) {
	for _, x := range []struct {
		name string
		n    uint64 // bytes that come after all but 100
		last bool
		ok   bool
	}{{"all", 100, true, true}, {"one less", 99, true, false}, {"one more", 101, true, false}, {"not the end", 99, false, true}} {
		p := &player{ird: 1, reads: []Expected{{Op: OpReadResponse, STag: 0x5d, TO: 8, Size: math.MaxUint32}}}
		r := p.engine()
		r.want = p.reads[0]
		r.tagged = message{open: true, op: OpReadResponse, got: math.MaxUint32 - 100}
		seg := make([]byte, ddp.TaggedSize+x.n)
		(&ddp.Tagged{Last: x.last, ULP: ctrlVersion | uint8(OpReadResponse), STag: 0x5d, TO: 8 + math.MaxUint32 - 100}).Put(seg)
		if err := r.segment(seg); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.name, err)
		}
		if done := len(p.reads) == 0; done != (x.ok && x.last) {
			t.Errorf("%s: complete %v", x.name, done)
		}
	}
}
