package proto

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages as librdmacm sends them on a little-endian machine, and as it would on the other kind.
func TestGoldenMessages(t *testing.T) {
	for _, g := range []struct {
		m           Message
		little, big string
	}{
		{Message{OpData, 16}, "10000000", "00000010"},
		{Message{OpData, MaxArg}, "ffffff1f", "1fffffff"},
		{Message{OpCredit, 0x10192}, "92010180", "80010192"}, // it does not drop the carry
		{Message{OpIOMap, 0}, "000000c0", "c0000000"},
		{Message{OpControl, Disconnect}, "000000e0", "e0000000"},
		{Message{OpControl, KeepAlive}, "010000e0", "e0000001"},
		{Message{OpControl, Shutdown}, "020000e0", "e0000002"},
	} {
		for want, order := range map[string]Order{g.little: binary.LittleEndian, g.big: binary.BigEndian} {
			if got := hex.EncodeToString(g.m.Append(nil, order)); got != want {
				t.Errorf("%v in %v: got %s, want %s", g.m, order, got, want)
			}
			if m, err := ParseMessage(unhex(t, want), order); m != g.m || err != nil {
				t.Errorf("%s in %v: got %v, %v", want, order, m, err)
			}
		}
	}
	for _, bad := range []string{"", "000000", "0000000000", "00000020", "00000040", "00000060", "000000a0", "030000e0"} {
		if m, err := ParseMessage(unhex(t, bad), binary.LittleEndian); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: got %v, %v", bad, m, err)
		}
	}
}

func TestGoldenConnData(t *testing.T) {
	for s, want := range map[string]ConnData{
		// riostream's, from testdata.
		"0102018000000001000055a6fac1600095286b000000000200007fe6cae5600050802a0000080000": {
			Credits: 384, IOMaps: 1, Table: SGE{0x55a6fac16000, 0x95286b00, 2}, Buffer: SGE{0x7fe6cae56000, 0x50802a00, 0x80000},
		},
		"0103ffff00000083000000000000000000000001000000020000000000000001000000020000000300000000": {
			BigEndian: true, Credits: 0xffff, IOMaps: 768, Table: SGE{0, 1, 2}, Buffer: SGE{1, 2, 3},
		},
	} {
		b := unhex(t, s)
		got, err := ParseConnData(b)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", s, got, err)
		}
		if back := got.Append(nil); !bytes.Equal(back, b[:ConnDataSize]) {
			t.Errorf("got %x, want %s", back, s)
		}
	}
	// Without the flag there are no maps, whatever the number says.
	if d, err := ParseConnData(unhex(t, "0100018000000001000055a6fac1600095286b000000000200007fe6cae5600050802a0000080000")); d.IOMaps != 0 || err != nil {
		t.Errorf("got %+v, %v", d, err)
	}
	for name, s := range map[string]string{
		"nothing":      "",
		"short":        "0102018000000001000055a6fac1600095286b000000000200007fe6cae5600050802a00000800",
		"version":      "0202018000000001000055a6fac1600095286b000000000200007fe6cae5600050802a0000080000",
		"no credits":   "0102000000000001000055a6fac1600095286b000000000200007fe6cae5600050802a0000080000",
		"small table":  "0102018000000001000055a6fac1600095286b000000000100007fe6cae5600050802a0000080000",
		"table wraps":  "0102018000000001ffffffffffffffe095286b000000000200007fe6cae5600050802a0000080000",
		"no buffer":    "0102018000000001000055a6fac1600095286b000000000200007fe6cae5600050802a0000000000",
		"buffer wraps": "0102018000000001000055a6fac1600095286b0000000002fffffffffffff00050802a0000080000",
	} {
		if d, err := ParseConnData(unhex(t, s)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
	}
}

func TestScale(t *testing.T) {
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 128: 128, 129: 256, 256: 256, 257: 512, 32512: 32512, 1 << 20: 32512} {
		got := ScaleIOMaps(n)
		if got != want {
			t.Errorf("%d: got %d, want %d", n, got, want)
		}
		if back := unscale(scale(got)); back != got {
			t.Errorf("%d arrives as %d", got, back)
		}
	}
}

// replay holds the books of one side of a captured conversation against what that side did.
type replay struct {
	t         *testing.T
	own, peer ConnData
	table     []byte
	in        *Receiver
	out       *Sender
	write     SGE    // of our last RDMA Write
	payload   []byte // its bytes
	data      int    // bytes of data in messages of ours
}

