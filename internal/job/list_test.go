package job

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

var list = List{
	Base:    unit.ContentID{0: 0xc0, 31: 0xc1},
	Without: []uint32{1, 0x0302},
	Files: []ListedFile{
		{Name: "/i/a.h", Len: 0x0102, MTime: -2, Content: unit.ContentID{0: 0xb0, 31: 0xb1}},
		{Name: "b.h", MTime: 1 << 40, Same: 1, Exec: true},
	},
	Dirs:  []string{"/i"},
	Links: []unit.Link{{Name: "/l", Target: "/s"}},
}

const listHex = "c0" + zeros30 + "c1 02000000 01000000 02030000 " +
	"02000000 06000000 2f692f612e68 0201000000000000 feffffffffffffff 00000000 00 b0" + zeros30 + "b1" +
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
		"same, with a content":    {Files: []ListedFile{{Name: "a"}, {Name: "b", Same: 1, Content: unit.ContentID{1}}}},
		"no name":                 {Files: []ListedFile{{Len: 1}}},
		"NUL in a name":           {Files: []ListedFile{{Name: "a\x00"}}},
		"relative link":           {Links: []unit.Link{{Name: "l", Target: "/s"}}},
		"link to a relative path": {Links: []unit.Link{{Name: "/l", Target: "s"}}},
		"left out twice":          {Base: unit.ContentID{1}, Without: []uint32{1, 1}},
		"left out in no order":    {Base: unit.ContentID{1}, Without: []uint32{2, 1}},
		"left out of no base":     {Without: []uint32{1}},
		"longer than a body":      {Dirs: []string{string(make([]byte, MaxBodyLen))}},
	} {
		if _, err := ParseList(bad.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	// A count may not make the parser allocate more than the list could hold.
	for _, huge := range []string{
		"c0" + zeros30 + "c1 00000000 ffffffff 00000000 00000000",
		"c0" + zeros30 + "c1 ffffffff 00000000 00000000 00000000",
	} {
		b := unhex(t, huge)
		if n := testing.AllocsPerRun(10, func() {
			if _, err := ParseList(b); err == nil {
				t.Error("a list of 2^32-1 files in 48 bytes is taken")
			}
		}); n > 4 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestListOn: a list and its base are one list, in which files that are the same stay so.
func TestListOn(t *testing.T) {
	file := func(name string, same uint32) ListedFile { return ListedFile{Name: name, Same: same} }
	base := &List{Dirs: []string{"/b"}, Files: []ListedFile{file("a", 0), file("b", 0), file("c", 2), file("d", 3), file("e", 0)}}
	for _, c := range []struct {
		without []uint32
		more    []ListedFile
		want    []ListedFile
	}{
		{nil, nil, base.Files},
		{[]uint32{0}, nil, []ListedFile{file("b", 0), file("c", 1), file("d", 2), file("e", 0)}},
		{[]uint32{0, 3, 4}, []ListedFile{file("x", 0), file("y", 1)}, []ListedFile{file("b", 0), file("c", 1), file("x", 0), file("y", 3)}},
		{[]uint32{0, 1, 2, 3, 4}, []ListedFile{file("x", 0)}, []ListedFile{file("x", 0)}},
		{[]uint32{1}, nil, nil},
		{[]uint32{1, 2}, nil, nil},
		{[]uint32{5}, nil, nil},
	} {
		l := &List{Base: unit.ContentID{1}, Without: c.without, Files: c.more, Dirs: []string{"/l"}, Links: []unit.Link{{Name: "/x", Target: "/y"}}}
		got, err := l.On(base)
		if c.want == nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("without %v: %+v, %v", c.without, got, err)
			}
			continue
		}
		if want := (&List{Files: c.want, Dirs: l.Dirs, Links: l.Links}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("without %v: %+v, %v", c.without, got, err)
		}
	}
	if _, err := (&List{Base: unit.ContentID{1}}).On(&List{Base: unit.ContentID{2}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("a base of a base: %v", err)
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
