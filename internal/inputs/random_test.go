package inputs

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var (
	runs = flag.Int("trees", 40, "random trees")
	seed = flag.Uint64("seed", 1, "of the first tree")
)

// forest is a random tree of headers that is edited at random.
type forest struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string
	dirs  []string
	names []string
	did   []string
}

// TestRandomTrees: whatever is done to a tree of headers, the set has every file that the
// compiler reads, with the content that it has, for gcc and clang.
func TestRandomTrees(t *testing.T) {
	var compilers []*compiler
	for _, cc := range []string{"gcc", "clang"} {
		t.Run("has "+cc, func(t *testing.T) { compilers = append(compilers, newCompiler(t, cc, "c")) })
	}
	n := *runs
	if testing.Short() {
		n = min(n, 2)
	}
	today := part.Of(t)
	for i := range n {
		s := *seed + uint64(i)
		if !testing.Short() && !today.Has(fmt.Sprint("tree ", s)) {
			continue
		}
		t.Run(fmt.Sprint("seed ", s), func(t *testing.T) {
			f := &forest{t: t, rng: rand.New(rand.NewPCG(s, 15)), dir: t.TempDir(), dirs: []string{"src", "src/sub", "inc1", "inc2", "inc2/sub", "sys", "after"}}
			for k := range 6 {
				f.names = append(f.names, fmt.Sprintf("h%d.h", k))
			}
			f.plant()
			tables := make([]*Table, len(compilers))
			for k := range tables {
				if tables[k] = New(Options{}); f.rng.IntN(2) == 0 {
					tables[k].turn = 0
				}
			}
			for range 12 {
				f.edit()
				for k, c := range compilers {
					c.t = t
					f.judge(tables[k], c)
				}
			}
		})
	}
}

func (f *forest) pick(list []string) string { return list[f.rng.IntN(len(list))] }

func (f *forest) file() string { return f.pick(f.dirs) + "/" + f.pick(f.names) }

// plant makes the first files.
func (f *forest) plant() {
	for _, d := range f.dirs {
		if err := os.MkdirAll(f.dir+"/"+d, 0o777); err != nil {
			f.t.Fatal(err)
		}
	}
	for range 8 {
		f.write(f.file())
	}
	f.write("src/main.c")
}

// text is a random text of directives.
func (f *forest) text() string {
	var b strings.Builder
	if f.rng.IntN(2) == 0 {
		b.WriteString("#pragma once\n")
	}
	for range f.rng.IntN(4) {
		name := f.pick(f.names)
		switch f.rng.IntN(8) {
		case 0:
			name = "sub/" + name
		case 1:
			name = "../inc1/" + name
		case 2:
			name = "../" + name
		}
		switch f.rng.IntN(9) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "#if __has_include(\"%s\")\n#include \"%s\"\n#endif\n", name, name)
		case 3, 4:
			fmt.Fprintf(&b, "#if __has_include(<%s>)\n# include <%s>\n#endif\n", name, name)
		case 5:
			fmt.Fprintf(&b, "#if __has_include_next(<%s>)\n#include_next <%s>\n#endif\n", name, name)
		case 6:
			fmt.Fprintf(&b, "#ifdef A%d\n#if __has_include(\"%s\")\n/* c */ # /* d */ include \"%s\"\n#endif\n#endif\n#define A%d\n", f.rng.IntN(3), name, name, f.rng.IntN(3))
		case 7:
			fmt.Fprintf(&b, "#if 0\n#include \"%s\"\n#endif\n", name)
		case 8:
			fmt.Fprintf(&b, "#define NAME \"%s\"\n#if __has_include(\"%s\")\n#include NAME\n#endif\n#undef NAME\n", name, name)
		}
	}
	fmt.Fprintf(&b, "/* %d */\n", f.rng.IntN(1000))
	// An end of the recursion that there may be.
	return "#if __INCLUDE_LEVEL__ < 12\n" + b.String() + "#endif\n"
}

