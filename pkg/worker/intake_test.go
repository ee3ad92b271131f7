package worker

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/images"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// listed is a request whose files are sent as contents: its first file, and a list of the others.
type listed struct {
	q     request // with the first file alone
	list  job.List
	blobs []job.Blob // of the list's files, and of the list
	text  string     // of the blobs
}

func idOf(content string) unit.ContentID { return sha256.Sum256([]byte(content)) }

// inParts splits a request of the sources form into its first file and a list of the others.
func inParts(q request) *listed {
	p := &listed{q: q}
	p.q.body.Files = q.body.Files[:1:1]
	n := q.body.Files[0].Len
	p.q.text = q.text[:n]
	rest := q.text[n:]
	for _, f := range q.body.Files[1:] {
		x := job.ListedFile{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec}
		if f.Same != 0 {
			x.Same = f.Same - 1
		} else {
			x.Content = idOf(rest[:f.Len])
			p.blob(rest[:f.Len])
			rest = rest[f.Len:]
		}
		p.list.Files = append(p.list.Files, x)
	}
	p.list.Dirs, p.list.Links = q.body.Dirs, q.body.Links
	p.q.body.Dirs, p.q.body.Links = nil, nil
	return p
}

// blob adds a content to those that can be sent along.
func (p *listed) blob(content string) {
	if len(content) > 0 {
		p.blobs = append(p.blobs, job.Blob{ID: idOf(content), Len: uint64(len(content))})
		p.text += content
	}
}

// named returns the request with its list named, and with all contents or none.
func (p *listed) named(all bool) request {
	list := string(p.list.Append(nil))
	q := p.q
	q.body.Lists = []unit.ContentID{idOf(list)}
	if all {
		q.body.Blobs = append(slices.Clone(p.blobs), job.Blob{ID: idOf(list), Len: uint64(len(list))})
		q.text += p.text + list
	}
	return q
}

// lists returns a project of some headers, one of them big, and the command that compiles it.
func listsProject(t *testing.T, cc string) *project {
	p := newProject(t, cc, map[string]string{
		"src/a.c":     "#include <stdio.h>\n#include \"m.h\"\n#include <n.h>\n#include \"big.h\"\nint g(int a) {\n\tint unused;\n\tputs(__FILE__);\n\treturn CALL(f, a) + N;\n}\n",
		"src/m.h":     macros,
		"src/big.h":   bigSource(300 << 10),
		"src/empty.h": "",
		"inc/sub/n.h": "#define N 3\n#include \"../../src/empty.h\"\n",
	})
	if err := os.Link(p.root+"/src/m.h", p.root+"/src/same.h"); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"PWD=" + p.dir}
	p.prepare([]string{"-c", "-g", "-Wall", "-Iinc/sub", "src/a.c", "-MD", "-o", "a.o"}, []string{"src/same.h"})
	return p
}

