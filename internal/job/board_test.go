package job

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

var board = Board{Seq: 4, Uptime: 5000, Load: load, Pressure: Pressure{CPU: 1250, Memory: 0, IO: NoPressure},
	Speeds: []Speed{{Toolchain: sixteen, Rate: 4096}}}

func TestGoldenBoard(t *testing.T) {
	want := unhex(t, "0400000000000000 8813000000000000"+loadHex+"e204 0000 ffff 01"+sixteenHex+"00100000"+
		strings.Repeat("00", BoardLen-16-64)+"ebce5ae880df8293 0400000000000000")
	if got := board.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("Append:\n got %x\nwant %x", got, want)
	}
	if got, err := ParseBoard(want); err != nil || !reflect.DeepEqual(*got, board) {
		t.Errorf("ParseBoard = %+v, %v; want %+v", got, err, board)
	}
	full := board
	full.Speeds = make([]Speed, maxSpeeds+1)
	if b := full.Append(nil); len(b) != BoardLen {
		t.Errorf("a full board has %d bytes, want %d", len(b), BoardLen)
	}
}

// A reader that got the first part of one state and the rest of another, wherever
// the cut is, knows it.
func TestTornBoard(t *testing.T) {
	a := board.Append(nil)
	next := board
	next.Seq, next.Load.Running, next.Uptime = 5, 2, 5001
	b := next.Append(nil)
	for cut := range BoardLen {
		mixed := append(append([]byte(nil), a[:cut]...), b[cut:]...)
		got, err := ParseBoard(mixed)
		if bytes.Equal(mixed, a) || bytes.Equal(mixed, b) {
			continue
		}
		if !errors.Is(err, ErrTorn) {
			t.Errorf("cut at %d: %+v, %v, want ErrTorn", cut, got, err)
		}
	}
}

func TestBoardRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   error
	}{
		{"short", func(b []byte) []byte { return b[:BoardLen-1] }, ErrMalformed},
		{"nothing there", func([]byte) []byte { return make([]byte, BoardLen) }, ErrTorn},
		{"too many speeds", func(b []byte) []byte { b[43] = maxSpeeds + 1; return sealed(b) }, ErrMalformed},
		{"bytes behind the end", func(b []byte) []byte { b[200] = 1; return sealed(b) }, ErrMalformed},
	} {
		if _, err := ParseBoard(c.change(board.Append(nil))); !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v, want %v", c.name, err, c.want)
		}
	}
}

// sealed puts the right checksum into b.
func sealed(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[BoardLen-16:], boardSum(b[:BoardLen-16]))
	return b
}

func FuzzParseBoard(f *testing.F) {
	f.Add(board.Append(nil)[:BoardLen-16], uint64(4))
	f.Fuzz(func(t *testing.T, p []byte, seq uint64) {
		b := make([]byte, BoardLen)
		copy(b[:BoardLen-16], p)
		binary.LittleEndian.PutUint64(b, seq)
		binary.LittleEndian.PutUint64(b[BoardLen-8:], seq)
		got, err := ParseBoard(sealed(b))
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if again := got.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%+v\nparsed from %x\nencodes as  %x", got, b, again)
		}
	})
}
