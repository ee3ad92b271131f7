package p9

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// bytesOf turns hexadecimal digits, with spaces between fields, into bytes.
func bytesOf(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages as the formats in Plan 9's manual and in the description of 9P2000.L have them.
var golden = []struct {
	name, hex string
	want      Request
}{
	{"version", "15000000 64 ffff 00000100 0800 3950323030302e4c", Request{Type: Tversion, Tag: NoTag, Msize: 65536, Version: "9P2000.L"}},
	{"attach", "1c000000 68 0000 01000000 ffffffff 0400 726f6f74 0100 2f 00000000", Request{Type: Tattach, FID: 1, AFID: NoFID, User: "root", Tree: "/"}},
	{"flush", "09000000 6c 0500 0400", Request{Type: Tflush, Tag: 5, OldTag: 4}},
	{"walk", "18000000 6e 0100 01000000 02000000 0200 0100 61 0200 6263", Request{Type: Twalk, Tag: 1, FID: 1, NewFID: 2, Names: []string{"a", "bc"}}},
	{"walk nowhere", "11000000 6e 0100 01000000 02000000 0000", Request{Type: Twalk, Tag: 1, FID: 1, NewFID: 2}},
	{"lopen", "0f000000 0c 0100 02000000 00800000", Request{Type: Tlopen, Tag: 1, FID: 2, Flags: 0o100000}},
	{"getattr", "13000000 18 0100 02000000 ff07000000000000", Request{Type: Tgetattr, Tag: 1, FID: 2, Mask: AllBasic}},
	{"read", "17000000 74 0100 02000000 0000000001000000 00100000", Request{Type: Tread, Tag: 1, FID: 2, Offset: 1 << 32, Count: 4096}},
	{"readdir", "17000000 28 0100 02000000 0300000000000000 00100000", Request{Type: Treaddir, Tag: 1, FID: 2, Offset: 3, Count: 4096}},
	{"xattrwalk", "15000000 1e 0100 02000000 03000000 0400 75736572", Request{Type: Txattrwalk, Tag: 1, FID: 2, NewFID: 3, Name: "user"}},
	{"clunk", "0b000000 78 0100 02000000", Request{Type: Tclunk, Tag: 1, FID: 2}},
	{"write", "18000000 76 0100 02000000 0000000000000000 01000000 78", Request{Type: Twrite, Tag: 1}}, // its body does not matter
	{"unknown", "07000000 ff 0100", Request{Type: 255, Tag: 1}},
}

func TestParse(t *testing.T) {
	for _, c := range golden {
		b := bytesOf(t, c.hex)
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestParseShort cuts each message short everywhere, and makes it longer: it is an error, and which one tells whether its tag
// can be answered.
func TestParseShort(t *testing.T) {
	for _, c := range golden {
		whole := bytesOf(t, c.hex)
		for n := range len(whole) {
			if _, err := Parse(whole[:n]); !errors.Is(err, ErrHeader) {
				t.Errorf("%s, %d of %d bytes: %v, want ErrHeader", c.name, n, len(whole), err)
			}
			if n < HeaderSize || c.want.Type.Writes() {
				continue
			}
			cut := append([]byte(nil), whole[:n]...)
			cut[0] = byte(n)
			if got, err := Parse(cut); !errors.Is(err, ErrMalformed) || got.Tag != c.want.Tag {
				t.Errorf("%s, a whole message of %d bytes instead of %d: tag %d, %v, want ErrMalformed", c.name, n, len(whole), got.Tag, err)
			}
		}
		if c.want.Type.Writes() || c.want.Type == 255 {
			continue
		}
		long := append(append([]byte(nil), whole...), 0)
		long[0]++
		if _, err := Parse(long); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s, with a byte more: %v, want ErrMalformed", c.name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"17 names":              "33000000 6e 0100 01000000 02000000 1100" + strings.Repeat("0000", 17),
		"a NUL byte in a name":  "15000000 6e 0100 01000000 02000000 0100 0200 6100",
		"a string beyond it":    "14000000 6e 0100 01000000 02000000 0100 ffff 61",
		"more names than there": "14000000 6e 0100 01000000 02000000 0200 0100 61",
	} {
		if _, err := Parse(bytesOf(t, s)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

func TestReply(t *testing.T) {
	buf := make([]byte, MinMsize)
	check := func(name string, got []byte, want string) {
		t.Helper()
		if hex.EncodeToString(got) != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: got %x, want %s", name, got, want)
		}
	}
	check("error", Error(buf, 5, 30), "0b000000 07 0500 1e000000")
	r := NewReply(buf, Tattach+1, 1)
	r.QID(QID{Type: QTDir, Version: 2, Path: 3})
	check("attach", r.Bytes(), "14000000 69 0100 80 02000000 0300000000000000")
	r = NewReply(buf, Tread+1, 1)
	if err := r.Data(10, func(b []byte) (int, error) { return copy(b, "abc"), nil }); err != nil {
		t.Fatal(err)
	}
	check("read", r.Bytes(), "0e000000 75 0100 03000000 616263")
	r = NewReply(buf, Tgetattr+1, 1)
	r.Attr(&Attr{})
	if n := len(r.Bytes()); n != HeaderSize+8+QIDSize+3*4+5*8+8*8+2*8 {
		t.Errorf("Rgetattr has %d bytes", n)
	}
	var entry [64]byte
	n := DirEntry(entry[:DirEntrySize("ab")], QID{Path: 1}, 7, 8, "ab")
	check("entry", entry[:n], "00 00000000 0100000000000000 0700000000000000 08 0200 6162")
}

// TestReplyFull: what does not fit is left out, whole, and said.
func TestReplyFull(t *testing.T) {
	r := NewReply(make([]byte, 20), Treadlink+1, 1)
	r.Str(strings.Repeat("x", 12))
	if !r.Full() || len(r.Bytes()) > 20 {
		t.Errorf("full: %v, %d bytes of 20", r.Full(), len(r.Bytes()))
	}
}

// FuzzParse: nothing makes Parse panic, or keep more than came.
func FuzzParse(f *testing.F) {
	for _, c := range golden {
		f.Add(bytesOf(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil && !errors.Is(err, ErrHeader) && !errors.Is(err, ErrMalformed) {
			t.Fatalf("an error of another kind: %v", err)
		}
		n := len(r.Version) + len(r.User) + len(r.Tree) + len(r.Name)
		for _, name := range r.Names {
			n += len(name)
		}
		if n > len(b) || len(r.Names) > MaxWalk {
			t.Fatalf("%d bytes in %d names from a message of %d", n, len(r.Names), len(b))
		}
	})
}