// TestLists: a job whose files are in a list gives the same result as one that brings them, however its
// source travels and whether it brings their contents or not.
func TestLists(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 }, "clang")
	if c.welcome.Store == 0 || c.welcome.StoreEpoch == 0 {
		t.Fatalf("the Welcome offers no store: %+v", c.welcome)
	}
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			p := listsProject(t, cc)
			tc := ts.tool(cc)
			q := request{body: p.body, text: p.text, sink: 4 << 20}
			inline := c.do(tc, q)
			if inline.Status != job.StatusRan || inline.Exit != 0 || len(inline.Files) != 2 {
				t.Fatalf("%+v\n%s", inline.Result, inline.bytes(inline.Stderr))
			}
			all := inParts(q)
			for name, do := range map[string]func(q request) *testResult{
				"plain":  func(q request) *testResult { return c.do(tc, q) },
				"packed": func(q request) *testResult { return c.packed(tc, q, nil) },
				"window": func(q request) *testResult { q.offer = true; return c.do(tc, q) },
			} {
				ts.keep.Shrink(1 << 30)
				for i, with := range []bool{false, true, false, true, false} {
					r := do(all.named(with))
					if i == 0 {
						if r.Status != job.StatusRefused || r.Cause != job.CauseLacks {
							t.Fatalf("%s: a job whose contents are not there: %+v", name, r.Result)
						}
						continue
					}
					if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 2 {
						t.Fatalf("%s, with its contents: %v: %+v\n%s", name, with, r.Result, r.bytes(r.Stderr))
					}
					if !bytes.Equal(r.bytes(r.Stderr), inline.bytes(inline.Stderr)) {
						t.Errorf("%s: messages differ:\n%s\n%s", name, r.bytes(r.Stderr), inline.bytes(inline.Stderr))
					}
					for j, f := range r.Files {
						if !bytes.Equal(r.bytes(f.Segment), inline.bytes(inline.Files[j].Segment)) {
							t.Errorf("%s: output %d differs from that of the job that brings all", name, f.Index)
						}
					}
				}
			}
			// No file of its own at all: the source is in the list, too.
			whole := inParts(q)
			whole.list.Files = append(whole.list.Files, job.ListedFile{Name: q.body.Files[0].Name, Len: q.body.Files[0].Len, Content: idOf(whole.q.text)})
			whole.blob(whole.q.text)
			whole.q.body.Files, whole.q.text = nil, ""
			for _, with := range []bool{true, false} {
				if r := c.do(tc, whole.named(with)); r.Status != job.StatusRan || r.Exit != 0 || !bytes.Equal(r.bytes(r.Files[0].Segment), inline.bytes(inline.Files[0].Segment)) {
					t.Errorf("without files of its own: %+v\n%s", r.Result, r.bytes(r.Stderr))
				}
			}
			// A list that rests on another one, which has a file that this job does not see, and one too few.
			part := inParts(q)
			last := len(part.list.Files) - 1
			for part.list.Files[last].Same != 0 || slices.ContainsFunc(part.list.Files, func(f job.ListedFile) bool { return int(f.Same) == last+1 }) {
				last--
			}
			its := part.list.Files[last]
			part.list.Files[last] = job.ListedFile{Name: "src/m.h.not", Content: idOf("")}
			base := string((&job.List{Files: part.list.Files}).Append(nil))
			part.list.Base, part.list.Without, part.list.Files = idOf(base), []uint32{uint32(last)}, []job.ListedFile{its}
			if r := c.do(tc, part.named(true)); r.Cause != job.CauseLacks || !bytes.Equal(r.bytes(r.Stdout), part.list.Base[:]) {
				t.Errorf("without the base: %+v", r.Result)
			}
			part.blob(base)
			for _, with := range []bool{true, false} {
				if r := c.do(tc, part.named(with)); r.Status != job.StatusRan || r.Exit != 0 || !bytes.Equal(r.bytes(r.Files[0].Segment), inline.bytes(inline.Files[0].Segment)) {
					t.Errorf("with a base: %+v\n%s", r.Result, r.bytes(r.Stderr))
				}
			}
			part.list.Without = nil
			part.list.Files = append(part.list.Files, job.ListedFile{Name: "src/m.h.not", Content: idOf("")})
			if r := c.do(tc, part.named(true)); r.Cause != job.CauseMalformed {
				t.Errorf("a file of the base, once more: %+v", r.Result)
			}
		})
	}
	st := ts.Status()
	if st.Store.Contents == 0 || st.Store.Bytes == 0 || st.Store.Hits == 0 || st.Store.Lacks == 0 || st.Store.Most == 0 {
		t.Errorf("%+v", st.Store)
	}
}

// TestContentsInOrder: a job may name contents that an earlier, unanswered job brings, even if the source of
// that one has not been fetched yet.
func TestContentsInOrder(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 })
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	for round := range 10 {
		ts.keep.Shrink(1 << 30)
		first := all.named(true)
		first.offer = round%2 == 0
		ids := []uint64{c.start(ts.tool("gcc"), first), c.start(ts.tool("gcc"), all.named(false))}
		for i, id := range ids {
			if r := c.result(id); r.Status != job.StatusRan || r.Exit != 0 {
				t.Errorf("round %d, job %d: %+v", round, i, r.Result)
			}
		}
	}
}

