package job

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

var list = List{
	Files: []ListedFile{
		{Name: "/i/a.h", Len: 0x0102, MTime: -2, Content: ContentID{0: 0xb0, 31: 0xb1}},
		{Name: "b.h", MTime: 1 << 40, Same: 1, Exec: true},
	},
	Dirs:  []string{"/i"},
	Links: []Link{{Name: "/l", Target: "/s"}},
}

const listHex = "02000000 06000000 2f692f612e68 0201000000000000 feffffffffffffff 00000000 00 b0" + zeros30 + "b1" +
	"03000000 622e68 0000000000000000 0000000000010000 01000000 01 00" + zeros30 + "00" +
	"01000000 02000000 2f69  01000000 02000000 2f6c 02000000 2f73"

func TestGoldenList(t *testing.T) {
	want := unhex(t, listHex)
	if got := list.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("Append:\n got %x\nwant %x", got, want)
	}
	got, err := ParseList(want)
	if err != nil || !reflect.DeepEqual(*got, list) {
		t.Errorf("ParseList = %+v, %v", got, err)
	}
	for n := range want {
		if got, err := ParseList(want[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("list cut to %d of %d bytes: got %+v, %v", n, len(want), got, err)
		}
	}
	if _, err := ParseList(append(want, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("list and one byte more: error is %v", err)
	}
}

func TestParseListRefuses(t *testing.T) {
	for name, bad := range map[string]List{
		"sum of lengths wraps":    {Files: []ListedFile{{Name: "a", Len: 2}, {Name: "b", Len: 1<<64 - 1}}},
		"same as itself":          {Files: []ListedFile{{Name: "a", Same: 1}}},
		"same, with a length":     {Files: []ListedFile{{Name: "a"}, {Name: "b", Same: 1, Len: 1}}},
		"same, with a content":    {Files: []ListedFile{{Name: "a"}, {Name: "b", Same: 1, Content: ContentID{1}}}},
		"no name":                 {Files: []ListedFile{{Len: 1}}},
		"NUL in a name":           {Files: []ListedFile{{Name: "a\x00"}}},
		"relative link":           {Links: []Link{{Name: "l", Target: "/s"}}},
		"link to a relative path": {Links: []Link{{Name: "/l", Target: "s"}}},
		"longer than a body":      {Dirs: []string{string(make([]byte, MaxBodyLen))}},
	} {
		if _, err := ParseList(bad.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	// A count may not make the parser allocate more than the list could hold.
	huge := unhex(t, "ffffffff 00000000 00000000")
	if n := testing.AllocsPerRun(10, func() {
		if _, err := ParseList(huge); err == nil {
			t.Error("a list of 2^32-1 files in 12 bytes is taken")
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add(unhex(f, listHex))
	f.Add((&List{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseList(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if again := v.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%+v\nparsed from %x\nencodes as  %x", v, b, again)
		}
	})
}
