package wire

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// frame is what Append made of one field of each kind.
var frame = "\x01" + "\x04\x03\x02\x01" + "\x08\x07\x06\x05\x04\x03\x02\x01" + "\x02\x00\x00\x00ab" + "\x02\x00\x00\x00\x01\x00\x00\x00x\x00\x00\x00\x00"

func TestAppend(t *testing.T) {
	b := AppendUint64(AppendUint32(AppendBool(nil, true), 0x01020304), 0x0102030405060708)
	b = AppendStrings(AppendString(b, "ab"), []string{"x", ""})
	if string(b) != frame {
		t.Errorf("%q, want %q", b, frame)
	}
	if b := AppendBool(nil, false); !bytes.Equal(b, []byte{0}) {
		t.Errorf("false is %v", b)
	}
}

func testReader[B string | []byte](t *testing.T) {
	r := Reader[B]{Rest: B(frame)}
	yes, n, m, s, list := r.Bool(), r.Uint32(), r.Uint64(), r.Text(), r.Texts()
	if fault := r.End(); !yes || n != 0x01020304 || m != 0x0102030405060708 || s != "ab" || !slices.Equal(list, []string{"x", ""}) || fault != "" {
		t.Errorf("%v %#x %#x %q %q, %q", yes, n, m, s, list, fault)
	}
	r = Reader[B]{Rest: B("\x34\x12\xff")}
	if n, m := r.Uint16(), r.Uint8(); n != 0x1234 || m != 0xff || r.End() != "" {
		t.Errorf("%#x %#x", n, m)
	}
	for text, read := range map[string]func(r *Reader[B]){
		"cut short":              func(r *Reader[B]) { r.Uint32() },
		"neither":                func(r *Reader[B]) { r.Bool() },
		"bytes behind the end":   func(r *Reader[B]) { r.Uint8() },
		"list past the end":      func(r *Reader[B]) { r.Rest = B("\xff\xff\xff\xff\x00\x00\x00\x00"); r.Texts() },
		"cut short ":             func(r *Reader[B]) { r.Rest = B("\x05\x00\x00\x00abcd"); r.Text() },
		"first":                  func(r *Reader[B]) { r.Fail("first"); r.Fail("second") },
		"list past the end of 3": func(r *Reader[B]) { r.Rest = B("\x02\x00\x00\x00abc"); r.Count(2) },
	} {
		r := Reader[B]{Rest: B("\x02\x00")}
		read(&r)
		want, _, _ := strings.Cut(strings.TrimSpace(text), " of ")
		if fault := r.End(); !strings.HasPrefix(fault, want) {
			t.Errorf("%s: the fault is %q", text, fault)
		}
		if r.Uint64() != 0 || r.Uint8() != 0 || r.Text() != "" || r.Texts() != nil || r.Bool() || len(r.Take(0)) != 0 {
			t.Errorf("%s: it goes on", text)
		}
	}
}

func TestReader(t *testing.T) {
	t.Run("string", testReader[string])
	t.Run("bytes", testReader[[]byte])
}

// FuzzReader: no input makes it panic or take more than there is, and both kinds agree.
func FuzzReader(f *testing.F) {
	f.Add([]byte(frame))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, s := Reader[[]byte]{Rest: b}, Reader[string]{Rest: string(b)}
		for len(r.Rest) > 0 {
			switch r.Rest[0] % 4 {
			case 0:
				r.Texts()
				s.Texts()
			case 1:
				if x, y := r.Text(), s.Text(); x != y {
					t.Fatalf("%q and %q", x, y)
				}
			case 2:
				if x, y := r.Uint64(), s.Uint64(); x != y {
					t.Fatalf("%d and %d", x, y)
				}
			case 3:
				r.Bool()
				s.Bool()
			}
		}
		if r.End() != s.End() {
			t.Fatalf("%q and %q", r.Fault, s.Fault)
		}
	})
}
