package resultcache

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// forecast returns one of two packs with three results each, and of one absence. The results have the ages 0, 1 and 2.
func forecast() *Forecast {
	f := &Forecast{Absent: []Absent{{Key{99}, 1}}}
	for i := range byte(2) {
		p := Pack{Key: Key{200 + i}, Len: 300}
		for j := range byte(3) {
			p.Items = append(p.Items, Packed{Key: Key{i, j}, Off: 100 * uint32(j), Len: 100, Age: j})
		}
		f.Packs = append(f.Packs, p)
	}
	return f
}

func TestForecast(t *testing.T) {
	f := forecast()
	b := f.Append(nil)
	got, err := DecodeForecast(b)
	if err != nil || !reflect.DeepEqual(got, f) || len(b) != f.Len() {
		t.Errorf("%v, %d bytes, want %d\n%+v, want\n%+v", err, len(b), f.Len(), got, f)
	}
	for n := range len(b) {
		if _, err := DecodeForecast(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	later := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(later, forecastVersion+1)
	if _, err := DecodeForecast(later); !errors.Is(err, ErrVersion) {
		t.Errorf("of a later version: %v", err)
	}
	f.Packs[1].Items[2].Off++
	if _, err := DecodeForecast(f.Append(nil)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a result beyond its pack: %v", err)
	}
	if _, err := DecodeForecast(make([]byte, MaxForecast+1)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a very long one: %v", err)
	}
}

func FuzzForecast(f *testing.F) {
	f.Add(forecast().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeForecast(b)
		if err != nil {
			return
		}
		again, err := DecodeForecast(got.Append(nil))
		if err != nil || got.Len() != len(b) || again.Len() != len(b) {
			t.Errorf("%v: %+v, then %+v", err, got, again)
		}
	})
}

// TestFollow: what a build has not wanted grows older, unless the build has wanted little; what is new replaces what was there.
func TestFollow(t *testing.T) {
	ages := func(f *Forecast) map[Key]uint8 {
		all := make(map[Key]uint8)
		for _, p := range f.Packs {
			for _, x := range p.Items {
				all[x.Key] = x.Age
			}
		}
		for _, x := range f.Absent {
			all[x.Key] = x.Age
		}
		return all
	}
	fresh := Pack{Key: Key{250}, Len: 10, Items: []Packed{{Key: Key{1, 2}, Len: 10}}}
	few := map[Key]struct{}{{0, 1}: {}}
	many := map[Key]struct{}{{0, 0}: {}, {0, 1}: {}, {1, 0}: {}}
	for _, c := range []struct {
		used map[Key]struct{}
		last uint8
		want map[Key]uint8
	}{
		{few, 2, map[Key]uint8{{0, 0}: 0, {0, 1}: 0, {0, 2}: 2, {1, 0}: 0, {1, 1}: 1, {1, 2}: 0, {99}: 1}},
		{many, 2, map[Key]uint8{{0, 0}: 0, {0, 1}: 0, {1, 0}: 0, {1, 1}: 2, {1, 2}: 0, {99}: 2}},
		{nil, 2, map[Key]uint8{{0, 0}: 1, {0, 1}: 2, {1, 0}: 1, {1, 1}: 2, {1, 2}: 0, {99}: 2}},
		{many, 1, map[Key]uint8{{0, 0}: 0, {0, 1}: 0, {1, 0}: 0, {1, 2}: 0}},
	} {
		f := &Forecast{Packs: []Pack{fresh}}
		f.Follow(forecast(), c.used, c.last)
		if got := ages(f); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d used, up to %d: %v\nwant %v", len(c.used), c.last, got, c.want)
		}
	}
	f := &Forecast{Packs: []Pack{fresh}}
	if f.Follow(nil, nil, 1); len(f.Packs) != 1 {
		t.Errorf("after none: %+v", f)
	}
}

// TestThin: packs that are mostly of no use go, and the smaller ones of too many; what is left has room.
func TestThin(t *testing.T) {
	f := forecast()
	f.Packs[0].Items = f.Packs[0].Items[:1]
	if out, at := f.Thin(9, 1e6); at != 0 || len(out) != 1 || out[0].Key != (Key{200}) || len(f.Packs) != 1 {
		t.Errorf("%+v, left %+v", out, f.Packs)
	}
	f = &Forecast{}
	for i := range uint32(10) {
		f.Packs = append(f.Packs, Pack{Key: Key{byte(i)}, Len: 100 + i, Items: []Packed{{Len: 100 + i}}})
	}
	if out, _ := f.Thin(10, 100); len(out) != 0 || len(f.Packs) != 10 {
		t.Errorf("%d out, %d left", len(out), len(f.Packs))
	}
	f.Packs[0].Len, f.Packs[0].Items[0].Len = 200, 200
	if out, at := f.Thin(9, 100); at != 1 || len(out) != 6 || len(f.Packs) != 4 || f.Packs[0].Key != (Key{0}) || f.Packs[1].Len != 107 {
		t.Errorf("%d out at %d, left %+v", len(out), at, f.Packs)
	}
	if out, at := f.Thin(3, 1000); at != 0 || len(out) != 4 || len(f.Packs) != 0 {
		t.Errorf("%d out at %d, left %+v", len(out), at, f.Packs)
	}
	f = forecast()
	f.Packs[0].Items[0].Age = 3
	if f.Shrink(600); len(f.Packs) != 2 {
		t.Errorf("all has room, left %+v", f.Packs)
	}
	if f.Shrink(599); len(f.Packs) != 1 || f.Packs[0].Key != (Key{201}) {
		t.Errorf("left %+v", f.Packs)
	}
}

// TestSplit: the first two packs are small, the others equally long, and all results are in one, in their order.
func TestSplit(t *testing.T) {
	items := make([]Packed, 320)
	for i := range items {
		items[i] = Packed{Key: Key{byte(i), byte(i >> 8)}, Off: uint32(i) * 1000, Len: 1000}
	}
	for _, c := range []struct {
		items []Packed
		n     int
		least uint32
		want  []uint32
	}{
		{items, 8, 1000, []uint32{10000, 20000, 48000, 48000, 48000, 48000, 49000, 49000}},
		{items, 1, 1000, []uint32{320000}},
		{items, 2, 1000, []uint32{10000, 310000}},
		{items[:5], 8, 2000, []uint32{2000, 3000}},
		{items[:5], 8, 100000, []uint32{5000}},
		{nil, 8, 1000, nil},
	} {
		var lens []uint32
		next := 0
		for _, p := range Split(c.items, c.n, c.least) {
			lens = append(lens, p.Len)
			for i, x := range p.Items {
				if x.Key != c.items[next].Key || x.Off != uint32(i)*1000 || x.Len != 1000 {
					t.Errorf("%d: %+v", next, x)
				}
				next++
			}
		}
		if !slices.Equal(lens, c.want) || next != len(c.items) {
			t.Errorf("%d items in %d: %v with %d, want %v", len(c.items), c.n, lens, next, c.want)
		}
	}
}
