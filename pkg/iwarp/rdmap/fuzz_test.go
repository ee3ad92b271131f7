package rdmap_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

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
	return all
}

// FuzzEngine: whatever octets follow start-up, nothing panics, nothing is written
// outside a window that the peer may write, nothing happens after an error, and an
// answer is well formed.
func FuzzEngine(f *testing.F) {
	for _, s := range streams(f) {
		f.Add(s, uint8(3))
	}
	v := vectors(f)
	f.Fuzz(func(t *testing.T, b []byte, receives uint8) {
		c := fixture(v)
		c.receives = int(receives % 8)
		r := rdmap.NewReceiver(c, false, false)
		err := feed(r, b)
		for stag, reg := range c.regions {
			n := len(reg.guard) - 64
			if !all(reg.guard[:64]) || !all(reg.guard[n:]) {
				t.Fatalf("written outside of region %08x", stag)
			}
			if (reg.foreign || !reg.write) && !all(reg.guard) {
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
		f.Add(s, []byte{0})
		f.Add(s, []byte{1, 9, 30})
	}
	v := vectors(f)
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		whole, pieces := fixture(v), fixture(v)
		whole.receives, pieces.receives = 5, 5
		wantErr := feed(rdmap.NewReceiver(whole, false, true), b)
		i := 0
		gotErr := feedPieces(rdmap.NewReceiver(pieces, false, true), b, func() int {
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
