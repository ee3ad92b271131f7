package worker

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// header is a system header that every machine with a compiler has.
const header = "/usr/include/errno.h"

func headerText(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Skip("needs libc's headers: ", err)
	}
	return text
}

// headerJob returns a compile whose object says whether it saw header.
func headerJob() (body job.Body, source string) {
	body, source = treeBody("gcc"), "#if __has_include(<errno.h>)\nint there;\n#endif\n"
	body.Files[0].Len = uint64(len(source))
	return body, source
}

// TestSystemHeaders: a system header that a job names need never be sent if this machine has the same one.
func TestSystemHeaders(t *testing.T) {
	text := headerText(t)
	ts, c := startTrees(t, nil)
	gcc := ts.tool("gcc")
	body, source := headerJob()
	list := func(name, content string) request {
		p := &listed{q: request{body: body, text: source, sink: 64 << 10}}
		p.list.Files = []job.ListedFile{{Name: name, Len: uint64(len(content)), MTime: 1e18, Content: idOf(content)}}
		q := p.named(false)
		l := string(p.list.Append(nil))
		q.body.Blobs = []job.Blob{{ID: idOf(l), Len: uint64(len(l))}}
		q.text += l
		return q
	}
	r := c.do(gcc, list(header, string(text)))
	if r.Status != job.StatusRan || r.Exit != 0 || !bytes.Contains(r.bytes(r.Files[0].Segment), []byte("there")) {
		t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	if st := ts.Status().Store; st.Own != 1 || st.Lacks != 0 {
		t.Errorf("%+v: want one content of this machine's own, and none that is lacking", st)
	}
	other := bytes.Clone(text)
	other[len(other)/2] ^= 1
	for what, q := range map[string]request{
		"another content":         list(header, string(other)),
		"another length":          list(header, string(text)+"\n"),
		"not one of the system's": list("/etc/hostname.h", "x"),
	} {
		if r := c.do(gcc, q); r.Cause != job.CauseLacks || r.Stdout.Len != 32 {
			t.Errorf("%s: %+v", what, r.Result)
		}
	}
}

// TestAbridgedLists: a list may omit the sums of files that this machine has itself. It counts only if the
// completed list is the one that is named.
func TestAbridgedLists(t *testing.T) {
	text := headerText(t)
	ts, c := startTrees(t, nil)
	gcc := ts.tool("gcc")
	body, source := headerJob()
	list := job.List{Files: []job.ListedFile{
		{Name: header, Len: uint64(len(text)), MTime: 1e18, Content: idOf(string(text))},
		{Name: "/usr/include/same.h", MTime: 1e18, Same: 1},
		{Name: "/usr/include/empty.h", MTime: 1e18, Content: idOf("")},
	}}
	ask := func(id unit.ContentID, frame []byte) *testResult {
		q := request{body: body, text: source + string(frame), sink: 64 << 10}
		q.body.Lists = []unit.ContentID{id}
		q.body.Blobs = []job.Blob{{ID: id, Len: uint64(len(frame)), Abridged: true}}
		return c.do(gcc, q)
	}
	abridged := func(l job.List) []byte {
		l.Files = slices.Clone(l.Files)
		if l.Abridge() == 0 {
			t.Fatal("nothing is left out")
		}
		frame, err := compress.Pack(nil, l.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	id := idOf(string(list.Append(nil)))
	other := list
	other.Files = slices.Clone(list.Files)
	other.Files[0].Content[5] ^= 1
	longer := list
	longer.Files = slices.Clone(list.Files)
	longer.Files[0].Len++
	for what, l := range map[string]job.List{"another content here": other, "another length here": longer} {
		id := idOf(string(l.Append(nil)))
		if r := ask(id, abridged(l)); r.Cause != job.CauseLacks || !bytes.Equal(r.bytes(r.Stdout), id[:]) {
			t.Errorf("%s: %+v", what, r.Result)
		}
	}
	if st := ts.Status().Store; st.Own != 1 || st.Lacks != 2 {
		t.Errorf("%+v: want two lists that are lacking, and one content of this machine's own, which nobody had looked for in vain", st)
	}
	frame := abridged(list)
	huge, err := compress.Pack(nil, make([]byte, job.MaxBodyLen+1))
	if err != nil {
		t.Fatal(err)
	}
	noList, err := compress.Pack(nil, []byte("no list at all"))
	if err != nil {
		t.Fatal(err)
	}
	for what, frame := range map[string][]byte{"no frame": []byte("x"), "half a frame": frame[:len(frame)/2], "too long a list": huge, "no list": noList} {
		if r := ask(id, frame); r.Cause != job.CauseMalformed {
			t.Errorf("%s: %+v", what, r.Result)
		}
	}
	if r := ask(id, frame); r.Status != job.StatusRan || r.Exit != 0 || !bytes.Contains(r.bytes(r.Files[0].Segment), []byte("there")) {
		t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
	q := request{body: body, text: source, sink: 64 << 10}
	q.body.Lists = []unit.ContentID{id}
	if r := c.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("named, once it is there: %+v\n%s", r.Result, r.bytes(r.Stderr))
	}
}

// TestManyOwnFiles: an abridged list of hundreds of this machine's own files is completed, and is not if one
// differs.
func TestManyOwnFiles(t *testing.T) {
	ts, c := startTrees(t, nil)
	gcc := ts.tool("gcc")
	body, source := headerJob()
	var list job.List
	_ = filepath.WalkDir("/usr/include", func(name string, d fs.DirEntry, err error) error {
		if len(list.Files) == 300 {
			return fs.SkipAll
		}
		if text, err := os.ReadFile(name); err == nil && d.Type().IsRegular() && len(text) > 0 && len(text) < 2<<10 {
			list.Files = append(list.Files, job.ListedFile{Name: name, Len: uint64(len(text)), MTime: 1e18, Content: idOf(string(text))})
		}
		return nil
	})
	if len(list.Files) < 300 {
		t.Skipf("needs 300 headers of the system's, and there are %d", len(list.Files))
	}
	list.Files = append(list.Files, job.ListedFile{Name: header, Len: uint64(len(headerText(t))), MTime: 1e18, Content: idOf(string(headerText(t)))})
	list.Files = list.Files[:slices.IndexFunc(list.Files, func(f job.ListedFile) bool { return f.Name == header })+1] // once
	right := slices.Clone(list.Files)
	ask := func(id unit.ContentID) *testResult {
		whole := list
		whole.Files = slices.Clone(list.Files)
		if whole.Abridge() != len(right) {
			t.Fatal("not all is left out")
		}
		frame, err := compress.Pack(nil, whole.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		q := request{body: body, text: source + string(frame), sink: 64 << 10}
		q.body.Lists = []unit.ContentID{id}
		q.body.Blobs = []job.Blob{{ID: id, Len: uint64(len(frame)), Abridged: true}}
		return c.do(gcc, q)
	}
	for _, n := range []int{0, len(right) / 2, len(right) - 1} {
		list.Files = slices.Clone(right)
		list.Files[n].Len++
		id := idOf(string(list.Append(nil)))
		if r := ask(id); r.Cause != job.CauseLacks || !bytes.Equal(r.bytes(r.Stdout), id[:]) {
			t.Errorf("file %d is another one: %+v", n, r.Result)
		}
	}
	list.Files = right
	if r := ask(idOf(string(list.Append(nil)))); r.Status != job.StatusRan || r.Exit != 0 || !bytes.Contains(r.bytes(r.Files[0].Segment), []byte("there")) {
		t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
	}
}
