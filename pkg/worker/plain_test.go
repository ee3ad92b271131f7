package worker

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// plain returns a request's source before it is packed.
func plain(q request) []byte {
	b := q.body.Append(nil)
	b = append(b, make([]byte, job.TextOffset(len(b))-len(b))...)
	return append(b, q.text...)
}

// packed starts q with its source as one frame, or as frame if that is given.
func (c *testClient) packed(tc unit.ToolchainID, q request, frame []byte) *testResult {
	c.t.Helper()
	src := plain(q)
	if frame == nil {
		frame, _ = compress.Pack(nil, src)
	}
	body := q.body.Append(nil)
	change := q.change
	q.raw = frame
	q.change = func(m *job.Job) {
		m.BodyLen, m.TextOff, m.TextLen = uint32(len(body)), uint32(job.TextOffset(len(body))), uint64(len(q.text))
		m.Packed, m.Digest = uint64(len(frame)), digest.Sum(src)
		if change != nil {
			change(m)
		}
	}
	return c.do(tc, q)
}

// whole returns a result as it was before it was packed and sent.
func (c *testClient) whole(r *testResult) []byte {
	c.t.Helper()
	got := r.sink
	if r.Window.STag != 0 {
		got = c.read(r.Window)
	}
	end := max(r.Stdout.Off+r.Stdout.Len, r.Stderr.Off+r.Stderr.Len)
	for _, f := range r.Files {
		end = max(end, f.Off+f.Len)
	}
	if r.Packed != 0 {
		var err error
		if got, err = compress.Unpack(nil, got[:r.Packed], 1<<26); err != nil {
			c.t.Fatal(err)
		}
	}
	if d := digest.Sum(got[:end]); d != r.Digest {
		c.t.Errorf("digest %x of a result whose sum is %x", r.Digest, d)
	}
	return got[:end]
}

// A packed source compiles to the same object as the plain one, wherever it is and however long, and a packed
// result unpacks to the plain one.
func TestPacked(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ts := startServer(t, small)
	c := dial(t, ts.addr, &job.Hello{})
	if !c.welcome.Zstd {
		t.Error("the Welcome does not offer zstd")
	}
	gcc := ts.tool("gcc")
	zstd := func(m *job.Job) { m.Zstd = true }
	for _, k := range []struct {
		name, text string
		offer      bool
		sink       int
		packs      bool // the result
	}{
		{"short", hello, false, 0, false},
		{"a table", "int table[4096] = {1, 2, 3};\n", false, 0, true},
		{"longer than the slot", strings.Repeat(" ", 3<<20) + hello, false, 0, false},
		{"longer than a runner keeps", strings.Repeat(" ", 6<<20) + hello, false, 0, false},
		{"in a window", bigSource(2 << 20), true, 0, false},
		{"a result in a window", "int table[500000] = {1, 2, 3};\n", false, 64 << 10, true},
	} {
		q := request{body: compileBody("cpp-output", "a.c"), text: k.text, offer: k.offer, sink: k.sink, fetch: 8 << 20}
		ref := q
		ref.offer = len(k.text) > 512<<10
		want := c.do(gcc, ref)
		if want.Status != job.StatusRan || want.Exit != 0 || want.Packed != 0 {
			t.Fatalf("%s, plain: %+v", k.name, want.Result)
		}
		q.change = zstd
		r := c.packed(gcc, q, nil)
		if r.Status != job.StatusRan || r.Exit != 0 || (r.Packed != 0) != k.packs {
			t.Errorf("%s: %+v", k.name, r.Result)
			continue
		}
		if !bytes.Equal(c.whole(r), c.whole(want)) {
			t.Errorf("%s: another object", k.name)
		}
		for _, x := range []*testResult{want, r} {
			if x.Window.STag != 0 {
				c.post(&job.Release{ID: x.ID}, x.Window.STag)
			}
		}
	}
	ts.given()
}

// A source that differs from the one that was sent is not compiled: nothing runs.
func TestWrongDigest(t *testing.T) {
	ts := startServer(t, small)
	mark := t.TempDir() + "/ran"
	id := ts.fake("gcc-13", "touch "+mark+"; echo x >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	q := request{body: compileBody("cpp-output", "a.c"), text: hello}
	src := plain(q)
	frame, _ := compress.Pack(nil, src)
	bomb, _ := compress.Pack(nil, make([]byte, 32<<20))
	short, _ := compress.Pack(nil, src[:len(src)-1])
	broken := bytes.Clone(frame)
	broken[len(broken)/2] ^= 0x10
	wrong := q
	wrong.change = func(m *job.Job) { m.Digest = digest.Sum([]byte("another")) }
	wrongOffer := wrong
	wrongOffer.offer = true
	for name, do := range map[string]func() *testResult{
		"plain":               func() *testResult { return c.do(id, wrong) },
		"fetched":             func() *testResult { return c.do(id, wrongOffer) },
		"packed":              func() *testResult { return c.packed(id, wrong, nil) },
		"no frame":            func() *testResult { return c.packed(id, q, []byte("no frame at all")) },
		"a broken frame":      func() *testResult { return c.packed(id, q, broken) },
		"a frame that swells": func() *testResult { return c.packed(id, q, bomb) },
		"a shorter source":    func() *testResult { return c.packed(id, q, short) },
	} {
		r := do()
		if r.Status != job.StatusFailed || r.Cause != job.CauseDigest || r.Next == nil {
			t.Errorf("%s: %+v", name, r.Result)
		}
	}
	past := q
	past.change = func(m *job.Job) { m.Packed = 1 << 40 }
	if r := c.packed(id, past, nil); r.Status != job.StatusRefused || r.Cause != job.CauseMalformed {
		t.Errorf("a frame past the slot: %+v", r.Result)
	}
	if exists(mark) {
		t.Error("the compiler ran")
	}
	q.change = func(m *job.Job) { m.Digest = digest.Sum(src) }
	if r := c.do(id, q); r.Status != job.StatusRan || r.Exit != 0 || !exists(mark) {
		t.Errorf("the right one: %+v", r.Result)
	}
	ts.given()
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
