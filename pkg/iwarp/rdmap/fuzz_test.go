package rdmap_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

func FuzzParseTerminate(f *testing.F) {
	for _, x := range vectors(f).Vectors {
		if x.Opcode == uint8(rdmap.OpTerminate) && x.Kind == "fpdu" {
			f.Add([]byte(x.ULPDU[ddp.UntaggedSize:]), true)
			f.Add([]byte(x.ULPDU[ddp.UntaggedSize:]), false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, setup bool) {
		term, err := rdmap.ParseTerminate(b, setup)
		if err != nil {
			return
		}
		_ = term.String()
		mirror := term.Code >= mpa.CodeEnhanced && term.Code <= mpa.CodeRTR // 2/0/05 is siw's 0/2/05 and the reverse
		if term.PeerLayout || mirror {
			return
		}
		// What was understood can be said again, and is understood the same.
		again, err := rdmap.ParseTerminate(term.Append(nil), setup)
		if err != nil || again.Layer != term.Layer || again.Type != term.Type || again.Code != term.Code ||
			!bytes.Equal(again.DDP, term.DDP) || !bytes.Equal(again.ReadRequest, term.ReadRequest) {
			t.Fatalf("got %+v, %v; want %+v", again, err, term)
		}
	})
}

// streams are seeds: every scenario's two directions and every reaction, without
// CRCs, so that a changed octet is not caught before the engine sees it.
func streams(f *testing.F) [][]byte {
	v := vectors(f)
	var all [][]byte
	for _, s := range v.Scenarios {
		for _, dir := range []string{"O", "I"} {
			var b []byte
			for _, p := range s.Packets {
				if x := v.Find(p.Vector); p.Dir == dir && x.Kind == "fpdu" && len(x.Markers) == 0 {
					b = append(b, x.Hex...)
				}
			}
			all = append(all, b)
		}
	}
	for _, r := range v.Reactions {
		all = append(all, []byte(r.Hex))
	}
	// Answers to what fuzzFixture has outstanding, right ones and wrong ones.
	head := func(h ddp.Untagged, op rdmap.Opcode, payload []byte) []byte {
		b := make([]byte, ddp.UntaggedSize)
		h.Last, h.ULP = true, 0x40|byte(op)
		h.Put(b)
		return append(b, payload...)
	}
	response := func(stag ddp.STag, to uint64, n int, last bool) []byte {
		b := make([]byte, ddp.TaggedSize, ddp.TaggedSize+n)
		(&ddp.Tagged{Last: last, ULP: 0x40 | byte(rdmap.OpReadResponse), STag: stag, TO: to}).Put(b)
		return append(b, bytes.Repeat([]byte{0xee}, n)...)
	}
	atomic := func(msn, id uint32) []byte {
		var p [rdmap.AtomicResponseSize]byte
		(&rdmap.AtomicResponse{ID: id, Old: 42}).Put(p[:])
		return head(ddp.Untagged{QN: rdmap.QNAtomicResponse, MSN: msn}, rdmap.OpAtomicResponse, p[:])
	}
	imm := head(ddp.Untagged{MSN: 1}, rdmap.OpImmediate, make([]byte, rdmap.ImmediateSize))
	for _, segs := range [][][]byte{
		{response(0x5d, 8, 40, false), response(0x5d, 48, 24, true), atomic(1, 7), response(0x5e, 0, 0, true), atomic(2, 8), imm},
		{response(0x5d, 8, 64, true), response(0x5e, 0, 0, true)},
		{response(0x5d, 8, 65, true)}, {response(0x5d, 8, 63, true)}, {response(0x5d, 9, 64, true)}, {response(0x5e, 8, 64, true)},
		{response(0x5d, 8, 64, true), atomic(1, 8)}, {atomic(1, 7)}, {imm, imm},
	} {
		b := mpa.NewBatch()
		b.Reset(false)
		for _, x := range segs {
			b.Add(x)
		}
		all = append(all, bytes.Join(b.Bufs(), nil))
	}
	return all
}

// fuzzFixture is the fixture with requests of ours outstanding: how many of them,
// and whether RFC 7306 is on, is taken from mode.
func fuzzFixture(v *iwarptest.Vectors, mode uint8) (*consumer, *rdmap.Receiver) {
	c := fixture(v)
	c.receives = int(mode % 8)
	c.reads = []rdmap.Expected{
		{Op: rdmap.OpReadResponse, STag: 0x5d, TO: 8, Size: 64}, {Op: rdmap.OpAtomicResponse, ID: 7, Size: 8},
		{Op: rdmap.OpReadResponse, STag: 0x5e}, {Op: rdmap.OpAtomicResponse, ID: 8, Size: 8},
	}[:mode>>3%5]
	r := rdmap.NewReceiver(c, false, mode&0x40 != 0)
	r.Extensions = mode&0x80 != 0
	return c, r
}

// FuzzEngine: whatever octets follow start-up, nothing panics, nothing is written
// outside a window that the peer may write, nothing happens after an error, and an
// answer is well formed.
func FuzzEngine(f *testing.F) {
	for _, s := range streams(f) {
		f.Add(s, uint8(3))
		f.Add(s, uint8(0xa3)) // extensions, four requests outstanding
	}
	v := vectors(f)
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		c, r := fuzzFixture(v, mode)
		outstanding := len(c.reads)
		err := feed(r, b)
		if len(c.requests) > c.ird {
			t.Fatalf("%d requests are held, IRD is %d", len(c.requests), c.ird)
		}
		if done := c.count("response"); done+len(c.reads) != outstanding || c.count("refuse response") > 1 {
			t.Fatalf("%d of %d requests are answered, %d are left", done, outstanding, len(c.reads))
		}
		if r.Atomics+r.Imms > 0 && !r.Extensions {
			t.Fatal("a message of RFC 7306 was taken on a stream without it")
		}
		for stag, reg := range c.regions {
			n := len(reg.guard) - 64
			if !all(reg.guard[:64]) || !all(reg.guard[n:]) {
				t.Fatalf("written outside of region %08x", stag)
			}
			if (reg.foreign || !reg.write && !reg.atomic) && !all(reg.guard) {
				t.Fatalf("region %08x was written without the right to", stag)
			}
		}
		if err == nil {
			return
		}
		events := len(c.events)
		answer, ok := r.Answer(err)
		if r.Filled(0) == nil || len(c.events) != events {
			t.Fatal("the stream went on after its error")
		}
		var peer *rdmap.PeerTerminate
		if errors.As(err, &peer) && ok {
			t.Fatal("a Terminate is answered by a Terminate")
		}
		if !ok {
			return
		}
		got, perr := rdmap.ParseTerminate(answer.Append(nil), false)
		if perr != nil || got.PeerLayout || triple(&got) != triple(&answer) {
			t.Fatalf("the answer %+v is read as %+v, %v", answer, got, perr)
		}
	})
}

