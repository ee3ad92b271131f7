package rdmap

import (
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// Message is one RDMAP message to be sent.
type Message struct {
	Op      Opcode
	Head    []byte   // header of a message without payload, such as a Read Request; Start copies it
	STag    ddp.STag // the sink of a Write or Read Response; what a Send invalidates
	TO      uint64   // of a Write or Read Response
	Payload [][]byte // in order; unchanged until the FPDUs are written
}

// Sender is the sending half of a stream: it cuts messages into FPDUs, one message after the
// other (RFC 5041 §5.3: never interleaved). It belongs to the owner of the sending side of the
// connection.
type Sender struct {
	mulpdu int
	whole  bool           // cut segments of exactly mulpdu bytes
	msn    [queues]uint32 // next, per queue

	// The message in progress.
	msg    Message
	active bool
	left   uint64 // payload bytes not yet cut
	sent   uint64 // payload bytes cut
	piece  int    // msg.Payload[piece][offset:] is next
	offset int
	pieces [][]byte // of one FPDU
	header [maxHeader]byte
	head   int // bytes in header after that of DDP: Message.Head
}

// NewSender returns the sending half of a new stream whose segments are at most mulpdu bytes.
func NewSender(mulpdu int) *Sender {
	s := &Sender{mulpdu: mulpdu}
	for q := range s.msn {
		s.msn[q] = 1
	}
	return s
}

// SetMULPDU changes the longest segment, from the next one on. With whole, all segments of a
// message except the last have exactly that size, so that FPDUs fill the segments of TCP;
// otherwise their payload is a multiple of 8 bytes.
func (s *Sender) SetMULPDU(mulpdu int, whole bool) { s.mulpdu, s.whole = mulpdu, whole }

// Start begins a message. The previous one must be done. m.Payload is kept until the message has
// been cut; it must hold less than 2^32 bytes.
func (s *Sender) Start(m Message) {
	s.msg, s.active = m, true
	s.left, s.sent, s.piece, s.offset = 0, 0, 0, 0
	for _, p := range m.Payload {
		s.left += uint64(len(p))
	}
	s.head = copy(s.header[ddp.UntaggedSize:], m.Head)
}

// Active reports whether a message has been started and is not yet completely cut.
func (s *Sender) Active() bool { return s.active }

// Sent returns how many bytes of payload of the message in progress have been cut.
func (s *Sender) Sent() uint64 { return s.sent }

// morePieces is the number of pieces for which a batch must have room. An SGL may have more: those
// are short in any one FPDU, and so are copied.
const morePieces = 100

// Cut adds FPDUs of the message in progress to b until the message ends, which it reports, or b
// is full.
func (s *Sender) Cut(b *mpa.Batch) (done bool) {
	for s.active {
		if b.Full(min(len(s.msg.Payload), morePieces)) {
			return false
		}
		s.one(b)
	}
	s.msg.Payload = nil
	return true
}

// one cuts one segment. A message of length zero is one segment too.
func (s *Sender) one(b *mpa.Batch) {
	tagged := s.msg.Op.tagged()
	size := ddp.UntaggedSize
	if tagged {
		size = ddp.TaggedSize
	}
	n := s.left
	if room := uint64(s.mulpdu - size); n > room {
		if n = room; !s.whole {
			n = uint64(ddp.SegmentPayload(s.mulpdu, size))
		}
	}
	last := n == s.left
	ctrl := ctrlVersion | uint8(s.msg.Op)
	if tagged {
		h := ddp.Tagged{Last: last, ULP: ctrl, STag: s.msg.STag, TO: s.msg.TO + s.sent}
		h.Put(s.header[:])
	} else {
		qn := s.msg.Op.queue()
		h := ddp.Untagged{Last: last, ULP: ctrl, QN: qn, MSN: s.msn[qn], MO: uint32(s.sent)}
		if s.msg.Op.Invalidates() {
			h.ULPWord = uint32(s.msg.STag)
		}
		h.Put(s.header[:])
		if last {
			s.msn[qn]++
		}
	}
	b.Add(s.header[:size+s.head], s.take(n)...)
	s.left -= n
	s.sent += n
	s.active = !last
}

// take collects the next n bytes of payload.
func (s *Sender) take(n uint64) [][]byte {
	s.pieces = s.pieces[:0]
	for n > 0 {
		p := s.msg.Payload[s.piece][s.offset:]
		if uint64(len(p)) > n {
			p = p[:n]
			s.offset += len(p)
		} else {
			s.piece++
			s.offset = 0
		}
		if len(p) > 0 {
			s.pieces = append(s.pieces, p)
		}
		n -= uint64(len(p))
	}
	return s.pieces
}

// Terminate adds the last message of the stream to b, which must have room. It may stand between
// two segments of an unfinished message.
func (s *Sender) Terminate(b *mpa.Batch, t *Terminate) {
	h := ddp.Untagged{Last: true, ULP: ctrlVersion | uint8(OpTerminate), QN: QNTerminate, MSN: s.msn[QNTerminate]}
	h.Put(s.header[:])
	var body [4 + 2 + ddp.UntaggedSize + readReqSize]byte
	b.Add(s.header[:ddp.UntaggedSize], t.Append(body[:0]))
}