// TestContentsBehindACancelled: a job that waits for an earlier one's contents does not wait
// for ever if that one is cancelled, or refused.
func TestContentsBehindACancelled(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 })
	p := listsProject(t, "gcc")
	gcc := ts.tool("gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	if r := c.do(gcc, all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	blob := bigSource(5 << 20)
	body := treeBody("gcc")
	body.Blobs = []job.Blob{{ID: idOf(blob), Len: uint64(len(blob))}}
	for i := range 20 {
		first := c.start(gcc, request{body: body, text: blob, offer: true})
		c.post(&job.Cancel{Seq: uint32(i), Jobs: []uint64{first}}, 0)
		second := c.start(gcc, all.named(false))
		if r := c.result(second); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("%+v", r.Result)
		}
		if r := c.result(first); r.Status != job.StatusRan && r.Cause != job.CauseCancelled {
			t.Fatalf("%+v", r.Result)
		}
		c.wait("the Cancel's Ack", func() bool { return c.acks[job.KindCancel] > i })
	}
	bad := request{body: body, text: blob[1:] + "x"}
	bad.offer = true
	first := c.start(gcc, bad)
	second := c.start(gcc, all.named(false))
	if r := c.result(second); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
	if r := c.result(first); r.Cause != job.CauseMalformed {
		t.Errorf("%+v", r.Result)
	}
}

// TestHeldContents: the contents that a job names stay until its files are laid out, whatever happens to the
// store meanwhile.
func TestHeldContents(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs, o.Store.Memory = 1, 1<<20 })
	id, pids, release := ts.slow()
	ts.link("gcc")
	if err := ts.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	gcc := ts.tool("gcc")
	if r := c.do(gcc, all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	slow := c.start(id, request{body: treeBody("gcc-13")})
	until(t, "the slow compile to run", func() bool { return len(pids()) > 0 })
	waits := c.start(gcc, all.named(false))
	until(t, "the job to wait", func() bool { return ts.Status().Load.Queued == 1 })
	ts.keep.Shrink(1 << 30)
	if st := ts.Status(); st.Store.Bytes < 300<<10 {
		t.Errorf("%d bytes are held for a job that waits", st.Store.Bytes)
	}
	release()
	if r := c.result(slow); r.Status != job.StatusRan {
		t.Errorf("%+v", r.Result)
	}
	if r := c.result(waits); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("a job whose contents had to go while it waited: %+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	ts.keep.Shrink(1 << 30)
	if st := ts.Status(); st.Store.Bytes != 0 {
		t.Errorf("%d bytes are held for no job", st.Store.Bytes)
	}
	// Cancelled while it waits, it lets go.
	slow = c.start(id, request{body: treeBody("gcc-13")})
	waits = c.start(gcc, all.named(true))
	c.post(&job.Cancel{Seq: 1, Jobs: []uint64{waits, slow}}, 0)
	c.result(waits)
	c.result(slow)
	ts.keep.Shrink(1 << 30)
	if st := ts.Status(); st.Store.Bytes != 0 {
		t.Errorf("%d bytes are held for a job that was cancelled", st.Store.Bytes)
	}
}

// TestNoRoomForContents: where the store is too small for what a job brings, or has no room at all, the job keeps that for
// itself.
func TestNoRoomForContents(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Store.Memory = 64 << 10 })
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	for range 2 {
		if r := c.do(ts.tool("gcc"), all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("a job whose contents find no room: %+v", r.Result)
		}
	}
	ts.keep.Limit(0)
	if r := c.do(ts.tool("gcc"), all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("without any room: %+v", r.Result)
	}
	// What has none and is not needed is no trouble.
	body := treeBody("gcc")
	blob := bigSource(100 << 10)
	body.Blobs = []job.Blob{{ID: idOf(blob), Len: uint64(len(blob))}}
	if r := c.do(ts.tool("gcc"), request{body: body, text: blob}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("a job with a content that it does not name: %+v", r.Result)
	}
}

