package worker

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// withImage returns a compile of "int x = N;" that uses the precompiled header h.h.gch, which is made of h.h and more files.
func withImage(header string, more ...string) request {
	source := "int x = N;\n"
	p := &listed{q: request{body: treeBody("gcc"), text: source, sink: 1 << 20}}
	b := &p.q.body
	b.Args, b.Files[0].Len = []string{"-include", "h.h", "-c", "a.c", "-o", "x.o"}, uint64(len(source))
	p.blob(header)
	p.list.Files = []job.ListedFile{{Name: "h.h", Len: uint64(len(header)), MTime: 1e18, Content: idOf(header)}}
	for _, name := range more {
		p.list.Files = append(p.list.Files, job.ListedFile{Name: name, MTime: 1e18, Content: idOf("")})
	}
	q := p.named(true)
	q.body.Images = []job.Body{{
		Argv0: "gcc", Args: []string{"-x", "c-header", "h.h", "-o", "h.h.gch"}, Language: "c-header", Name: "h.h", Cwd: "/src",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "h.h.gch"}}, Lists: q.body.Lists,
	}}
	q.body.Lists = nil
	return q
}

// names returns n names.
func names(format string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}

// TestImageOfManyFiles: a precompiled header may be made of more files than a tree is cleaned of. The job goes on in another tree.
func TestImageOfManyFiles(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs, o.Slot = 1, 4<<20 })
	for i := range 2 {
		if r := c.do(ts.tool("gcc"), withImage("#define N 1\n", names("f%d.h", 5000)...)); r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 {
			t.Errorf("job %d: %+v\n%s", i, r.Result, r.bytes(r.Stderr))
		}
	}
	if st := ts.places.Images.Stats(); st.Made != 1 || st.Used != 1 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
	if log := ts.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("as if something were wrong with the host:\n%s", log)
	}
}

// TestMuchInTheWay: a job whose names conflict with kept files starts over, also if it has made more by then than a tree is
// cleaned of.
func TestMuchInTheWay(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs, o.Slot = 1, 4<<20 })
	p := &listed{q: request{body: treeBody("gcc"), text: "#include \"/p/q.h\"\nint x = N;\n", sink: 1 << 20}}
	const header = "#define N 1\n"
	p.q.body.Files[0].Len = uint64(len(p.q.text))
	p.blob(header)
	p.list.Files = []job.ListedFile{{Name: "/p/q.h", Len: uint64(len(header)), MTime: 1e18, Content: idOf(header)}}
	for i := range 2 {
		q := p.named(true)
		if i == 1 { // /p is a directory because of the kept file, and has to be a link
			for _, name := range names("/l%d", 5000) {
				q.body.Links = append(q.body.Links, unit.Link{Name: name, Target: "/r"})
			}
			q.body.Links = append(q.body.Links, unit.Link{Name: "/p", Target: "/r"})
		}
		if r := c.do(ts.tool("gcc"), q); r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 {
			t.Errorf("job %d: %+v\n%s", i, r.Result, r.bytes(r.Stderr))
		}
	}
	if log := ts.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("as if something were wrong with the host:\n%s", log)
	}
}

// TestImagesNamed: a job with precompiled headers has no name by which it could be joined with one that has others.
func TestImagesNamed(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Results = 16 << 20 })
	q := withImage("#define N 1\n")
	q.change = func(m *job.Job) { m.Key, m.Join = twinKeyOfTests, true }
	if r := c.do(ts.tool("gcc"), q); r.Status != job.StatusRefused || r.Cause != job.CauseMalformed || !strings.Contains(r.Detail, "precompiled headers") {
		t.Errorf("%+v", r.Result)
	}
	if c.look(twinKeyOfTests) != nil {
		t.Error("its result is kept")
	}
}

// TestImagesMakeWay: precompiled headers are dropped when the machine is short of memory, and when nothing else is kept for
// their tenant any more.
func TestImagesMakeWay(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Store.Keep = 0 })
	compile := func() {
		t.Helper()
		if r := c.do(ts.tool("gcc"), withImage("#define N 1\n")); r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 {
			t.Errorf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
		if st := ts.places.Images.Stats(); st.Images != 1 || st.Bytes == 0 {
			t.Errorf("%+v", st)
		}
	}
	gone := func() bool {
		ts.fitStore()
		st := ts.places.Images.Stats()
		return st.Images == 0 && st.Bytes == 0
	}
	compile()
	until(t, "the machine to be short of memory", func() bool {
		ts.load.Store(&hostLoad{memoryFree: storeFloor - 1, pressure: job.Pressure{Memory: job.NoPressure}})
		return gone()
	})
	until(t, "memory", func() bool {
		ts.load.Store(&hostLoad{memoryFree: 8 << 30, pressure: job.Pressure{Memory: job.NoPressure}})
		ts.fitStore()
		return !ts.short()
	})
	compile()
	c.qp.Abort()
	until(t, "the tenant to go", gone)
}

