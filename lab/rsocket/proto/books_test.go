package proto

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// books are a sender and a receiver, and what is on its way between them, without a connection.
type books struct {
	own, peer ConnData // of the receiver, of the sender
	in        *Receiver
	out       *Sender
	table     []byte // the sender's
	buffer    []byte // the receiver's
	forth     []func() error
	back      []func() error
	put, got  byte // the next byte to be written, to be read
	unread    int  // bytes written and not read
}

const tableAt, bufferAt = 1000, 1 << 40

func newBooks(half uint32, credits uint16, big bool) *books {
	b := &books{
		own:    ConnData{BigEndian: big, Credits: credits, Table: SGE{1, 1, TableEntries}, Buffer: SGE{bufferAt, 2, half}},
		peer:   ConnData{BigEndian: !big, Credits: 1, Table: SGE{tableAt, 3, TableEntries}, Buffer: SGE{1, 1, 1}},
		table:  make([]byte, TableSize(0)),
		buffer: make([]byte, 2*half),
	}
	b.in, b.out = NewReceiver(&b.own, &b.peer), NewSender(&b.peer, &b.own, b.table)
	return b
}

// write lets the sender write at most n bytes, and returns how many it could.
func (b *books) write(n int) uint32 {
	to := b.out.Next(n)
	if to.Length == 0 {
		return 0
	}
	for i := range to.Length {
		b.buffer[to.Addr-bufferAt+uint64(i)] = b.put
		b.put++
	}
	b.unread += int(to.Length)
	m := b.out.Sent(to.Length)
	b.forth = append(b.forth, func() error { return b.in.Data(m.Arg) })
	return to.Length
}

// read lets the receiver read at most n bytes, and returns how many it could.
func (b *books) read(n int) (uint32, error) {
	at, length := b.in.Unread()
	length = min(length, uint32(n))
	for i := range length {
		if got := b.buffer[at+i]; got != b.got {
			return 0, fmt.Errorf("byte at %d is %d, want %d", at+i, got, b.got)
		}
		b.got++
	}
	b.unread -= int(length)
	b.in.Read(length)
	return length, b.in.check()
}

// grant sends one grant, if one is due.
func (b *books) grant() bool {
	if !b.in.Due() {
		return false
	}
	g := b.in.Grant()
	if g.Publish {
		b.back = append(b.back, func() error {
			copy(b.table[g.At.Addr-tableAt:][:SGESize], g.Entry.Append(nil, b.peer.Order()))
			return nil
		})
	}
	b.back = append(b.back, func() error { return b.out.Credit(g.Message.Arg) })
	return true
}

// deliver delivers the oldest of what is on its way.
func deliver(q *[]func() error) (bool, error) {
	if len(*q) == 0 {
		return false, nil
	}
	f := (*q)[0]
	*q = (*q)[1:]
	return true, f()
}

// check returns which invariant does not hold.
func (r *Receiver) check() error {
	if r.published+r.unread+r.free != 2*r.half || r.tail-r.head > uint64(r.credits) || r.granted-r.head > uint64(r.credits) {
		return fmt.Errorf("published %d + unread %d + free %d, half %d; %d messages unread, %d granted", r.published, r.unread, r.free, r.half, r.tail-r.head, r.granted-r.head)
	}
	return nil
}

// Whatever the order in which writes, reads, grants and deliveries happen, every byte arrives once
// and in order, nothing is overwritten, no credit is overdrawn, and nothing stands still.
func TestBooksRandom(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		half, credits := 1+r.Uint32N(200), 1+uint16(r.Uint32N(40))
		b := newBooks(half, credits, seed%2 == 0)
		step := func() (moved bool, err error) {
			switch r.IntN(5) {
			case 0:
				return b.write(1+r.IntN(int(half)*2)) > 0, nil
			case 1:
				n, err := b.read(1 + r.IntN(int(half)*2))
				return n > 0, err
			case 2:
				return b.grant(), nil
			case 3:
				return deliver(&b.forth)
			default:
				return deliver(&b.back)
			}
		}
		for idle, i := 0, 0; i < 20000; i++ {
			moved, err := step()
			if err != nil {
				t.Fatalf("seed %d, half %d, %d credits, step %d: %v", seed, half, credits, i, err)
			}
			if idle++; moved {
				idle = 0
			}
			if idle > 500 {
				t.Fatalf("seed %d, half %d, %d credits: all stands still at step %d, with %d bytes unread: %+v %+v", seed, half, credits, i, b.unread, b.in, b.out)
			}
		}
	}
}

