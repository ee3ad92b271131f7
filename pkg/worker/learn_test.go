package worker

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// awaitLesson waits for the end of a server's first lesson.
func (ts *testServer) awaitLesson() {
	ts.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(ts.log.String(), "own headers are known"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.t.Fatal("the headers are not known")
		}
	}
}

// TestLearnsItsHeaders: a server has read its headers before a job names one, and a job that names one gets
// it from there.
func TestLearnsItsHeaders(t *testing.T) {
	text := headerText(t)
	ts, c := startTrees(t, func(o *Options) { o.Learn = true })
	ts.awaitLesson()
	st := ts.Status().Store
	if n := ts.machine.Known(); n == 0 || n > 2048 || st.Common == 0 || st.Common > 12<<20+int64(n)*512 {
		t.Fatalf("%d headers are known, of %d bytes", n, st.Common)
	}
	if st.Bytes != 0 || st.Contents != 0 {
		t.Errorf("%+v: clients have nothing yet", st)
	}
	body, source := headerJob()
	p := &listed{q: request{body: body, text: source, sink: 64 << 10}}
	p.list.Files = []job.ListedFile{{Name: header, Len: uint64(len(text)), MTime: 1e18, Content: idOf(string(text))}}
	q := p.named(false)
	l := string(p.list.Append(nil))
	q.body.Blobs = []job.Blob{{ID: idOf(l), Len: uint64(len(l))}}
	q.text += l
	for range 2 {
		r := c.do(ts.tool("gcc"), q)
		if r.Status != job.StatusRan || r.Exit != 0 || !bytes.Contains(r.bytes(r.Files[0].Segment), []byte("there")) {
			t.Fatalf("%+v\n%s", r.Result, r.bytes(r.Stderr))
		}
	}
	after := ts.Status().Store
	if after.Own != 1 || after.Contents != 2 || after.Common != st.Common {
		t.Errorf("%+v: want the list and one header of this machine's own", after)
	}
	if after.Bytes >= 2*4096 { // the list's page, and what two contents take beside
		t.Errorf("%d bytes are a client's: it has a copy", after.Bytes)
	}
}
