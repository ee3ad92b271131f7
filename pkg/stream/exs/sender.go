package exs

import (
	"errors"
	"fmt"
)

// Policy says which ways a Sender may take.
type Policy uint8

// Policies.
const (
	Dynamic  Policy = iota // direct where a receive is known, else through the ring
	Direct                 // only into receives: waits for adverts
	Indirect               // only through the ring: ignores adverts
)

// MaxAdverts bounds how many adverts a Sender keeps. A receiver has no use for more, as it has no more receives
// advertised at a time.
const MaxAdverts = 1024

// ErrPeer is wrapped by all errors about what the other side said.
var ErrPeer = errors.New("stream: the peer broke the protocol")

// Sender is the sending end of a direction. The zero value is not usable; see NewSender.
type Sender struct {
	policy  Policy
	seq     uint64 // of the next byte to be sent
	phase   uint32
	ring    uint64 // bytes of the peer's ring
	credit  uint64 // bytes of it that are free
	at      uint64 // where in the ring the next byte goes
	adverts []Advert
	sends   []uint64 // bytes left of each, in order
	unsent  uint64   // their sum
	closed  bool     // nothing is queued any more
	ended   bool     // Fin has told the position of the end

	break_ fault // for tests of the model checker: a rule that is left out
}

// fault is a rule that a broken engine lacks. The checker has to find what comes of it.
type fault uint8

const (
	sound         fault = iota
	anyPhase            // adverts of finished phases are used
	anySeq              // an exact advert opens a phase at whatever position
	estimateOpens       // an advert that is not exact opens a phase
	answersLate         // a withdrawal is answered past the data that is on its way
)

// NewSender returns the sending end towards a ring of so many bytes.
func NewSender(ring uint64, p Policy) *Sender {
	return &Sender{policy: p, ring: ring, credit: ring}
}

// Post queues n bytes, n > 0.
func (s *Sender) Post(n uint64) {
	s.sends = append(s.sends, n)
	s.unsent += n
}

// Grow adds n bytes to the send that was queued last, of which some must be unsent still.
func (s *Sender) Grow(n uint64) {
	s.sends[len(s.sends)-1] += n
	s.unsent += n
}

// Close ends the stream after what is queued. Nothing may be posted after it.
func (s *Sender) Close() { s.closed = true }

// Fin returns the position of the stream's end once all of it has been sent. ok is true once, and the message is due then.
func (s *Sender) Fin() (seq uint64, ok bool) {
	if !s.closed || s.ended || len(s.sends) > 0 {
		return 0, false
	}
	s.ended = true
	return s.seq, true
}

// Withdraw takes the receiver's wish to have its receives back: no data goes to any that it has advertised so far. The answer,
// which Receiver.Withdrawn takes, has to follow all Writes that Next has returned before.
func (s *Sender) Withdraw() { s.adverts = nil }

// Trim takes back the last n queued bytes that have not been sent, or all of them if they are fewer. It returns how many.
func (s *Sender) Trim(n uint64) uint64 {
	n = min(n, s.unsent)
	s.unsent -= n
	for left := n; left > 0; {
		last := &s.sends[len(s.sends)-1]
		k := min(left, *last)
		if *last -= k; *last == 0 {
			s.sends = s.sends[:len(s.sends)-1]
		}
		left -= k
	}
	return n
}

// Unsent returns how many queued bytes have not been sent.
func (s *Sender) Unsent() uint64 { return s.unsent }

// Seq returns the position in the stream of the next byte that is sent.
func (s *Sender) Seq() uint64 { return s.seq }

// Advert takes an advert of the receiver's.
func (s *Sender) Advert(a Advert) error {
	switch {
	case a.Phase%2 != 0:
		return fmt.Errorf("%w: an advert for phase %d, which is indirect", ErrPeer, a.Phase)
	case a.Phase > s.phase+1:
		return fmt.Errorf("%w: an advert for phase %d in phase %d", ErrPeer, a.Phase, s.phase)
	case a.Len == 0 || a.Off+a.Len < a.Off || a.Seq+a.Len < a.Seq:
		return fmt.Errorf("%w: an advert of %d bytes at %d", ErrPeer, a.Len, a.Seq)
	case a.Exact && a.Seq > s.seq:
		return fmt.Errorf("%w: an exact advert at byte %d, of which %d are sent", ErrPeer, a.Seq, s.seq)
	case len(s.adverts) >= MaxAdverts:
		return fmt.Errorf("%w: more than %d adverts", ErrPeer, MaxAdverts)
	}
	s.adverts = append(s.adverts, a)
	return nil
}

// Ack takes back n bytes of the ring, which the receiver has copied.
func (s *Sender) Ack(n uint64) error {
	if n > s.ring-s.credit {
		return fmt.Errorf("%w: %d bytes of the ring are given back, and %d are in use", ErrPeer, n, s.ring-s.credit)
	}
	s.credit += n
	return nil
}

// Next returns the next Write, of one queued send. There is none (ok is false) until something is posted, or an advert
// or an acknowledgement arrives.
func (s *Sender) Next() (w Write, ok bool) {
	if len(s.sends) == 0 {
		return w, false
	}
	s.discard()
	switch {
	case len(s.adverts) > 0 && s.policy != Indirect:
		w = s.direct(&s.adverts[0])
	case s.credit > 0 && s.policy != Direct:
		w = s.indirect()
	default:
		return w, false
	}
	n := w.Data.Len
	s.seq += n
	s.unsent -= n
	if s.sends[0] -= n; s.sends[0] == 0 {
		s.sends = s.sends[1:]
	}
	return w, true
}

func (s *Sender) direct(a *Advert) Write {
	s.phase = a.Phase
	w := Write{
		Data: Data{Direct: true, Phase: a.Phase, Seq: s.seq, Len: min(s.sends[0], a.Len), ID: a.ID},
		To:   a.Off, Mem: a.Mem,
	}
	a.Off, a.Len = a.Off+w.Data.Len, a.Len-w.Data.Len
	if a.Len == 0 || !a.WaitAll { // any data consumes a receive that does not wait for all
		s.adverts = s.adverts[1:]
	}
	return w
}

func (s *Sender) indirect() Write {
	if s.phase%2 == 0 {
		s.phase++
	}
	w := Write{Data: Data{Phase: s.phase, Seq: s.seq, Len: min(s.sends[0], s.credit, s.ring-s.at)}, To: s.at}
	s.credit -= w.Data.Len
	if s.at += w.Data.Len; s.at == s.ring {
		s.at = 0
	}
	return w
}

// discard drops the adverts at the head that can not be used any more.
func (s *Sender) discard() {
	for len(s.adverts) > 0 && !s.usable(&s.adverts[0]) {
		s.adverts = s.adverts[1:]
	}
}

// usable reports whether data may go where a says: in a phase that has begun, or as the opener of the next one.
func (s *Sender) usable(a *Advert) bool {
	switch {
	case a.Phase < s.phase:
		return s.break_ == anyPhase
	case s.phase%2 == 0: // the phase of now
		return true
	case s.break_ == anySeq:
		return a.Exact
	case s.break_ == estimateOpens:
		return a.Seq == s.seq
	}
	return a.Exact && a.Seq == s.seq
}

// Adverts returns how many adverts are kept: receives of the peer's that data may go to.
func (s *Sender) Adverts() int { return len(s.adverts) }