// A sender that waits for a half does not look at the entry of the next one while it is written:
// here the bytes of the entry come one by one, and before the last one comes a message of credits.
func TestPlainCreditDoesNotLook(t *testing.T) {
	b := newBooks(64, 8, false)
	for range 2 { // grant and take the second half
		for b.grant() {
		}
		for ok := true; ok; ok, _ = deliver(&b.back) {
		}
	}
	for b.write(16) > 0 {
	}
	for ok := true; ok; ok, _ = deliver(&b.forth) {
	}
	if _, err := b.read(16 * 3); err != nil { // three messages, less than half of the buffer
		t.Fatal(err)
	}
	b.in.renew = b.in.head
	if !b.in.Due() {
		t.Fatal("nothing is due")
	}
	g := b.in.Grant()
	if g.Publish {
		t.Fatalf("%+v", g)
	}
	copy(b.table[b.out.next*SGESize:], SGE{bufferAt, 2, 0x40000000}.Append(nil, binary.BigEndian)[:13]) // torn
	targets := len(b.out.targets)
	if err := b.out.Credit(g.Message.Arg); err != nil || len(b.out.targets) != targets {
		t.Errorf("%d targets were %d, %v", len(b.out.targets), targets, err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte{0x92, 1, 1, 0x80})
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, order := range []Order{binary.LittleEndian, binary.BigEndian} {
			if m, err := ParseMessage(p, order); err == nil && string(m.Append(nil, order)) != string(p) {
				t.Errorf("%x parses as %v", p, m)
			}
		}
	})
}

func FuzzConnData(f *testing.F) {
	d := ConnData{Credits: 384, IOMaps: 1, Table: SGE{4096, 7, 2}, Buffer: SGE{8192, 9, 1 << 16}}
	f.Add(d.Append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		d, err := ParseConnData(p)
		if err != nil {
			return
		}
		if again, err := ParseConnData(d.Append(nil)); err != nil || again != d {
			t.Errorf("%+v comes back as %+v, %v", d, again, err)
		}
	})
}

// FuzzBooks lets a peer say anything at any time: it ends with an error, or the books stay in
// order and within their memory.
func FuzzBooks(f *testing.F) {
	f.Add(uint32(8), uint16(4), []byte{0, 8, 0, 0, 0, 1, 4, 2, 3, 0, 0, 0, 0x80})
	f.Fuzz(func(t *testing.T, half uint32, credits uint16, script []byte) {
		half, credits = 1+half%4096, max(credits%64, 1)
		own := ConnData{Credits: credits, IOMaps: 2, Table: SGE{tableAt, 3, TableEntries}, Buffer: SGE{bufferAt, 2, half}}
		peer := own
		table := make([]byte, TableSize(own.IOMaps))
		in, out := NewReceiver(&own, &peer), NewSender(&own, &peer, table)
		next := func(n int) []byte {
			p := make([]byte, n)
			script = script[copy(p, script):]
			return p
		}
		for len(script) > 0 {
			switch next(1)[0] % 5 {
			case 0: // a message
				m, err := ParseMessage(next(MessageSize), binary.LittleEndian)
				if err != nil {
					return
				}
				switch m.Op {
				case OpData:
					err = in.Data(m.Arg)
				case OpCredit:
					err = out.Credit(m.Arg)
				case OpIOMap:
					err = out.IOMap(m.Arg)
				}
				if err != nil {
					return
				}
			case 1: // a Write into our table
				at := int(next(1)[0]) % len(table)
				copy(table[at:], next(int(next(1)[0])%48))
			case 2: // our program reads
				at, n := in.Unread()
				if at+n > 2*half {
					t.Fatalf("%d unread at %d of %d", n, at, 2*half)
				}
				in.Read(min(n, uint32(next(1)[0])))
			case 3: // and writes
				if to := out.Next(int(next(1)[0])); to.Length > 0 {
					if to.wraps() {
						t.Fatalf("%+v wraps", to)
					}
					out.Sent(to.Length)
				}
				if e, ok := out.Mapped(uint64(next(1)[0]), 10); ok && (e.wraps() || e.Length > 10) {
					t.Fatalf("%+v", e)
				}
			case 4:
				if in.Due() {
					in.Grant()
				}
			}
			if err := in.check(); err != nil {
				t.Fatal(err)
			}
			if len(out.targets) > TableEntries || len(out.filled) > TableEntries+1 {
				t.Fatalf("%d targets, %d filled", len(out.targets), len(out.filled))
			}
		}
	})
}
