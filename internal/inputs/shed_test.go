package inputs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// grove is a tree of sources and headers, of which commands read different parts, in directories of which some come and go.
type grove struct {
	t   *testing.T
	rng *rand.Rand
	dir string
}

const groveSources, groveDirs, groveNames = 24, 9, 7

func newGrove(t *testing.T, seed uint64) *grove {
	g := &grove{t, rand.New(rand.NewPCG(seed, 37)), filepath.Join(t.TempDir(), "w")}
	for i := range groveSources {
		g.write(fmt.Sprintf("src/s%d.c", i))
	}
	for range groveDirs * groveNames / 2 {
		g.write(g.header())
	}
	return g
}

func (g *grove) header() string {
	return fmt.Sprintf("d%d/m%d/h%d.h", g.rng.IntN(groveDirs), g.rng.IntN(2), g.rng.IntN(groveNames))
}

// write writes a file that includes some headers, which may exist or not.
func (g *grove) write(name string) {
	var b strings.Builder
	for range g.rng.IntN(4) {
		fmt.Fprintf(&b, "#include \"m%d/h%d.h\"\n", g.rng.IntN(2), g.rng.IntN(groveNames))
	}
	name = filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		g.t.Fatal(err)
	}
	put(g.t, name, b.String()+fmt.Sprintf("// %d\n", g.rng.Int()))
}

// edit changes something.
func (g *grove) edit() {
	switch name := g.header(); g.rng.IntN(6) {
	case 0, 1:
		g.write(name)
	case 2:
		os.Remove(filepath.Join(g.dir, name))
	case 3:
		os.RemoveAll(filepath.Dir(filepath.Join(g.dir, name)))
	case 4:
		_ = os.Rename(filepath.Dir(filepath.Join(g.dir, name)), filepath.Dir(filepath.Join(g.dir, g.header())))
	case 5:
		g.write(fmt.Sprintf("src/s%d.c", g.rng.IntN(groveSources)))
	}
}

// query returns that of a source, whose list of directories begins somewhere.
func (g *grove) query(i int) *Query {
	q := &Query{Key: fmt.Sprint(i), Source: fmt.Sprintf("src/s%d.c", i), Cwd: g.dir, GCC: true}
	for k := range groveDirs - 2 {
		q.Angle = append(q.Angle, fmt.Sprintf("d%d", (i+k)%groveDirs))
	}
	return q
}

// found returns what a table finds for a source.
func (g *grove) found(tab *Table, i int) (all []string) {
	g.t.Helper()
	s, err := tab.Resolve(g.query(i))
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range s.Files {
		all = append(all, fmt.Sprintf("%s %x", f.Name, f.ID[:4]))
	}
	return append(all, s.Dirs...)
}

// TestShed: a table that has to drop commands all the time finds what one finds that starts anew, and keeps within its bound.
func TestShed(t *testing.T) {
	today := part.Of(t)
	for seed := range uint64(4) {
		if !today.Has(fmt.Sprint("shed ", seed)) {
			continue
		}
		g := newGrove(t, seed)
		whole := New(Options{})
		for i := range groveSources {
			g.found(whole, i)
		}
		all := whole.Stats().Bytes
		tab := New(Options{Memory: all / 4})
		for range 400 {
			if g.rng.IntN(3) == 0 {
				g.edit()
			}
			i := g.rng.IntN(groveSources)
			if got, want := g.found(tab, i), g.found(New(Options{}), i); !slices.Equal(got, want) {
				t.Fatalf("seed %d, source %d: %q, want %q", seed, i, got, want)
			}
			if st := tab.Stats(); st.Bytes > st.Most+all/2 {
				t.Fatalf("it takes %d bytes of %d", st.Bytes, st.Most)
			}
		}
		if st := tab.Stats(); st.Dropped == 0 {
			t.Errorf("%+v: nothing was dropped", st)
		}
	}
}

// TestShedLeastUsed: what was used least recently goes, the rest stays known, and what was dropped takes no memory.
func TestShedLeastUsed(t *testing.T) {
	g := newGrove(t, 1)
	time.Sleep(60 * time.Millisecond) // until it is settled
	tab := New(Options{})
	for i := range groveSources {
		g.found(tab, i)
	}
	full := tab.Stats()
	for i := range 4 { // used once more
		g.found(tab, i)
	}
	tab.mu.Lock()
	before := make(map[unitKey]*resolved)
	for key, u := range tab.units {
		before[key] = u
	}
	tab.o.Memory = tab.takes * 9 / 10
	tab.mu.Unlock()
	g.found(tab, 3)
	st := tab.Stats()
	if st.Units >= full.Units || st.Units == 0 || st.Bytes > st.Most*3/4 || st.Dropped != uint64(full.Units-st.Units) {
		t.Errorf("%+v, %+v before", st, full)
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	kept := 0
	for key, u := range tab.units {
		if before[key] == u {
			kept++
		}
	}
	if kept != st.Units {
		t.Errorf("%d of %d commands are those that were kept", kept, st.Units)
	}
}

// TestSharedChecks: a command that waited while another one was looked at shares its checks, and depends on all of them.
func TestSharedChecks(t *testing.T) {
	g := newGrove(t, 2)
	tab := New(Options{})
	came := tab.begun.Load()
	g.found(tab, 0)
	gen := tab.gen
	for _, i := range []int{1, 0} {
		if _, _, doubt := tab.try(g.query(i), came, nil, true); doubt != nil {
			t.Fatal(doubt)
		}
	}
	if tab.gen != gen {
		t.Error("what was checked since they came is checked again")
	}
	for range 100 {
		g.edit()
		for i := range 2 {
			if got, want := g.found(tab, i), g.found(New(Options{}), i); !slices.Equal(got, want) {
				t.Fatalf("source %d: %q, want %q", i, got, want)
			}
			came := tab.begun.Load() - 1
			if _, _, doubt := tab.try(g.query(i+2), came, nil, true); doubt != nil {
				t.Fatal(doubt)
			}
		}
	}
}