// TestContentsOfOneJob: what a job brings does not push out of a full store what the same job only names.
func TestContentsOfOneJob(t *testing.T) {
	ts, c := startTrees(t, nil)
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	gcc := ts.tool("gcc")
	if r := c.do(gcc, all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	st := ts.keep.Stats()
	ts.keep.Limit((st.Bytes+st.Common)*8/7 + 100<<10)
	more := *all
	text := bigSource(200 << 10)
	more.list.Files = append(slices.Clone(all.list.Files), job.ListedFile{Name: "/x/new.h", Len: uint64(len(text)), Content: idOf(text)})
	more.blobs, more.text = nil, ""
	more.blob(text)
	if r := c.do(gcc, more.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("with one more: %+v", r.Result)
	}
}

// TestHostileContents: what a client says about contents is checked, and contents that do not match are not
// kept.
func TestHostileContents(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 })
	p := listsProject(t, "gcc")
	gcc := ts.tool("gcc")
	plainly := request{body: p.body, text: p.text, sink: 4 << 20}
	good := inParts(plainly)
	listText := string(good.list.Append(nil))
	for name, k := range map[string]struct {
		cause  job.Cause
		change func(x *listed, q *request)
		with   func(x *listed) // the list
	}{
		"a content under another name": {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.body.Blobs[0].ID[5] ^= 1 }},
		"two that have changed places": {cause: job.CauseMalformed, change: func(x *listed, q *request) {
			q.body.Blobs[0], q.body.Blobs[1] = q.body.Blobs[1], q.body.Blobs[0]
		}},
		"a content too many":     {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.text += "x" }},
		"a content cut short":    {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.text = q.text[:len(q.text)-1] }},
		"contents without files": {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.body.Files, q.body.Lists, q.text = nil, nil, x.text }},
		"not said beforehand":    {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.change = func(m *job.Job) { m.Store = false } }},
		"said without a reason": {cause: job.CauseMalformed, change: func(x *listed, q *request) {
			*q = plainly
			q.change = func(m *job.Job) { m.Store = true }
		}},
		"said of text": {cause: job.CauseMalformed, change: func(x *listed, q *request) {
			*q = request{body: compileBody("c", "a.c"), change: func(m *job.Job) { m.Store = true }}
		}},
		"a list that is none":  {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.body.Lists = []unit.ContentID{x.list.Files[0].Content} }},
		"a list that is empty": {cause: job.CauseMalformed, change: func(x *listed, q *request) { q.body.Lists = []unit.ContentID{idOf("")} }},
		"a list of a list":     {cause: job.CauseLacks, change: func(x *listed, q *request) { q.body.Lists = append(q.body.Lists, unit.ContentID{1}) }},
		"a file twice, here and there": {cause: job.CauseMalformed, change: func(x *listed, q *request) {
			q.body.Files = append(q.body.Files, unit.File{Name: x.list.Files[0].Name})
		}},
		"a file twice in a list": {cause: job.CauseMalformed, with: func(x *listed) { x.list.Files = append(x.list.Files, x.list.Files[0]) }},
		"a file twice, spelled differently": {cause: job.CauseMalformed, with: func(x *listed) {
			f := x.list.Files[slices.IndexFunc(x.list.Files, func(f job.ListedFile) bool { return f.Name == "src/m.h" })]
			f.Name = p.dir + "/src/../src/m.h"
			x.list.Files = append(x.list.Files, f)
		}},
		"another length":      {cause: job.CauseMalformed, with: func(x *listed) { x.list.Files[0].Len++ }},
		"no length":           {cause: job.CauseMalformed, with: func(x *listed) { x.list.Files[0].Len = 0 }},
		"a content not there": {cause: job.CauseLacks, with: func(x *listed) { x.list.Files[0].Content[0] ^= 1 }},
		"more than may be": {cause: job.CauseTooBig, with: func(x *listed) {
			i := slices.IndexFunc(x.list.Files, func(f job.ListedFile) bool { return f.Name == "src/big.h" })
			for j := range 40 {
				f := x.list.Files[i]
				f.Name = fmt.Sprintf("src/big%d.h", j)
				x.list.Files = append(x.list.Files, f)
			}
		}},
		"lengths that wrap":      {cause: job.CauseTooBig, with: func(x *listed) { x.list.Files = x.list.Files[:1]; x.list.Files[0].Len = 1<<64 - 1 }},
		"a precompiled header":   {cause: job.CausePolicy, with: func(x *listed) { x.list.Files[0].Name = "src/m.h.gch" }},
		"a directory of them":    {cause: job.CausePolicy, with: func(x *listed) { x.list.Dirs = append(x.list.Dirs, "src/m.h.gch") }},
		"a link to one":          {cause: job.CausePolicy, with: func(x *listed) { x.list.Links = append(x.list.Links, unit.Link{Name: "/l", Target: "/x.gch"}) }},
		"specs":                  {cause: job.CausePolicy, with: func(x *listed) { x.list.Files[0].Name = "/usr/lib/gcc/specs" }},
		"a file of the compiler": {cause: job.CauseTree, with: func(x *listed) { x.list.Files[0].Name = realPath(t, p.compiler) }},
		"a nameless directory":   {cause: job.CauseMalformed, with: func(x *listed) { x.list.Dirs = []string{""} }},
		"text for gcc's memory": {cause: job.CausePolicy, with: func(x *listed) {
			// Of text that is preprocessed already all is looked at, that in lists as well.
			const pch = "#pragma GCC pch_preprocess \"x\"\n"
			x.blob(pch)
			x.list.Files = append(x.list.Files, job.ListedFile{Name: "src/x.i", Len: uint64(len(pch)), Content: idOf(pch)})
		}, change: func(x *listed, q *request) {
			q.body.Files[0].Name = "src/a.i"
			q.body.Name = "a.i"
			q.body.Args = []string{"-c", "src/a.i", "-o", "a.o"}
			q.body.Outputs = q.body.Outputs[:1]
			q.body.Language = "cpp-output"
		}},
	} {
		ts.keep.Shrink(1 << 30)
		x := inParts(plainly)
		x.q.body.Files = slices.Clone(x.q.body.Files)
		if k.with != nil {
			k.with(x)
		}
		q := x.named(true)
		if k.change != nil {
			k.change(x, &q)
		}
		if r := c.do(gcc, q); r.Status != job.StatusRefused || r.Cause != k.cause {
			t.Errorf("%s: %+v, want a refusal for %v", name, r.Result, k.cause)
		}
		// The store has nothing wrong from it.
		if r := c.do(gcc, good.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("after %s: %+v\n%s", name, r.Result, r.bytes(r.Stderr))
		}
	}
	if keeps := ts.keep.Open(localTenant); true {
		c := keeps.Pin(idOf(listText))
		if c == nil || string(c.Bytes()) != listText {
			t.Error("the good list is not there")
		} else {
			c.Unpin()
		}
		keeps.Close()
	}
}

