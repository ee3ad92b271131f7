package exs

import "fmt"

// Receiver is the receiving end of a direction. The zero value is not usable; see NewReceiver.
type Receiver struct {
	size     uint64 // bytes of the ring
	phase    uint32 // the direct phase that it advertises for
	seq      uint64 // of the next byte that goes to the application
	filled   uint64 // bytes in the ring
	at       uint64 // where in the ring the oldest of them is
	freed    uint64 // bytes of the ring that no acknowledgement has told of
	receives []receive
	open     int  // receives, from the first on, that are advertised
	back     int  // receives, from the first on, that are being taken back
	asked    bool // the sender has been asked to give receives back, and has not answered
	ended    bool // the sender has told where the stream ends, and all of it is here
}

type receive struct {
	id        uint64
	len, fill uint64
	waitAll   bool
}

// NewReceiver returns the receiving end with a ring of so many bytes.
func NewReceiver(ring uint64) *Receiver { return &Receiver{size: ring} }

// Post queues a receive of n bytes, n > 0, with an ID that no other one has. With waitAll it is completed when it is full, else
// by the first data.
func (r *Receiver) Post(id, n uint64, waitAll bool) {
	r.receives = append(r.receives, receive{id: id, len: n, waitAll: waitAll})
}

// Posted returns how many receives are posted.
func (r *Receiver) Posted() int { return len(r.receives) }

// Seq returns the position in the stream of the next byte that the application gets.
func (r *Receiver) Seq() uint64 { return r.seq }

// Completion is a receive that is completed, with so many bytes.
type Completion struct{ ID, Len uint64 }

// Data takes the message about a Write. done reports whether the receive c is completed by it.
func (r *Receiver) Data(d Data) (c Completion, done bool, err error) {
	end := r.seq + r.filled
	switch {
	case r.ended:
		return c, false, fmt.Errorf("%w: data behind the end of the stream", ErrPeer)
	case d.Len == 0 || d.Seq != end:
		return c, false, fmt.Errorf("%w: %d bytes at %d, and %d are there", ErrPeer, d.Len, d.Seq, end)
	case d.Direct != (d.Phase%2 == 0):
		return c, false, fmt.Errorf("%w: data of the wrong kind for phase %d", ErrPeer, d.Phase)
	case d.Direct:
		return r.direct(d)
	}
	return c, false, r.indirect(d)
}

func (r *Receiver) direct(d Data) (c Completion, done bool, err error) {
	if r.filled > 0 || d.Phase != r.phase || r.open == 0 || r.receives[0].id != d.ID {
		return c, false, fmt.Errorf("%w: data for receive %d in phase %d, which is not the one to be filled", ErrPeer, d.ID, d.Phase)
	}
	head := &r.receives[0]
	if d.Len > head.len-head.fill {
		return c, false, fmt.Errorf("%w: %d bytes for a receive with room for %d", ErrPeer, d.Len, head.len-head.fill)
	}
	r.seq += d.Len
	c, done = r.took(d.Len)
	return c, done, nil
}

func (r *Receiver) indirect(d Data) error {
	switch {
	case d.Phase != r.phase+1 && d.Phase != r.phase-1:
		return fmt.Errorf("%w: data of phase %d in phase %d", ErrPeer, d.Phase, r.phase)
	case d.Phase == r.phase-1 && r.phase == 0:
		return fmt.Errorf("%w: data of phase %d at the start", ErrPeer, d.Phase)
	case d.Len > r.size-r.filled-r.freed:
		return fmt.Errorf("%w: %d bytes for a ring with room for %d", ErrPeer, d.Len, r.size-r.filled-r.freed)
	}
	r.phase = d.Phase + 1
	r.open = 0 // the sender has discarded those adverts
	r.filled += d.Len
	return nil
}

// took notes n more bytes of the first receive.
func (r *Receiver) took(n uint64) (c Completion, done bool) {
	head := &r.receives[0]
	head.fill += n
	if head.fill < head.len && head.waitAll {
		return c, false
	}
	c = Completion{ID: head.id, Len: head.fill}
	r.pop()
	return c, true
}

