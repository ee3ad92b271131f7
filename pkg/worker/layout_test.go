package worker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// scene is a job that says in its object and its messages which of a number of files, directories and links it saw.
type scene struct {
	headers map[string]string // content by absolute name
	same    [2]string         // two of them that are one file; or none
	dirs    []string
	links   []unit.Link
	output  string
}

var sceneNames = []string{
	"/src/a.h", "/src/deep/a.h", "/src/deep/er/b.h", "/src/x.d", "/usr/include/c.h", "/usr/include/sys/d.h", "/opt/e.h", "/opt/link/f.h", "/elsewhere/f.h", "/opt/g.h",
}

var sceneDirs = []string{"/src/deep", "/src/deep/er", "/opt/dir", "/usr/include/sys", "/new/dir"}

func (x *scene) request() request {
	var text strings.Builder
	for i, name := range sceneNames {
		fmt.Fprintf(&text, "#if __has_include(\"%s\")\n#include \"%s\"\n#else\nint absent_%d;\n#endif\n", name, name, i)
	}
	body := treeBody("gcc")
	body.Args = []string{"-c", "-MD", "-Wmissing-include-dirs"}
	for _, d := range sceneDirs {
		body.Args = append(body.Args, "-I"+d)
	}
	body.Args = append(body.Args, "a.c", "-o", x.output)
	body.Outputs = []unit.Output{{Kind: unit.OutputObject, Name: x.output}, {Kind: unit.OutputDependency, Name: strings.TrimSuffix(x.output, ".o") + ".d"}}
	body.Dirs, body.Links = x.dirs, x.links
	body.Files[0].Len = uint64(text.Len())
	all := text.String()
	index := map[string]int{}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range x.headers {
			if !yield(name) {
				return
			}
		}
	}) {
		index[name] = len(body.Files) + 1
		f := unit.File{Name: name, MTime: 1e18}
		if i := slices.Index(x.same[:], name); i == 1 && index[x.same[0]] > 0 {
			f.Same = uint32(index[x.same[0]])
		} else {
			f.Len = uint64(len(x.headers[name]))
			all += x.headers[name]
		}
		body.Files = append(body.Files, f)
	}
	return request{body: body, text: all, sink: 1 << 20}
}

// randomScene returns a scene that differs little from other ones.
func randomScene(r *rand.Rand, from *scene) *scene {
	x := &scene{headers: map[string]string{}, output: "x.o"}
	for name, content := range from.headers {
		x.headers[name] = content
	}
	x.same, x.dirs, x.links = from.same, slices.Clone(from.dirs), from.links
	for range 1 + r.IntN(3) {
		name := sceneNames[r.IntN(len(sceneNames))]
		if r.IntN(3) == 0 {
			delete(x.headers, name)
		} else {
			x.headers[name] = fmt.Sprintf("int v%d_%d;\n", slices.Index(sceneNames, name), r.IntN(3))
		}
	}
	switch r.IntN(6) {
	case 0:
		x.dirs = nil
		for _, d := range sceneDirs {
			if r.IntN(2) == 0 {
				x.dirs = append(x.dirs, d)
			}
		}
	case 1:
		x.same = [2]string{"/opt/e.h", "/opt/g.h"}
	case 2:
		x.same = [2]string{}
	case 3:
		x.output = []string{"x.o", "deep/a.o", "/opt/g.o"}[r.IntN(3)]
	}
	if x.links = nil; r.IntN(3) == 0 {
		x.links = []unit.Link{{Name: "/opt/link", Target: "/elsewhere"}}
		delete(x.headers, "/opt/link/f.h") // names are without links
	}
	if x.same[0] != "" && x.headers[x.same[0]] != "" && x.headers[x.same[1]] != "" {
		x.headers[x.same[1]] = x.headers[x.same[0]]
	}
	return x
}