// TestSpoiledContents: a content that was corrupted in memory is not compiled; the client sends it again.
func TestSpoiledContents(t *testing.T) {
	ts, c := startTrees(t, nil)
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	gcc := ts.tool("gcc")
	if r := c.do(gcc, all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	keeps := ts.keep.Open(localTenant)
	// One of the client's own: what this machine has as well does not come again.
	own := slices.IndexFunc(all.list.Files, func(f job.ListedFile) bool { return f.Name == "src/big.h" })
	x := keeps.Pin(all.list.Files[own].Content)
	x.Bytes()[x.Len()/2] ^= 0x20
	x.Unpin()
	keeps.Close()
	if r := c.do(gcc, all.named(false)); r.Status != job.StatusFailed || r.Cause != job.CauseDigest {
		t.Errorf("with a flipped bit in memory: %+v", r.Result)
	}
	if r := c.do(gcc, all.named(false)); r.Status != job.StatusRefused || r.Cause != job.CauseLacks {
		t.Errorf("after that: %+v", r.Result)
	}
	for _, with := range []bool{true, false} {
		if r := c.do(gcc, all.named(with)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("sent again: %+v", r.Result)
		}
	}
}

// onDisk makes a server keep contents in a directory.
func onDisk(dir string) func(*Options) {
	return func(o *Options) { o.Store = store.Options{Disk: 64 << 20, Dir: dir, Keep: time.Hour} }
}

// TestRestartWithDisk: the next daemon has what this one was sent, except what was corrupted on disk: it
// lacks that, and logs one line.
func TestRestartWithDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	ts, c := startTrees(t, onDisk(dir))
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	epoch := c.welcome.StoreEpoch
	if r := c.do(ts.tool("gcc"), all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	ts.Close()
	ts, c = startTrees(t, onDisk(dir))
	if c.welcome.StoreEpoch != epoch {
		t.Error("another epoch, and nothing was wiped")
	}
	if r := c.do(ts.tool("gcc"), all.named(false)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("after a restart: %+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	ts.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*-*", fmt.Sprintf("%x", idOf(bigSource(300<<10)))))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of the big header: %q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.WriteFile(files[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ts, c = startTrees(t, onDisk(dir))
	if r := c.do(ts.tool("gcc"), all.named(false)); r.Status != job.StatusRefused || r.Cause != job.CauseLacks {
		t.Errorf("with a flipped bit on disk: %+v", r.Result)
	}
	for _, with := range []bool{true, false} {
		if r := c.do(ts.tool("gcc"), all.named(with)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("sent again: %+v", r.Result)
		}
	}
	if n := strings.Count(ts.log.String(), "contents on disk"); n != 1 {
		t.Errorf("%d lines of it in the log", n)
	}
}

// TestFullDiskOfContents: a disk without room costs a line in the log.
func TestFullDiskOfContents(t *testing.T) {
	base := t.TempDir()
	if err := unix.Mount("none", base, "tmpfs", 0, "size=100k"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(base, 0); err != nil {
			t.Error(err)
		}
	})
	ts, c := startTrees(t, onDisk(filepath.Join(base, "store")))
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	for _, with := range []bool{true, false, false} {
		if r := c.do(ts.tool("gcc"), all.named(with)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%+v", r.Result)
		}
	}
	until(t, "the line in the log", func() bool { return strings.Contains(ts.log.String(), "contents on disk") })
	if n := strings.Count(ts.log.String(), "contents on disk"); n != 1 {
		t.Errorf("%d lines of it in the log", n)
	}
	if err := ts.Ready(); err != nil {
		t.Errorf("the host takes no work: %v", err)
	}
}

// TestContentsOfTwoTenants: each tenant has contents of its own, even for the same path, and does not get
// what another has brought.
func TestContentsOfTwoTenants(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Store.Memory = 2 << 20 })
	if !ts.places.Trees {
		t.Skip("needs the right to make namespaces")
	}
	gcc := ts.tool("gcc")
	a, b := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{}), dialFrom(t, "127.0.0.3", addr, 2, &job.Hello{})
	if a.welcome.StoreEpoch == b.welcome.StoreEpoch {
		t.Error("two tenants have the same epoch")
	}
	project := func(n string) *listed {
		header := "#define N " + n + "\n"
		src := "#include \"n.h\"\nint n[N];\n"
		body := treeBody("gcc")
		body.Files = []unit.File{{Name: "a.c", Len: uint64(len(src))}, {Name: "n.h", Len: uint64(len(header))}}
		return inParts(request{body: body, text: src + header})
	}
	mine, yours := project("5"), project("7")
	want := map[*testClient][]byte{}
	for c, x := range map[*testClient]*listed{a: mine, b: yours} {
		r := c.do(gcc, x.named(true))
		if r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
		want[c] = bytes.Clone(r.bytes(r.Files[0].Segment))
	}
	if bytes.Equal(want[a], want[b]) {
		t.Fatal("the two objects are the same")
	}
	for range 3 {
		for c, x := range map[*testClient]*listed{a: mine, b: yours} {
			if r := c.do(gcc, x.named(false)); r.Status != job.StatusRan || !bytes.Equal(r.bytes(r.Files[0].Segment), want[c]) {
				t.Errorf("%+v", r.Result)
			}
		}
		for c, x := range map[*testClient]*listed{a: yours, b: mine} {
			if r := c.do(gcc, x.named(false)); r.Status != job.StatusRefused || r.Cause != job.CauseLacks {
				t.Errorf("another tenant's contents: %+v", r.Result)
			}
		}
	}
	// A flood of one's leaves the other one its own.
	body := treeBody("gcc")
	for i := range 40 {
		blob := strings.Repeat(fmt.Sprintf("/* %d */", i), 20_000)
		body.Blobs = []job.Blob{{ID: idOf(blob), Len: uint64(len(blob))}}
		if r := b.do(gcc, request{body: body, text: blob}); r.Status != job.StatusRan {
			t.Fatalf("%+v", r.Result)
		}
	}
	if r := a.do(gcc, mine.named(false)); r.Status != job.StatusRan {
		t.Errorf("after another tenant's flood: %+v", r.Result)
	}
	if ts.Status().Store.Evictions == 0 {
		t.Error("nothing was evicted")
	}
	// Who has gone leaves nothing.
	a.qp.Abort()
	b.qp.Abort()
	until(t, "the contents to go", func() bool { return ts.Status().Store.Contents == 0 })
}

