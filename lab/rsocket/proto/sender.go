package proto

import "fmt"

// Sender is the book of the direction that this side sends in: where the next bytes go, and how
// many messages may be sent. It is not safe for concurrent use.
type Sender struct {
	order   Order // of our table
	table   []byte
	credits uint16 // that the peer grants at most
	reserve uint16
	sent    uint16 // messages, modulo 1<<16
	last    uint16 // number of the last message that may be sent

	targets []SGE    // of the peer's buffer, at most TableEntries: taken from the table, not yet filled
	next    int      // entry of the table that the peer writes next
	owed    int      // entries that the peer must have written by now, or is about to write
	filled  []uint16 // numbers of the messages that filled a target whose data the peer has not read
	maps    []IOMap
}

// maxReserve is how many credits stay unused at most. A credit message needs one of the peer's
// receives but costs no credit, and on iWARP a Send without a receive ends the connection. As a
// peer grants at the latest when half of its credits are used up, a quarter can always be spared.
const maxReserve = 8

// NewSender returns the book of a sender whose peer has sent peer. table is its own memory, of
// TableEntries SGEs and then maps IOMaps, which it has told the peer of; own is what it told.
func NewSender(own, peer *ConnData, table []byte) *Sender {
	return &Sender{
		order: own.Order(), table: table, credits: peer.Credits, reserve: min(maxReserve, peer.Credits/4), last: peer.Credits,
		targets: append(make([]SGE, 0, TableEntries), peer.Buffer), next: 1, owed: 1,
		maps: make([]IOMap, own.IOMaps),
	}
}

// TableSize returns the length of a table in bytes with so many maps.
func TableSize(maps int) int { return TableEntries*SGESize + maps*IOMapSize }

// Credit processes a credit message, which may announce a new entry of the table.
//
// The message does not say so, and an entry that is not announced yet may be half written. But the
// peer publishes the second half of its buffer at once, and then a half whenever it has read one;
// and the message says how much it has read. So an entry is looked at only when it is owed, and one
// for each message. It is cleared, as a well-behaved peer does not write it again before the memory
// that it names is full.
func (s *Sender) Credit(arg uint32) error {
	last := uint16(arg)
	unread := s.sent - (last - s.credits) // of our messages
	if unread > s.sent-(s.last-s.credits) {
		return fmt.Errorf("%w: credit up to message %d, with %d sent and %d granted", ErrProtocol, last, s.sent, s.last)
	}
	s.last = last
	for len(s.filled) > 0 && s.sent-s.filled[0] >= unread {
		s.filled = append(s.filled[:0], s.filled[1:]...)
		s.owed++
	}
	if s.owed == 0 || len(s.targets) == TableEntries {
		return nil
	}
	entry := s.table[s.next*SGESize:][:SGESize]
	e := parseSGE(entry, s.order)
	if e.Length == 0 {
		return nil
	}
	if e.wraps() {
		return fmt.Errorf("%w: a receive buffer that wraps around: %#x and %d bytes", ErrProtocol, e.Addr, e.Length)
	}
	clear(entry)
	s.targets = append(s.targets, e)
	s.next = (s.next + 1) % TableEntries
	s.owed--
	return nil
}

// Next returns where up to n bytes of data can be written now. Its length is 0 if the peer has not
// granted any.
func (s *Sender) Next(n int) SGE {
	if len(s.targets) == 0 || !s.MayNotify() {
		return SGE{}
	}
	t := s.targets[0]
	t.Length = uint32(min(uint64(t.Length), uint64(max(n, 0)), MaxArg))
	return t
}

// MayNotify reports whether there is a credit for a message.
func (s *Sender) MayNotify() bool { return s.last-s.sent > s.reserve }

// Sent records that n bytes, at most what Next has returned, are written, and returns the message
// that must follow them.
func (s *Sender) Sent(n uint32) Message {
	t := &s.targets[0]
	t.Addr += uint64(n)
	t.Length -= n
	s.sent++
	if t.Length == 0 {
		s.targets = append(s.targets[:0], s.targets[1:]...)
		s.filled = append(s.filled, s.sent)
	}
	return Message{OpData, n}
}

// IOMap processes the message that map arg of our table was written.
func (s *Sender) IOMap(arg uint32) error {
	if int64(arg) >= int64(len(s.maps)) {
		return fmt.Errorf("%w: map %d of %d", ErrProtocol, arg, len(s.maps))
	}
	b := s.table[TableEntries*SGESize+int(arg)*IOMapSize:][:IOMapSize]
	m := IOMap{s.order.Uint64(b), parseSGE(b[8:], s.order)}
	if m.Mem.wraps() || m.Offset+uint64(m.Mem.Length) < m.Offset {
		return fmt.Errorf("%w: a map that wraps around: offset %#x, %#x and %d bytes", ErrProtocol, m.Offset, m.Mem.Addr, m.Mem.Length)
	}
	s.maps[arg] = m
	return nil
}

// Mapped returns where up to n bytes that the peer has mapped to offset are, or false if it has
// mapped none.
func (s *Sender) Mapped(offset uint64, n int) (SGE, bool) {
	for _, m := range s.maps {
		if e, ok := m.span(offset, n); ok {
			return e, true
		}
	}
	return SGE{}, false
}