// TestLayouts: in a tree that keeps files of earlier jobs, a job sees exactly what it would see in an empty
// one.
func TestLayouts(t *testing.T) {
	rounds := 120
	if testing.Short() {
		rounds = 20
	}
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Store.Memory = 1, 16<<20 })
	if !ts.places.Trees {
		t.Skip("needs the right to make namespaces")
	}
	plain, plainly := startTrees(t, func(o *Options) { o.Jobs = 1 }) // which keeps nothing, as its jobs have no lists
	gcc := ts.tool("gcc")
	clients := []*testClient{dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{}), dialFrom(t, "127.0.0.3", addr, 2, &job.Hello{})}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	x := &scene{output: "x.o"}
	kept := 0
	for round := range rounds {
		if r.IntN(4) > 0 {
			x = randomScene(r, x)
		}
		c := clients[min(r.IntN(6), 1)]
		q := x.request()
		if r.IntN(8) == 0 { // one without lists in between
			if res := c.do(gcc, request{body: compileBody("c", "t.c"), text: "int t;\n"}); res.Status != job.StatusRan || res.Exit != 0 {
				t.Fatalf("seed %d, round %d: text: %+v", seed, round, res.Result)
			}
		}
		got := c.do(gcc, inParts(q).named(true))
		again := c.do(gcc, inParts(q).named(false))
		want := plainly.do(plain.tool("gcc"), q)
		for _, g := range []*testResult{got, again} {
			if g.Status != want.Status || g.Exit != want.Exit || !bytes.Equal(g.bytes(g.Stderr), want.bytes(want.Stderr)) || len(g.Files) != len(want.Files) {
				t.Fatalf("seed %d, round %d: got %+v\n%s\nwant %+v\n%s\n%+v", seed, round, g.Result, g.bytes(g.Stderr), want.Result, want.bytes(want.Stderr), x)
			}
			for i := range g.Files {
				if !bytes.Equal(g.bytes(g.Files[i].Segment), want.bytes(want.Files[i].Segment)) {
					t.Fatalf("seed %d, round %d: output %d differs: got\n%q\nwant\n%q\n%+v", seed, round, i, g.bytes(g.Files[i].Segment), want.bytes(want.Files[i].Segment), x)
				}
			}
		}
		if want.Exit == 0 {
			kept++
		}
	}
	if kept < rounds/2 {
		t.Errorf("%d of %d jobs went well: too few to tell anything", kept, rounds)
	}
}

// TestLayoutEnds: what trees keep is dropped with the last connection of its tenant, and when the machine is
// short of memory.
func TestLayoutEnds(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Store.Memory = 1, 16<<20 })
	if !ts.places.Trees {
		t.Skip("needs the right to make namespaces")
	}
	gcc := ts.tool("gcc")
	x := &scene{headers: map[string]string{"/opt/e.h": "int e;\n", "/src/a.h": "int a;\n"}, output: "x.o"}
	bytesKept := func() (n int64) {
		ts.mu.Lock() // idle runners wait with it
		defer ts.mu.Unlock()
		if ts.lend.Running() > 0 {
			return -1
		}
		return ts.places.Kept()
	}
	for name, end := range map[string]func(c *testClient){
		"the connection": func(c *testClient) { c.close() },
		"memory":         func(*testClient) { ts.forgets.Add(1); ts.mu.Lock(); ts.wake.Broadcast(); ts.mu.Unlock() },
	} {
		c := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
		if r := c.do(gcc, inParts(x.request()).named(true)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("%s: %+v\n%s", name, r.Result, r.bytes(r.Stderr))
		}
		until(t, "the files to be kept", func() bool { return bytesKept() > 0 })
		end(c)
		until(t, "what is kept to go with "+name, func() bool { return bytesKept() == 0 })
		c.close()
	}
}

// TestLayoutOfOutputs: a file that a command writes is not kept, even if it is also an input.
func TestLayoutOfOutputs(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 })
	x := &scene{headers: map[string]string{"/src/x.d": "int d;\n"}, output: "y.o"}
	for i := range 4 {
		q := x.request()
		if r := c.do(ts.tool("gcc"), inParts(q).named(i == 0)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("job %d: %+v\n%s", i, r.Result, r.bytes(r.Stderr))
		}
		x.output = []string{"x.o", "y.o", "x.o", "x.o"}[i]
	}
}