// pop drops the first receive.
func (r *Receiver) pop() {
	r.receives = r.receives[1:]
	r.open, r.back = max(r.open-1, 0), max(r.back-1, 0)
}

// Copy is a copy from the ring into a receive.
type Copy struct {
	From uint64 // byte of the ring
	ID   uint64 // of the receive
	To   uint64 // byte of the receive's memory
	Len  uint64
}

// Copy returns the next copy that is due, as if it was carried out. done reports whether it completes the receive c.
// There is none (ok is false) while the ring is empty, or no receive is posted.
func (r *Receiver) Copy() (x Copy, c Completion, done, ok bool) {
	if r.filled == 0 || len(r.receives) == 0 {
		return x, c, false, false
	}
	head := &r.receives[0]
	x = Copy{From: r.at, ID: head.id, To: head.fill, Len: min(r.filled, head.len-head.fill, r.size-r.at)}
	if r.at += x.Len; r.at == r.size {
		r.at = 0
	}
	r.filled -= x.Len
	r.freed += x.Len
	r.seq += x.Len
	c, done = r.took(x.Len)
	return x, c, done, true
}

// Ack returns how many bytes of the ring the sender is to be told that it has again. They are few while there is
// more to copy, so that a message is worth it.
func (r *Receiver) Ack() (n uint64, ok bool) {
	if r.freed == 0 || r.filled > 0 && r.freed < r.size/4 {
		return 0, false
	}
	n, r.freed = r.freed, 0
	return n, true
}

// Advertise returns the next advert to be sent. There is none (ok is false) while there is something in the ring: it would come
// to nothing. Nor is there one while receives are taken back, or behind the end of the stream.
func (r *Receiver) Advertise() (a Advert, ok bool) {
	if r.filled > 0 || r.asked || r.back > 0 || r.ended || r.open >= min(len(r.receives), MaxAdverts) {
		return a, false
	}
	seq := r.seq
	for i := range r.open {
		seq += r.receives[i].len - r.receives[i].fill
	}
	x := &r.receives[r.open]
	a = Advert{Phase: r.phase, Seq: seq, Exact: r.open == 0, ID: x.id, Off: x.fill, Len: x.len - x.fill, WaitAll: x.waitAll}
	r.open++
	return a, true
}

// Withdraw begins to take back all receives that are posted. ask reports whether the sender has to be asked: they can be
// cancelled when it has answered, and otherwise at once. Nothing is advertised before all of them are gone.
func (r *Receiver) Withdraw() (ask bool) {
	r.back = len(r.receives)
	if r.open == 0 || r.asked {
		return false
	}
	r.asked = true
	return true
}

// Withdrawn takes the sender's answer: it will not write to what was advertised.
func (r *Receiver) Withdrawn() error {
	if !r.asked {
		return fmt.Errorf("%w: it gives back receives and was not asked to", ErrPeer)
	}
	r.asked, r.open = false, 0
	return nil
}

// Cancel completes the first receive with what it has got, if it is taken back and no data can be written to it any more, or
// if the stream has ended before it. ok is false if there is none.
func (r *Receiver) Cancel() (c Completion, ok bool) {
	if len(r.receives) == 0 || r.open > 0 || r.back == 0 && !r.EOF() {
		return c, false
	}
	c = Completion{ID: r.receives[0].id, Len: r.receives[0].fill}
	r.pop()
	return c, true
}

// Fin takes the message that the stream ends at seq. Cancel then completes the receives that nothing is left for, once
// Copy has emptied the ring.
func (r *Receiver) Fin(seq uint64) error {
	if end := r.seq + r.filled; r.ended || seq != end {
		return fmt.Errorf("%w: the stream ends at %d, and %d bytes are there", ErrPeer, seq, end)
	}
	r.ended, r.open = true, 0
	return nil
}

// EOF reports whether the stream has ended, and the application has all of it.
func (r *Receiver) EOF() bool { return r.ended && r.filled == 0 }

// Buffered returns how many bytes the ring holds.
func (r *Receiver) Buffered() uint64 { return r.filled }
