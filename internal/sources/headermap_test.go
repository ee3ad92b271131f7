package sources

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// headerMap returns a header map with entries of a name, a prefix and a suffix each.
func headerMap(order binary.AppendByteOrder, entries ...[3]string) []byte {
	const empty = 1 // bucket at the end, where clang stops looking
	texts := []byte{0}
	add := func(s string) uint32 {
		at := len(texts)
		texts = append(append(texts, s...), 0)
		return uint32(at)
	}
	n := uint32(len(entries) + empty)
	b := order.AppendUint32(nil, mapMagic)
	b = order.AppendUint16(order.AppendUint16(b, mapVersion), 0)
	for _, v := range []uint32{mapHead + n*mapBucket, uint32(len(entries)), n, 255} {
		b = order.AppendUint32(b, v)
	}
	for _, e := range entries {
		for _, s := range e {
			b = order.AppendUint32(b, add(s))
		}
	}
	return append(append(b, make([]byte, mapBucket*empty)...), texts...)
}

func TestHeaderMap(t *testing.T) {
	entries := [][3]string{{"H.h", "/real/", "x.h"}, {"h.h", "/other/", "x.h"}, {"F.h", "F/", "F.h"}, {"F/F.h", "/f/", "f.h"}, {"a.h", "", "a.h"}, {"e.h", "", ""}}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		b := headerMap(order, entries...)
		file := filepath.Join(t.TempDir(), "m.hmap")
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		maps := []*HeaderMap{ParseHeaderMap(b), readHeaderMap(file)}
		if maps[0] == nil || maps[1] == nil {
			t.Fatalf("%v: no header map", order)
		}
		for name, want := range map[string][2][]string{
			"h.H":    {{"/real/x.h", "/other/x.h"}, {"h.H"}},
			"f.h":    {{"/f/f.h"}, {"f.h", "F/F.h"}},
			"a.h":    {nil, {"a.h"}},
			"e.h":    {nil, {"e.h"}},
			"x/h.h":  {nil, {"x/h.h"}},
			"none.h": {nil, {"none.h"}},
			"\xc4.h": {nil, {"\xc4.h"}},
		} {
			files, names := Mapped(maps[:1], name)
			if !slices.Equal(files, want[0]) || !slices.Equal(names, want[1]) {
				t.Errorf("%v: %s leads to %q and %q, want %q", order, name, files, names, want)
			}
		}
		for i := range len(b) { // whatever is cut off or changed, it only must not fail
			Mapped([]*HeaderMap{orEmpty(ParseHeaderMap(b[:i]))}, "h.h")
			c := slices.Clone(b)
			c[i] ^= 0xff
			Mapped([]*HeaderMap{orEmpty(ParseHeaderMap(c))}, "h.h")
		}
	}
	if ParseHeaderMap([]byte("#define X 1\n// and enough text to be a map\n")) != nil {
		t.Error("text is taken for a header map")
	}
}

func orEmpty(m *HeaderMap) *HeaderMap {
	if m == nil {
		return &HeaderMap{}
	}
	return m
}
