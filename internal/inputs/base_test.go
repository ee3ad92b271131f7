package inputs

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestBase: the list of a set says the same whether it rests on another set's or not, and is short
// where they differ by little.
func TestBase(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]*Input, 300)
	for i := range all {
		all[i] = &Input{Name: fmt.Sprintf("/usr/include/some/where/%03d.h", i), Len: uint64(i), MTime: int64(i), ID: unit.ContentID{byte(i), byte(i >> 8), 1}}
		all[i].st.Ino = uint64(i + 1)
		if i%17 == 0 && i > 0 { // another name of the one before
			all[i].st.Ino, all[i].Len, all[i].ID = all[i-1].st.Ino, all[i-1].Len, all[i-1].ID
		}
	}
	pick := func(part float64) *Set {
		s := &Set{Files: []*Input{{Name: "/src.c"}}, Dirs: []string{"/d"}}
		for _, f := range all {
			if rng.Float64() >= part {
				continue
			}
			if rng.IntN(50) == 0 {
				x := *f
				x.MTime += 1 + rng.Int64N(3)
				f = &x
			} else if rng.IntN(3) == 0 { // the same one, found again
				x := *f
				f = &x
			}
			s.Files = append(s.Files, f)
		}
		return s
	}
	full := func(s *Set) *job.List {
		x := &Set{Files: s.Files, Dirs: s.Dirs}
		l, err := job.ParseList(x.AppendList(nil))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	table := New(Options{})
	var based, short int
	for range 400 {
		s := pick([]float64{0.97, 0.95, 0.5, 0.1, 1, 0}[rng.IntN(6)])
		table.relate(s)
		l, err := job.ParseList(s.AppendList(nil))
		if err != nil {
			t.Fatal(err)
		}
		if s.Base() == nil {
			continue
		}
		based++
		if n := len(full(s).Append(nil)); len(s.AppendList(nil))*baseGain <= n+200 {
			short++
		}
		if s.Base().Base() != nil {
			t.Fatal("a base has a base")
		}
		got, err := l.On(full(s.Base()))
		if err != nil {
			t.Fatal(err)
		}
		if want := full(s); !reflect.DeepEqual(byName(got), byName(want)) || !slices.Equal(got.Dirs, want.Dirs) {
			t.Fatalf("with its base it says\n%v\nwant\n%v", byName(got), byName(want))
		}
	}
	if based < 200 || short != based {
		t.Errorf("%d of 400 sets have a base, %d of these a list a third as long", based, short)
	}
	if len(table.bases) > mostBases {
		t.Errorf("%d bases are kept", len(table.bases))
	}

	for i := range all {
		all[i].st.Ino = uint64(i + 1)
	}
	a, b := pick(1), &Set{Files: []*Input{{Name: "/other.c"}}, Dirs: []string{"/d"}}
	b.Files = append(b.Files, a.Files[1:]...)
	table = New(Options{})
	table.relate(a)
	table.relate(b)
	one, _ := a.List()
	other, _ := b.List()
	if one != other {
		t.Error("two units that read the same have two lists")
	}
}

// byName returns what a list says of each file: equal files are described by the name of the first one.
func byName(l *job.List) map[string]string {
	m := make(map[string]string, len(l.Files))
	groups := make(map[string][]string)
	of := make([]string, len(l.Files))
	for i, f := range l.Files {
		of[i] = f.Name
		c := f
		if f.Same != 0 {
			of[i] = of[f.Same-1]
			c = l.Files[f.Same-1]
		}
		for j := i; j >= 0 && l.Files[j].Same != 0; j = int(l.Files[j].Same) - 1 {
			c = l.Files[l.Files[j].Same-1]
		}
		groups[of[i]] = append(groups[of[i]], f.Name)
		m[f.Name] = fmt.Sprint(f.MTime, f.Exec, c.Len, c.Content)
	}
	for _, names := range groups {
		slices.Sort(names)
		for _, n := range names {
			m[n] += " with " + strings.Join(names, " ")
		}
	}
	return m
}
