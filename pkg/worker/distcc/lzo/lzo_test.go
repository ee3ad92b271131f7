package lzo

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

const most = 1 << 24

// TestKnown holds streams whose instructions are written out by hand, one for each kind.
func TestKnown(t *testing.T) {
	long := strings.Repeat("0123456789", 30)
	for _, c := range []struct{ name, packed, want string }{
		{"nothing", "\x11\x00\x00", ""},
		{"few literals", "\x13ab\x11\x00\x00", "ab"},
		{"literals", "\x17abcdef\x11\x00\x00", "abcdef"},
		{"a long run of literals", "\x00\x00\x1b" + long[:18+255+27] + "\x11\x00\x00", long},
		{"a near copy", "\x15abcd\x6c\x00\x11\x00\x00", "abcdabcd"},
		{"a copy over itself, with a literal behind", "\x12a\xe1\x00b\x11\x00\x00", "aaaaaaaaab"},
		{"a copy of two bytes", "\x15abcd\x6d\x00e\x04\x00\x11\x00\x00", "abcdabcdede"},
		{"a longer copy", "\x15abcd\x20\x05\x0c\x00\x11\x00\x00", "abcd" + strings.Repeat("abcd", 10)[:38]},
	} {
		got, err := Unpack([]byte(c.packed), most)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 100000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	words := strings.Fields("int struct return { } ; ( ) template <class T> std::vector const & # 1 \"/usr/include/stdio.h\"")
	var source strings.Builder
	for source.Len() < 300000 {
		source.WriteString(words[r.IntN(len(words))] + " ")
	}
	for _, b := range [][]byte{nil, {1}, noise[:3], noise[:238], noise[:239], noise, make([]byte, 200000), []byte(source.String()), append(bytes.Clone(noise[:60000]), noise[:60000]...), append(bytes.Clone(noise[:20000]), noise[:20000]...)} {
		packed := Append([]byte("before"), b)
		got, err := Unpack(packed[6:], len(b))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %d, %v", len(b), len(got), err)
		}
		if _, err := Unpack(packed[6:], len(b)-1); len(b) > 0 && !errors.Is(err, ErrTooBig) {
			t.Errorf("%d bytes into %d: %v", len(b), len(b)-1, err)
		}
	}
	if n := len(Append(nil, []byte(source.String()))); n > source.Len()/2 {
		t.Errorf("a source of %d bytes is packed to %d", source.Len(), n)
	}
}

func TestCorrupt(t *testing.T) {
	good := Append(nil, []byte(strings.Repeat("corrupt in the middle ", 50)))
	for i := range good {
		if _, err := Unpack(good[:i], most); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	for _, s := range []string{string(good) + "x", "\x12a\x60\x01\x11\x00\x00", "\x40\x00\x11\x00\x00", "\x00" + strings.Repeat("\x00", 100), "\x10\x00\x00"} {
		if _, err := Unpack([]byte(s), most); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", s[:3], err)
		}
	}
	// A few bytes that stand for many must not take memory for them.
	bomb := append([]byte("\x12a\x20"), make([]byte, 1<<20)...)
	bomb = append(bomb, 1, 0, 0, 0x11, 0, 0)
	if _, err := Unpack(bomb, most); !errors.Is(err, ErrTooBig) {
		t.Errorf("many bytes from few: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x15abcd\x6c\x00\x11\x00\x00"))
	f.Add(Append(nil, []byte(strings.Repeat("int main(void) { return 0; }\n", 20))))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := Unpack(b, 1<<16)
		if err == nil {
			again, err := Unpack(Append(nil, out), len(out))
			if err != nil || !bytes.Equal(again, out) {
				t.Fatalf("%d bytes packed again: %v", len(out), err)
			}
		}
		if again, err := Unpack(Append(nil, b), len(b)); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("round trip of %d bytes: %v", len(b), err)
		}
	})
}
