package mpa_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// marked frames ULPDUs as one direction of a stream with markers does.
func marked(m *mpa.Marks, crc bool, ulpdus ...[]byte) []byte {
	b := mpa.NewBatch()
	b.Reset(crc)
	b.Mark(m)
	for _, u := range ulpdus {
		b.Add(u[:min(len(u), 14)], u[min(len(u), 14):])
	}
	return bytes.Join(b.Bufs(), nil)
}

// markedReader is a Reader that takes markers out.
func markedReader(crc bool) *mpa.Reader {
	r := mpa.NewReader(crc)
	r.ExpectMarkers()
	return r
}

// Every FPDU with markers stands in one of two directions of a stream; both are
// decoded and encoded octet for octet, each FPDU at its place. Among them is RFC
// 5044 figure 5.
// covers MPA-25, MPA-38, MPA-39, MPA-43 to MPA-47, INT-09
func TestGoldenMarkers(t *testing.T) {
	all := vectors(t)
	s := markerScenario(t, all)
	checked := 0
	for _, dir := range []string{"O", "I"} {
		var m mpa.Marks
		r := markedReader(true)
		at := 0
		for _, p := range s.Packets {
			v := all.Find(p.Vector)
			if p.Dir != dir || v.Kind != "fpdu" {
				continue
			}
			if int(v.StreamOffset) != at {
				t.Fatalf("%s stands at %d, want %d", v.Name, at, v.StreamOffset)
			}
			at += v.Length
			if len(v.Markers) > 0 {
				checked++
			}
			if got := marked(&m, true, v.ULPDU); !bytes.Equal(got, v.Hex) {
				t.Errorf("%s, encoded:\n got %x\nwant %x", v.Name, got, v.Hex)
			}
			got, err := feed(r, v.Hex)
			if err != nil || len(got) != 1 || !bytes.Equal(got[0], v.ULPDU) || r.Partial() {
				t.Errorf("%s, decoded: got %x, %v\nwant %x", v.Name, got, err, v.ULPDU)
			}
		}
	}
	if checked != 7 {
		t.Errorf("%d FPDUs with markers, want 7", checked)
	}
}

func markerScenario(t testing.TB, all *iwarptest.Vectors) *iwarptest.Scenario {
	t.Helper()
	for i := range all.Scenarios {
		if all.Scenarios[i].Name == "s5_rev1_markers" {
			return &all.Scenarios[i]
		}
	}
	t.Fatal("no scenario with markers")
	return nil
}

// TestMarkersFigure6: RFC 5044 figure 6, a second FPDU like the first one of figure 5, with a marker after
// the DDP header. Between the two there are 440 octets in the RFC as here.
func TestMarkersFigure6(t *testing.T) {
	fig6 := []byte{
		0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
		0x00, 0x00, 0x00, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x84, 0x92, 0x58, 0x98,
	}
	ulpdu := append(bytes.Clone(fig6[2:20]), make([]byte, 24)...)
	var m mpa.Marks
	fill := marked(&m, true, make([]byte, 42), make([]byte, 434))
	if len(fill) != 492 {
		t.Fatalf("%d octets before it", len(fill))
	}
	if got := marked(&m, true, ulpdu); !bytes.Equal(got, fig6) {
		t.Errorf("got %x\nwant %x", got, fig6)
	}
	r := markedReader(true)
	if got, err := feed(r, append(fill, fig6...)); err != nil || len(got) != 3 || !bytes.Equal(got[2], ulpdu) {
		t.Errorf("decoded %d ULPDUs, %v", len(got), err)
	}
}

// reseal gives the FPDU b a right CRC.
func reseal(b []byte) []byte {
	body := len(b) - mpa.CRCSize
	binary.LittleEndian.PutUint32(b[body:], mpa.CRC(0, b[:body]))
	return b
}

// TestMarkerChecks: what is checked of a marker, and when. covers MPA-48, MPA-49, MPA-51 and the order of
// checks: "only if the CRC is valid" (after RFC 5044 §8, error 3).
func TestMarkerChecks(t *testing.T) {
	ulpdu := bytes.Repeat([]byte{0x5a}, 1200) // markers lead, and stand at 512 and 1024
	for _, crc := range []bool{true, false} {
		for _, at := range []int{0, 512, 1024} {
			for bit := range 32 {
				b := marked(new(mpa.Marks), crc, ulpdu)
				b[at+bit/8] ^= 0x80 >> (bit % 8)
				if got, err := feed(markedReader(true), b); crc {
					if e := new(mpa.Error); !errors.As(err, &e) || e.Code != mpa.CodeCRC || len(got) > 0 {
						t.Errorf("bit %d of the marker at %d, wrong CRC: got %v, want code 2", bit, at, err)
					}
				}
				if crc {
					b = reseal(b)
				}
				got, err := feed(markedReader(crc), b)
				if bit < 16 || bit >= 30 { // reserved, or FPDUPTR's low bits
					if err != nil || len(got) != 1 || !bytes.Equal(got[0], ulpdu) {
						t.Errorf("bit %d of the marker at %d: got %v, want it ignored", bit, at, err)
					}
					continue
				}
				if e := new(mpa.Error); !errors.As(err, &e) || e.Code != mpa.CodeMarker || len(got) > 0 {
					t.Errorf("bit %d of the marker at %d: got %v, want code 3", bit, at, err)
				}
			}
		}
	}
}

