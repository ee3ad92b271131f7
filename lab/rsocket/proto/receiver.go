package proto

import "fmt"

// Receiver is the book of the direction that this side receives in: which part of its buffer has
// what, and what the peer was granted. It is not safe for concurrent use.
//
// The buffer is a ring of two halves. Each byte of it is published (the peer may write it), then
// unread, then free, and is published again with its half:
//
//	published + unread + free = size
type Receiver struct {
	key       uint32 // of the buffer
	base      uint64
	half      uint32
	read      uint32 // offset of the next byte to read
	published uint32 // bytes
	unread    uint32 // bytes
	free      uint32 // bytes
	nextHalf  uint32 // 0 or 1: the one to be published next

	peer    ConnData
	entry   uint32 // of the peer's table: the one to be written next
	credits uint16

	lengths []uint32 // ring of credits places: what is left of each unread message
	head    uint64   // messages that were read to their ends
	tail    uint64   // messages that have arrived
	granted uint64   // messages that the peer may send in all
	renew   uint64   // when so many are read, grant again
}

// NewReceiver returns the book of a receiver that has told its peer own, about a buffer of twice
// own.Buffer, and been told peer.
func NewReceiver(own, peer *ConnData) *Receiver {
	return &Receiver{
		key: own.Buffer.Key, base: own.Buffer.Addr, half: own.Buffer.Length,
		published: own.Buffer.Length, free: own.Buffer.Length, nextHalf: 1,
		peer: *peer, entry: 1,
		credits: own.Credits, granted: uint64(own.Credits), renew: uint64(own.Credits / 2),
		lengths: make([]uint32, own.Credits),
	}
}

// Data processes a data message of n bytes.
func (r *Receiver) Data(n uint32) error {
	if r.tail == r.granted {
		return fmt.Errorf("%w: data message %d without a credit", ErrProtocol, r.tail+1)
	}
	if n == 0 || n > r.published {
		return fmt.Errorf("%w: %d bytes of data, with room for %d", ErrProtocol, n, r.published)
	}
	r.published -= n
	r.unread += n
	r.lengths[r.tail%uint64(len(r.lengths))] = n
	r.tail++
	return nil
}

// Unread returns where the next bytes to read are in the buffer: n of them from at on, as many as
// are in one piece.
func (r *Receiver) Unread() (at, n uint32) {
	return r.read, min(r.unread, 2*r.half-r.read)
}

// Read records that the program has taken n bytes, at most what Unread has returned.
func (r *Receiver) Read(n uint32) {
	r.read = (r.read + n) % (2 * r.half)
	r.unread -= n
	r.free += n
	for n > 0 {
		left := &r.lengths[r.head%uint64(len(r.lengths))]
		if n < *left {
			*left -= n
			return
		}
		n -= *left
		r.head++
	}
}

// Due reports whether the peer should be granted something.
func (r *Receiver) Due() bool { return r.free >= r.half || r.head >= r.renew }

// Grant is what to send when something is due: Entry, if Publish is set, to At in the peer's
// memory, and then Message.
type Grant struct {
	Message Message
	Publish bool
	Entry   SGE // in the peer's byte order
	At      SGE // SGESize bytes
}

// Grant returns the next grant, which must be sent. Call it only if one is due.
func (r *Receiver) Grant() Grant {
	r.granted = r.head + uint64(r.credits)
	r.renew = r.head + uint64(max(r.credits/2, 1))
	g := Grant{Message: Message{OpCredit, uint32(uint16(r.granted))}}
	if r.free < r.half {
		return g
	}
	g.Publish = true
	g.Entry = SGE{r.base + uint64(r.nextHalf)*uint64(r.half), r.key, r.half}
	g.At = SGE{r.peer.Table.Addr + uint64(r.entry)*SGESize, r.peer.Table.Key, SGESize}
	r.free -= r.half
	r.published += r.half
	r.nextHalf ^= 1
	r.entry = (r.entry + 1) % r.peer.Table.Length
	return g
}

// MapAt returns where map i is in the peer's memory, or false if its table has no such map.
func (r *Receiver) MapAt(i int) (SGE, bool) {
	if i < 0 || i >= r.peer.IOMaps {
		return SGE{}, false
	}
	at := r.peer.Table.Addr + uint64(r.peer.Table.Length)*SGESize + uint64(i)*IOMapSize
	return SGE{at, r.peer.Table.Key, IOMapSize}, true
}
