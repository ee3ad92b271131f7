package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// Messages are Sends of at most maxMessage bytes, little-endian. Each begins with its kind and with how many receives its
// sender has posted again since its last message.
const maxMessage = 64

type kind uint8

const (
	kindHello     kind = iota + 1 // the first one of either side
	kindDirect                    // exs.Data, after a Write into a receive
	kindIndirect                  // exs.Data, after a Write into the ring
	kindFin                       // the end of the stream
	kindWithdrawn                 // exs.Receiver.Withdrawn
	kindAdvert                    // exs.Advert
	kindAck                       // exs.Sender.Ack
	kindWithdraw                  // exs.Sender.Withdraw
	kindDeaf                      // the application reads no more
	kindCredits                   // nothing but receives that are posted again
)

// magic begins a Hello: four letters, and the version of what follows.
const magic = "EXS\x01"

// hello is what a side tells of itself.
type hello struct {
	Policy exs.Policy // of the bytes that it sends
	Depth  uint16     // receives that it has posted
	Ring   exs.Memory
	Size   uint64 // bytes of the ring
}

// message is one message of any kind. Only the fields of its kind are used.
type message struct {
	kind    kind
	credits uint16
	hello   hello
	data    exs.Data
	advert  exs.Advert
	n       uint64 // of kindAck: bytes; of kindFin: position of the end
}

const (
	flagExact   = 1
	flagWaitAll = 2
)

func (m *message) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, byte(m.kind), 0)
	b = le.AppendUint16(b, m.credits)
	memory := func(x exs.Memory) { b = le.AppendUint64(le.AppendUint32(b, x.STag), x.TO) }
	switch m.kind {
	case kindHello:
		b = append(b, magic...)
		b = append(b, byte(m.hello.Policy), 0)
		b = le.AppendUint16(b, m.hello.Depth)
		memory(m.hello.Ring)
		b = le.AppendUint64(b, m.hello.Size)
	case kindDirect, kindIndirect:
		b = le.AppendUint32(b, m.data.Phase)
		b = le.AppendUint64(b, m.data.Seq)
		b = le.AppendUint64(b, m.data.Len)
		b = le.AppendUint64(b, m.data.ID)
	case kindAdvert:
		a := &m.advert
		if a.Exact {
			b[1] |= flagExact
		}
		if a.WaitAll {
			b[1] |= flagWaitAll
		}
		b = le.AppendUint32(b, a.Phase)
		b = le.AppendUint64(b, a.Seq)
		b = le.AppendUint64(b, a.ID)
		b = le.AppendUint64(b, a.Off)
		b = le.AppendUint64(b, a.Len)
		memory(a.Mem)
	case kindFin, kindAck:
		b = le.AppendUint64(b, m.n)
	}
	return b
}

// bodies has the length of each kind without the first four bytes.
var bodies = [...]int{kindHello: 28, kindDirect: 28, kindIndirect: 28, kindFin: 8, kindWithdrawn: 0, kindAdvert: 48, kindAck: 8, kindWithdraw: 0, kindDeaf: 0, kindCredits: 0}

func parse(b []byte) (m message, err error) {
	if len(b) < 4 || b[0] == 0 || int(b[0]) >= len(bodies) || len(b)-4 != bodies[b[0]] {
		return m, fmt.Errorf("%w: a message of %d bytes that is of no kind", exs.ErrPeer, len(b))
	}
	le := binary.LittleEndian
	m = message{kind: kind(b[0]), credits: le.Uint16(b[2:])}
	flags, r := b[1], b[4:]
	u32 := func() (v uint32) { v, r = le.Uint32(r), r[4:]; return }
	u64 := func() (v uint64) { v, r = le.Uint64(r), r[8:]; return }
	memory := func() (x exs.Memory) { x.STag = u32(); x.TO = u64(); return }
	var known byte
	switch m.kind {
	case kindHello:
		if string(r[:4]) != magic || r[5] != 0 {
			return m, fmt.Errorf("%w: it speaks another protocol, or another version: % x", exs.ErrPeer, r[:6])
		}
		m.hello.Policy, m.hello.Depth = exs.Policy(r[4]), le.Uint16(r[6:])
		r = r[8:]
		m.hello.Ring, m.hello.Size = memory(), u64()
	case kindDirect, kindIndirect:
		m.data = exs.Data{Direct: m.kind == kindDirect, Phase: u32(), Seq: u64(), Len: u64(), ID: u64()}
	case kindAdvert:
		known = flagExact | flagWaitAll
		m.advert = exs.Advert{Exact: flags&flagExact != 0, WaitAll: flags&flagWaitAll != 0, Phase: u32(), Seq: u64(), ID: u64(), Off: u64(), Len: u64(), Mem: memory()}
	case kindFin, kindAck:
		m.n = u64()
	}
	if flags&^known != 0 {
		return m, fmt.Errorf("%w: a message with unknown flags %#x", exs.ErrPeer, flags)
	}
	return m, nil
}