func (f *forest) write(name string) {
	_ = os.WriteFile(f.dir+"/"+name, []byte(f.text()), 0o666) // what was made of it before may be in the way
}

// edit does something to the tree.
func (f *forest) edit() {
	name := f.file()
	path := f.dir + "/" + name
	what := ""
	switch f.rng.IntN(11) {
	case 0, 1:
		what = "write " + name
		f.write(name)
	case 2:
		what = "write the source"
		f.write("src/main.c")
	case 3:
		what = "remove " + name
		os.Remove(path)
	case 4:
		other := f.file()
		what = "rename " + name + " to " + other
		_ = os.Rename(path, f.dir+"/"+other)
	case 5:
		other := f.file()
		what = "link " + name + " to " + other
		os.Remove(path)
		_ = os.Symlink(f.dir+"/"+other, path)
	case 6:
		what = "change " + name + " and nothing about it"
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			b, _ := os.ReadFile(path)
			for i := range b {
				if b[i] >= '0' && b[i] <= '5' {
					b[i] = '0' + byte(f.rng.IntN(6)) // other names
				}
			}
			_ = os.WriteFile(path, b, 0o666)
			_ = os.Chtimes(path, st.ModTime(), st.ModTime())
		}
	case 7:
		d := f.pick(f.dirs[1:])
		what = "move the directory " + d
		if _, err := os.Lstat(f.dir + "/" + d + ".moved"); err == nil {
			os.RemoveAll(f.dir + "/" + d)
			_ = os.Rename(f.dir+"/"+d+".moved", f.dir+"/"+d)
		} else {
			_ = os.Rename(f.dir+"/"+d, f.dir+"/"+d+".moved")
		}
	case 8:
		d := f.pick(f.dirs[1:])
		what = "make " + d + " a link to another directory"
		if st, err := os.Lstat(f.dir + "/" + d); err != nil || st.Mode().Type() == os.ModeSymlink {
			os.Remove(f.dir + "/" + d)
			_ = os.Symlink(f.dir+"/"+f.pick(f.dirs), f.dir+"/"+d)
		}
	case 9:
		what = "make a directory of " + name
		os.Remove(path)
		_ = os.Mkdir(path, 0o777)
	case 10:
		what = "wait"
		time.Sleep(60 * time.Millisecond) // until what is there is settled
	}
	f.did = append(f.did, what)
}

// judge holds the set against the compiler's list.
func (f *forest) judge(table *Table, c *compiler) {
	t := f.t
	t.Helper()
	words := []string{"-iquote", "../inc1", "-I../inc2", "-I", "../inc1/.", "-isystem", "../sys", "-idirafter", "../after"}
	dir := f.dir + "/src"
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return
	}
	q := c.query(dir, "main.c")
	q.Quote, q.Angle, q.System, q.After = []string{"../inc1"}, []string{"../inc2", "../inc1/."}, []string{"../sys"}, []string{"../after"}
	set, err := table.Resolve(q)
	names, lerr := c.list(dir, "main.c", words...)
	if lerr != nil {
		return
	}
	if err != nil {
		table.Learn(q, names, nil, false)
		if set, err = table.Resolve(q); err != nil {
			return // and would be asked again
		}
	}
	if lost := missing(t, set, dir, names); lost != nil {
		t.Fatalf("%s: the set lacks %v after\n%s", c.cc, lost, strings.Join(f.did, "\n"))
	}
	for _, i := range set.Files {
		b, err := os.ReadFile(i.Name)
		if err != nil || sha256.Sum256(b) != i.ID {
			t.Fatalf("%s: %s is stale after\n%s", c.cc, i.Name, strings.Join(f.did, "\n"))
		}
		if real, _ := filepath.EvalSymlinks(i.Name); real != i.Name {
			t.Fatalf("%s: %s has links in its name", c.cc, i.Name)
		}
	}
}