// TestNoStore: if there is no store, because it is off or not possible, the Welcome says so, and jobs that
// need one are refused.
func TestNoStore(t *testing.T) {
	part.Skip(t)
	body := treeBody("gcc")
	body.Lists = []unit.ContentID{{1}}
	for name, k := range map[string]struct {
		cause  job.Cause
		change func(*Options)
	}{
		"no trees":   {job.CauseTree, func(o *Options) { o.Tree = TreeOff }},
		"not wanted": {job.CauseMalformed, func(o *Options) { o.NoStore = true }},
	} {
		t.Run(name, func(t *testing.T) { // so that one server has ended before the next one's descriptors are counted
			ts := startServer(t, k.change)
			if k.cause == job.CauseMalformed && !ts.places.Trees {
				t.Skip("needs the right to make namespaces")
			}
			c := dial(t, ts.addr, &job.Hello{})
			if c.welcome.Store != 0 || c.welcome.StoreEpoch != 0 {
				t.Errorf("the Welcome says %d, %d", c.welcome.Store, c.welcome.StoreEpoch)
			}
			if r := c.do(ts.tool("gcc"), request{body: body}); r.Status != job.StatusRefused || r.Cause != k.cause {
				t.Errorf("%+v", r.Result)
			}
		})
	}
}

