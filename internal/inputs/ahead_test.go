package inputs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// TestReadAhead: with and without helpers a set has each file as it is, also those that share an inode, that are
// long, and that were changed a moment ago.
func TestReadAhead(t *testing.T) {
	dir := t.TempDir()
	const n = 400
	name := func(i int) string { return fmt.Sprintf("%s/%03d.h", dir, i) }
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(i int, more string) string {
		s := bytes.NewBufferString("// " + more + "\n")
		for _, k := range []int{2*i + 1, 2*i + 2, rng.IntN(n)} {
			if k < n {
				fmt.Fprintf(s, "#include \"%03d.h\"\n", k)
			}
		}
		for range rng.IntN(20) * rng.IntN(20) {
			s.WriteString("int a_line_of_some_length;\n")
		}
		return s.String()
	}
	for i := range n {
		if put(t, name(i), text(i, "first")); i > n/2 && i%50 == 49 {
			if err := os.Remove(name(i)); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(name(i-1), name(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, name(7), text(7, "long")+string(bytes.Repeat([]byte("\n"), 2<<20)))
	put(t, dir+"/x.c", "#include \"000.h\"\n#include \"000.h\"\n")
	q := &Query{Key: "x", Source: "x.c", Cwd: dir, GCC: true}
	check := func(table *Table) {
		t.Helper()
		s, err := table.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Files) != n+1 {
			t.Fatalf("%d files, want %d", len(s.Files), n+1)
		}
		for _, f := range s.Files {
			b, err := os.ReadFile(f.Name)
			if err != nil || f.Len != uint64(len(b)) || f.ID != sha256.Sum256(b) {
				t.Fatalf("%s is not what the set says: %v", f.Name, err)
			}
		}
		if table.ahead != nil {
			t.Error("something is still being read")
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(procs)
		before := runtime.NumGoroutine()
		table := New(Options{})
		for turn := range 5 {
			check(table)
			for i := turn; i < n; i += 7 {
				put(t, name(i), text(i, fmt.Sprint("turn ", turn)))
			}
		}
		check(table)
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines are left of %d processors' work", after-before, procs)
		}
	}
}

// TestReadTooLate: a file that is another one when it is read is a doubt, and is forgotten, by whatever name it was
// asked for.
func TestReadTooLate(t *testing.T) {
	dir := t.TempDir()
	table := New(Options{})
	defer func(n int) { runtime.GOMAXPROCS(n) }(runtime.GOMAXPROCS(1)) // the walk reads it, when it asks
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a.h", "b.h"} {
		put(t, dir+"/"+name, "int x;\n")
	}
	if err := os.Link(dir+"/a.h", dir+"/c.h"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(2 * stamp.Tick)) // until it counts as settled
	look := func() (list []*entry) {
		table.mu.Unlock()
		table.join(table.begun.Load())
		table.mu.Lock()
		table.begin()
		d := table.dirAt(dir)
		if doubt := table.check(d); doubt != nil {
			t.Fatal(doubt)
		}
		for _, name := range []string{"a.h", "b.h", "c.h"} {
			list = append(list, table.entry(d, name))
		}
		return list
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	list := look()
	for _, e := range list {
		if d := table.load(e); d != nil {
			t.Fatal(d)
		}
	}
	if list[0].file != list[2].file {
		t.Error("what shares an inode is read twice")
	}
	put(t, dir+"/a.h", "int y;\n")
	if err := os.Chtimes(dir+"/a.h", old, old); err != nil {
		t.Fatal(err)
	}
	for i, bad := range []bool{true, false, true} {
		if d := table.loaded(list[i].file); (d != nil) != bad || d != nil && d.Why != DoubtChanged {
			t.Errorf("%s: %v", list[i].base, d)
		}
	}
	if d := table.settle(); d == nil || d.Why != DoubtChanged {
		t.Errorf("in all: %v", d)
	}
	if len(table.files) != 1 {
		t.Errorf("%d files are known, want 1", len(table.files))
	}
	void := list[0].file
	for _, e := range look() {
		d := table.load(e)
		if d == nil {
			d = table.loaded(e.file)
		}
		b, err := os.ReadFile(e.path())
		if d != nil || err != nil || e.file == void || e.file.id != sha256.Sum256(b) {
			t.Errorf("%s, once more: %v %v", e.base, d, err)
		}
	}
	if d := table.settle(); d != nil {
		t.Error(d)
	}
	if !void.void {
		t.Error("what could not be read is not void")
	}
}