func all(b []byte) bool {
	return !slices.ContainsFunc(b, func(x byte) bool { return x != canary })
}

// FuzzSplit: however a stream is cut into pieces, the same things happen.
func FuzzSplit(f *testing.F) {
	for _, s := range streams(f) {
		f.Add(s, []byte{0}, uint8(0x45))
		f.Add(s, []byte{1, 9, 30}, uint8(0xe5))
	}
	v := vectors(f)
	f.Fuzz(func(t *testing.T, b, cuts []byte, mode uint8) {
		whole, r := fuzzFixture(v, mode)
		wantErr := feed(r, b)
		pieces, r := fuzzFixture(v, mode)
		i := 0
		gotErr := feedPieces(r, b, func() int {
			if len(cuts) == 0 {
				return 1
			}
			i++
			return 1 + int(cuts[i%len(cuts)])
		})
		if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
			t.Fatalf("in pieces %v, whole %v", gotErr, wantErr)
		}
		if !slices.Equal(whole.events, pieces.events) {
			t.Fatalf("in pieces\n%q\nwhole\n%q", pieces.events, whole.events)
		}
	})
}

// FuzzSender: whatever is sent arrives, for any segment size and any pieces.
func FuzzSender(f *testing.F) {
	f.Add([]byte("hello, world"), uint16(128), uint8(3), uint8(5), true)
	f.Add(bytes.Repeat([]byte{7}, 5000), uint16(200), uint8(0), uint8(1), false)
	f.Fuzz(func(t *testing.T, p []byte, mulpdu uint16, op, split uint8, crc bool) {
		ops := []rdmap.Opcode{rdmap.OpWrite, rdmap.OpSend, rdmap.OpSendInv, rdmap.OpSendSE, rdmap.OpSendSEInv}
		m := rdmap.Message{Op: ops[int(op)%len(ops)], STag: 0x1a2b3c00, TO: 1000}
		for rest := p; len(rest) > 0; {
			n := min(len(rest), 1+int(split)*40)
			m.Payload = append(m.Payload, rest[:n])
			rest = rest[n:]
			if len(m.Payload) == 4 { // what an SQ allows
				m.Payload[3] = append(m.Payload[3][:len(m.Payload[3]):len(m.Payload[3])], rest...)
				break
			}
		}
		c := &consumer{regions: make(map[ddp.STag]*region), receives: 1, room: uint64(len(p))}
		c.add(0x1a2b3c00, 1000, len(p)+1, false, true, true)
		s := rdmap.NewSender(max(mpa.MinMULPDU, int(mulpdu)))
		s.Start(m)
		r := rdmap.NewReceiver(c, crc, false)
		b := mpa.NewBatch()
		for done := false; !done; {
			b.Reset(crc)
			done = s.Cut(b)
			if b.FPDUs() == 0 {
				t.Fatal("an empty batch takes nothing")
			}
			for _, x := range b.Bufs() {
				if err := feed(r, x); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := c.regions[0x1a2b3c00].buf[:len(p)]
		if m.Op != rdmap.OpWrite {
			got = c.recv
		}
		if !bytes.Equal(got, p) || r.Sends+r.Writes != 1 || !r.Boundary() {
			t.Fatalf("%d octets in %d Sends and %d Writes arrived of %d", len(got), r.Sends, r.Writes, len(p))
		}
	})
}