// TestContentsMakeWay: contents are dropped when the machine is short of memory.
func TestContentsMakeWay(t *testing.T) {
	s := store.New(store.Options{Memory: 64 << 20})
	x := s.Open("x")
	defer x.Close()
	for i := range 500 {
		text := strings.Repeat(fmt.Sprintf("%03d", i), 33_000)
		c, err := x.Put(idOf(text), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.Unpin()
	}
	srv := &Server{keep: s, places: &run.Host{Images: images.New(t.TempDir(), 1<<20)}}
	look := func(free uint64, pressure uint16) int64 {
		srv.load.Store(&hostLoad{memoryFree: free, pressure: job.Pressure{Memory: pressure}})
		srv.fitStore()
		return s.Stats().Bytes
	}
	full := s.Stats().Bytes
	if got := look(8<<30, 0); got != full {
		t.Errorf("%d of %d bytes are left, with memory free", got, full)
	}
	if got := look(0, job.NoPressure); got != full {
		t.Errorf("%d of %d bytes are left where nothing is known", got, full)
	}
	if got := look(8<<30, 30_00); got > full/2 {
		t.Errorf("%d of %d bytes are left under pressure", got, full)
	}
	for range 20 { // it stays as it is
		if got := look(64<<20, 30_00); got > storeLeft || got < storeLeft*3/4 {
			t.Errorf("%d of %d bytes are left, without memory", got, full)
		}
	}
	c, err := x.Put(idOf("y"), []byte("y"))
	if err != nil {
		t.Errorf("Put without memory: %v", err)
	} else {
		c.Unpin()
	}
	look(8<<30, 0)
	c, err = x.Put(idOf("x"), []byte("x"))
	if err != nil {
		t.Fatalf("Put with memory again: %v", err)
	}
	c.Unpin()
}

// TestLacksSaysWhich: a job that is refused for what it names says which contents these are, and no more.
func TestLacksSaysWhich(t *testing.T) {
	ts, c := startTrees(t, nil)
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	gcc := ts.tool("gcc")
	wants := func(what string, q request, ids ...unit.ContentID) {
		t.Helper()
		r := c.do(gcc, q)
		var want []byte
		for _, id := range ids {
			want = append(want, id[:]...)
		}
		if r.Status != job.StatusRefused || r.Cause != job.CauseLacks {
			t.Fatalf("%s: %+v", what, r.Result)
		}
		if got := r.bytes(r.Stdout); !bytes.Equal(got, want) || len(want) > 0 && r.Digest != digest.Sum(want) {
			t.Errorf("%s: it says %x, want %x", what, got, want)
		}
	}
	q := all.named(false)
	wants("nothing is there", q, q.body.Lists[0])
	if r := c.do(gcc, all.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	more := *all
	more.list.Files = append(slices.Clone(all.list.Files), job.ListedFile{Name: "/x/1.h", Len: 1, Content: idOf("1")}, job.ListedFile{Name: "/x/2.h", Len: 1, Content: idOf("2")})
	more.blobs, more.text = nil, ""
	wants("two of many are not", more.named(true), idOf("1"), idOf("2"))
	few := q
	few.body.Lists = append(slices.Clone(q.body.Lists), idOf("no list"))
	wants("a second list is not", few, idOf("no list"))
	few = more.named(false)
	few.sink = 63
	wants("there is no room to say it", few)
	more.blob("1")
	more.blob("2")
	if r := c.do(gcc, more.named(true)); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("with what it lacked: %+v\n%s", r.Result, r.bytes(r.Stderr))
	}
}