// TestImageNotPoisoned: whatever a hostile job does with a precompiled header that another job uses, that one gets the one that
// its own command makes of its own files.
func TestImageNotPoisoned(t *testing.T) {
	const header = "#define N 1\n"
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 }) // all in one tree
	var object []byte
	honest := func(c *testClient, what string) {
		t.Helper()
		r := c.do(ts.tool("gcc"), withImage(header))
		if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 {
			t.Fatalf("%s: %+v\n%s", what, r.Result, r.bytes(r.Stderr))
		}
		x := bytes.Clone(r.bytes(r.Files[0].Segment))
		if object == nil {
			object = x
		}
		if !bytes.Equal(x, object) {
			t.Errorf("%s: another object", what)
		}
	}
	honest(c, "first")
	with := func(change func(q *request)) request {
		q := withImage(header)
		change(&q)
		return q
	}
	args := func(words ...string) request {
		return with(func(q *request) {
			q.body.Args = append([]string{"-include", "h.h", "-c", "a.c"}, words...)
		})
	}
	text := func(source string) request {
		q := with(func(q *request) { q.body.Files[0].Len = uint64(len(source)) })
		q.text = source + q.text[len("int x = N;\n"):] // contents of the list follow
		return q
	}
	for what, q := range map[string]request{
		"an object over it":   with(func(q *request) { q.body.Args[len(q.body.Args)-1], q.body.Outputs[0].Name = "h.h.gch", "h.h.gch" }),
		"rules over it":       args("-o", "x.o", "-MD", "-MF", "h.h.gch"),
		"a file over it":      with(func(q *request) { q.body.Files = append(q.body.Files, unit.File{Name: "h.h.gch"}) }),
		"a directory over it": with(func(q *request) { q.body.Dirs = append(q.body.Dirs, "h.h.gch") }),
		"a link over it": with(func(q *request) {
			q.body.Links = append(q.body.Links, unit.Link{Name: "/src/h.h.gch", Target: "/src/a.c"})
		}),
		"a link over its way":  with(func(q *request) { q.body.Links = append(q.body.Links, unit.Link{Name: "/src", Target: "/r"}) }),
		"dumps over it":        args("-o", "x.o", "-fdump-tree-all=h.h.gch"),
		"an image by pragma":   text("#pragma GCC pch_preprocess \"h.h.gch\"\nint x = 2; char e[] = \"EVIL\";\n"),
		"its bytes":            text("__asm__(\".incbin \\\"h.h.gch\\\"\");\nchar e[] = \"EVIL\";\n"),
		"where it is kept":     text("__asm__(\".incbin \\\"/proc/self/maps\\\"\");\nchar e[] = \"EVIL\";\n"),
		"made to another name": with(func(q *request) { q.body.Images[0].Outputs[0].Name = "/usr/lib/x.gch" }),
		"made with a plugin":   with(func(q *request) { q.body.Images[0].Args = append(q.body.Images[0].Args, "-fplugin=./a.c") }),
		"made of an image": with(func(q *request) {
			q.body.Images[0].Args = append(q.body.Images[0].Args, "-include", "h.h", "-fpch-preprocess")
		}),
	} {
		r := c.do(ts.tool("gcc"), q)
		t.Logf("%s: status %d, cause %v, exit %d, %s", what, r.Status, r.Cause, r.Exit, r.Detail)
		honest(c, what)
	}
	made := ts.places.Images.Stats().Made
	honest(c, "last")
	if st := ts.places.Images.Stats(); st.Made != made {
		t.Errorf("%+v, want %d made", st, made)
	}
	if left, err := filepath.Glob(filepath.Join(ts.area.Path, "image*")); err != nil || len(left) != 0 {
		t.Errorf("others can change images by their names: %v, %v", left, err)
	}
}