// The conversations of two librdmacms on Linux's siw, over its loopback device: rstream -B 1024 -S
// 300 -C 8 -I 2, and riostream -S 64 -C 2 -I 2, both with -T v. In each role, our books give out the
// same addresses, messages and grants at the same points.
func TestCaptures(t *testing.T) {
	for _, name := range []string{"rstream", "riostream"} {
		for _, initiator := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "/initiator", false: "/responder"}[initiator], func(t *testing.T) {
				convs, err := iwarptest.ReadFrames("testdata/" + name + ".frames")
				if err != nil || len(convs) != 1 {
					t.Fatalf("%d conversations, %v", len(convs), err)
				}
				r := &replay{t: t}
				for _, f := range convs[0].Frames {
					r.frame(f, f.FromInitiator == initiator)
				}
				if r.in == nil || name == "rstream" && r.data < 4800 {
					t.Errorf("%d bytes of data", r.data)
				}
			})
		}
	}
}

// Where things stand in frames: a start-up frame's private data, behind the depths; an FPDU's
// length, a Write's STag, TO and payload, and a Send's payload.
const (
	startPrivate = 24
	fpduControl  = 2
	writeSTag    = 4
	writeTO      = 8
	writePayload = 16
	sendPayload  = 20
)

func (r *replay) frame(f iwarptest.Frame, ours bool) {
	t, b := r.t, f.Bytes
	if f.Kind != "fpdu" {
		d, err := ParseConnData(b[startPrivate:])
		if err != nil {
			t.Fatal(err)
		}
		if ours {
			r.own = d
		} else {
			r.peer = d
		}
		if f.Kind == "rep" {
			r.table = make([]byte, TableSize(r.own.IOMaps))
			r.in, r.out = NewReceiver(&r.own, &r.peer), NewSender(&r.own, &r.peer, r.table)
		}
		return
	}
	end := fpduControl + int(binary.BigEndian.Uint16(b))
	if b[fpduControl]&0x80 != 0 { // tagged: an RDMA Write
		p := b[writePayload:end]
		at := SGE{binary.BigEndian.Uint64(b[writeTO:]), binary.BigEndian.Uint32(b[writeSTag:]), uint32(len(p))}
		if ours {
			r.write, r.payload = at, p
		} else if at.Key == r.own.Table.Key {
			copy(r.table[at.Addr-r.own.Table.Addr:], p)
		}
		return
	}
	m, err := ParseMessage(b[sendPayload:end], binary.LittleEndian)
	if err != nil {
		t.Fatal(err)
	}
	if ours {
		r.sent(m)
		r.write = SGE{}
		return
	}
	switch m.Op {
	case OpData:
		err = r.in.Data(m.Arg)
	case OpCredit:
		err = r.out.Credit(m.Arg)
	case OpIOMap:
		err = r.out.IOMap(m.Arg)
	}
	if err != nil {
		t.Fatalf("%+v: %v", m, err)
	}
}

// sent is called at a message of ours.
func (r *replay) sent(m Message) {
	t := r.t
	switch m.Op {
	case OpData:
		if to := r.out.Next(int(m.Arg)); to != r.write || r.out.Sent(m.Arg) != m {
			t.Fatalf("%d bytes of data at %+v, want %+v", m.Arg, to, r.write)
		}
		r.data += int(m.Arg)
	case OpCredit:
		done := uint16(m.Arg) - r.own.Credits // what the program had read by then
		for uint16(r.in.head) != done {
			r.in.Read(1)
		}
		if !r.in.Due() {
			t.Fatalf("%+v: nothing is due", m)
		}
		g := r.in.Grant()
		if g.Message.Arg != m.Arg&0xffff || g.Publish != (r.write.Length > 0) {
			t.Fatalf("grant %+v, want %+v with %+v", g, m, r.write)
		}
		if g.Publish && (g.At != r.write || !bytes.Equal(g.Entry.Append(nil, binary.LittleEndian), r.payload)) {
			t.Fatalf("grant %+v, want %x at %+v", g, r.payload, r.write)
		}
	case OpIOMap:
		if at, ok := r.in.MapAt(int(m.Arg)); !ok || at != r.write {
			t.Fatalf("map at %+v, want %+v", at, r.write)
		}
	}
}
