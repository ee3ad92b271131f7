package mpa_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

func FuzzParseFrame(f *testing.F) {
	v := vectors(f)
	for _, x := range v.Vectors {
		if x.Kind == "mpa" {
			f.Add([]byte(x.Hex))
		}
	}
	for _, x := range v.MPAReactions {
		f.Add([]byte(x.Hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, reply := range []bool{false, true} {
			fr, n, err := mpa.ParseFrame(b, reply)
			if err != nil {
				if n != 0 {
					t.Fatalf("length %d with %v", n, err)
				}
				continue
			}
			if n > len(b) || n > mpa.FrameSize+mpa.MaxPrivateData {
				t.Fatalf("length %d of %d octets", n, len(b))
			}
			if n == 0 {
				continue
			}
			// What was understood can be said again, and is understood the same.
			again, err := fr.Append(nil)
			if err != nil || len(again) != n {
				t.Fatalf("encoded again: %d octets, %v; was %d", len(again), err, n)
			}
			second, m, err := mpa.ParseFrame(again, reply)
			if err != nil || m != n || !bytes.Equal(second.Private, fr.Private) || second.Rev != fr.Rev || second.CRC != fr.CRC {
				t.Fatalf("got %+v, %v; want %+v", second, err, fr)
			}
		}
	})
}

// FuzzReader: any octets after start-up give ULPDUs that are in the stream where their length says, or an
// error, and never a panic.
func FuzzReader(f *testing.F) {
	for _, x := range vectors(f).Vectors {
		if x.Kind == "fpdu" {
			f.Add([]byte(x.Hex), x.CRC32C != nil)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, crc bool) {
		got, err := feed(mpa.NewReader(crc), b)
		rest := b
		for _, u := range got {
			size := mpa.FPDUSize(len(u))
			if size > len(rest) || int(binary.BigEndian.Uint16(rest)) != len(u) || !bytes.Equal(rest[2:2+len(u)], u) {
				t.Fatalf("ULPDU %x is not what stands in the stream", u)
			}
			if crc && mpa.CRC(0, rest[:size-4]) != binary.LittleEndian.Uint32(rest[size-4:]) {
				t.Fatal("an FPDU with a wrong CRC was passed on")
			}
			rest = rest[size:]
		}
		if err == nil && len(rest) >= mpa.LengthSize && mpa.FPDUSize(int(binary.BigEndian.Uint16(rest))) <= len(rest) {
			t.Fatal("a whole FPDU was not passed on")
		}
	})
}

// FuzzSplit: however a stream is cut into pieces, the same ULPDUs come out, and
// the same error.
func FuzzSplit(f *testing.F) {
	v := vectors(f)
	for _, s := range v.Scenarios {
		var stream []byte
		for _, p := range s.Packets {
			if x := v.Find(p.Vector); p.Dir == "O" && x.Kind == "fpdu" {
				stream = append(stream, x.Hex...)
			}
		}
		f.Add(stream, []byte{1}, uint16(1))
		f.Add(stream, []byte{3, 200, 7}, uint16(40))
	}
	// FPDUs longer than a small scratch, then short ones in small pieces: the
	// reader gives its big scratch back while the last FPDU was a long one.
	b := mpa.NewBatch()
	b.Reset(true)
	b.Add(make([]byte, 5000))
	b.Add(make([]byte, 14))
	b.Add(make([]byte, 60000))
	long := bytes.Join(b.Bufs(), nil)
	f.Add(marked(new(mpa.Marks), true, make([]byte, 5000), make([]byte, 14), make([]byte, 60000), make([]byte, 477)), []byte{3, 22, 9}, uint16(1))
	f.Add(long, []byte{35}, uint16(2))
	f.Add(long, []byte{70, 2, 250}, uint16(2))
	f.Fuzz(func(t *testing.T, b, cuts []byte, repeat uint16) {
		// Long streams of FPDUs are what scratch buffers must be good at.
		stream := b
		for range repeat % 512 {
			if len(stream) > 1<<19 {
				break
			}
			stream = append(stream[:len(stream):len(stream)], b...)
		}
		for _, x := range []struct{ crc, markers bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
			reader := func() *mpa.Reader {
				if x.markers {
					return markedReader(x.crc)
				}
				return mpa.NewReader(x.crc)
			}
			want, wantErr := feed(reader(), stream)
			i := 0
			got, err := feedPieces(reader(), stream, func() int {
				if len(cuts) == 0 {
					return 1
				}
				i++
				n := int(cuts[i%len(cuts)])
				return 1 + n*n // up to 65026
			})
			if len(got) != len(want) || (err == nil) != (wantErr == nil) {
				t.Fatalf("%+v: in pieces %d ULPDUs and %v, whole %d and %v", x, len(got), err, len(want), wantErr)
			}
			for k := range want {
				if !bytes.Equal(got[k], want[k]) {
					t.Fatalf("%+v: ULPDU %d differs", x, k)
				}
			}
		}
	})
}