// A Reader that expects no markers takes the leading one for an FPDU of length 0,
// and one that expects them finds none: either way the stream ends at once.
func TestMarkersMustBeAgreedOn(t *testing.T) {
	u := make([]byte, 42)
	if got, err := feed(mpa.NewReader(true), marked(new(mpa.Marks), true, u)); err == nil && len(got) > 0 && len(got[0]) == 42 {
		t.Error("markers were read without being expected")
	}
	b := mpa.NewBatch()
	b.Reset(true)
	b.Add(u)
	b.Add(u)
	if got, err := feed(markedReader(true), bytes.Join(b.Bufs(), nil)); err == nil && len(got) > 0 {
		t.Error("an unmarked FPDU was read as a marked one")
	}
}

// FuzzMarkers: FPDUs of any sizes, with markers, are what a plain description of
// RFC 5044 §4.3 says octet by octet, and come out again as they went in, in
// whatever pieces.
func FuzzMarkers(f *testing.F) {
	f.Add([]byte{0, 14, 1, 0xd9, 3, 200}, uint8(0), true)
	f.Add([]byte{1, 0xee, 1, 0xf0, 1, 0xf2, 0, 20, 252, 255}, uint8(3), false)
	f.Add([]byte{255, 255, 0, 0, 255, 255, 128, 18}, uint8(250), true)
	f.Fuzz(func(t *testing.T, sizes []byte, piece uint8, crc bool) {
		var m mpa.Marks
		var stream, want []byte
		var ulpdus [][]byte
		b := mpa.NewBatch()
		b.Reset(crc)
		b.Mark(&m)
		for i := 0; i+1 < len(sizes) && len(stream) < 1<<20; i += 2 {
			u := make([]byte, binary.BigEndian.Uint16(sizes[i:]))
			for k := range u {
				u[k] = byte(k*7 + i)
			}
			ulpdus = append(ulpdus, u)
			half := len(u) / 3
			if b.Full(3) {
				stream = append(stream, bytes.Join(b.Bufs(), nil)...)
				b.Reset(crc)
				b.Mark(&m)
				if b.Full(3) {
					t.Fatal("an empty batch is full")
				}
			}
			b.Add(u[:min(14, half)], u[min(14, half):half], u[half:])
			want = slowMarked(want, u, crc)
		}
		if stream = append(stream, bytes.Join(b.Bufs(), nil)...); !bytes.Equal(stream, want) {
			t.Fatalf("%d octets sent, %d expected, or others", len(stream), len(want))
		}
		got, err := feedPieces(markedReader(crc), stream, func() int { return 1 + int(piece)*int(piece) })
		if err != nil || len(got) != len(ulpdus) {
			t.Fatalf("%d ULPDUs came of %d, %v", len(got), len(ulpdus), err)
		}
		for i := range got {
			if !bytes.Equal(got[i], ulpdus[i]) {
				t.Fatalf("ULPDU %d of %d octets differs", i, len(ulpdus[i]))
			}
		}
	})
}

// slowMarked appends an FPDU to a whole marked stream, as RFC 5044 §4.3 describes
// it: four octets at a time.
func slowMarked(stream, u []byte, crc bool) []byte {
	from, start := len(stream), -1
	mark := func() {
		if len(stream)%512 == 0 {
			ptr := 0
			if start >= 0 {
				ptr = len(stream) - start
			}
			stream = append(stream, 0, 0, byte(ptr>>8), byte(ptr))
		}
	}
	body := append(binary.BigEndian.AppendUint16(nil, uint16(len(u))), u...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	for len(body) > 0 {
		mark()
		if start < 0 {
			start = len(stream)
		}
		stream = append(stream, body[:4]...)
		body = body[4:]
	}
	mark()
	sum := uint32(0)
	if crc {
		sum = mpa.CRC(0, stream[from:])
	}
	return binary.LittleEndian.AppendUint32(stream, sum)
}
