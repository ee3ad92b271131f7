package worker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	format "github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
	"github.com/rdistcc/rdistcc/pkg/worker/shelves"
)

// look finds a result on the client's shelf by RDMA Reads, and decodes it. It returns nil if there is none.
func (c *testClient) look(key resultcache.Key) *resultcache.Entry {
	c.t.Helper()
	w := c.welcome.Shelf
	part := func(off, n uint64) (b []byte) {
		for ; n > 0; off, n = off+min(n, iwarp.GuardedMax), n-min(n, iwarp.GuardedMax) {
			b = append(b, c.read(job.Window{STag: w.STag, TO: w.TO + off, Len: min(n, iwarp.GuardedMax)})...)
		}
		return b
	}
	var x format.Index
	h, err := format.ParseHead(part(0, format.HeadLen), w.Len)
	if err == nil {
		err = x.Learn(h)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		off, n := x.Next()
		if n == 0 {
			break
		}
		x.Add(part(off, n))
	}
	p, ok := x.Find(key)
	if !ok {
		return nil
	}
	e, err := resultcache.Decode(part(p.Off, uint64(p.Len)), key, func(n int) ([]byte, error) { return make([]byte, n), nil })
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// keyed is a job of the sources form with a Key.
func keyed(text string, key resultcache.Key) request {
	q := request{body: treeBody("gcc"), text: text, change: func(m *job.Job) { m.Key = key }}
	q.body.Files[0].Len = uint64(len(text))
	return q
}

// TestShelf: a result that a client has named is read by another client of its tenant, packed or not, without
// any message to the daemon; failed, unnamed and cut ones are not there; and nothing is there for other tenants.
func TestShelf(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Results = 16 << 20 })
	other := dial(t, ts.addr, &job.Hello{Name: "other"})
	if c.welcome.Shelf.STag == 0 || c.welcome.Shelf.STag == other.welcome.Shelf.STag || c.welcome.Shelf.Len == 0 {
		t.Fatalf("%+v and %+v", c.welcome.Shelf, other.welcome.Shelf)
	}
	gcc := ts.tool("gcc")
	const code = "int f(int x) { return x + 1; }\n"
	big := code + "int big[] = {" + string(bytes.Repeat([]byte("1,"), 20000)) + "};\n#warning told\n"
	for i, text := range []string{code, big} {
		for _, packed := range []bool{false, true} {
			key := resultcache.Key{1, byte(i)}
			q := keyed(text, key)
			q.change = func(m *job.Job) { m.Key, m.Zstd = key, packed }
			r := c.do(gcc, q)
			if r.Status != job.StatusRan || r.Exit != 0 || packed && i == 1 && r.Packed == 0 {
				t.Fatalf("%+v: %s", r.Result, r.bytes(r.Stderr))
			}
			plain := r.sink
			if r.Packed != 0 {
				n, _ := compress.Len(r.sink[:r.Packed])
				var err error
				if plain, err = compress.Unpack(nil, r.sink[:r.Packed], n); err != nil {
					t.Fatal(err)
				}
			}
			var e *resultcache.Entry
			until(t, "a look without any message", func() bool { // there may be Acks and heartbeats
				before := ts.messages()
				e = other.look(key)
				return ts.messages() == before
			})
			if e == nil || len(e.Files) != 1 || !bytes.Equal(e.Files[0].Data, plain[r.Files[0].Off:][:r.Files[0].Len]) ||
				!bytes.Equal(e.Stderr, plain[r.Stderr.Off:][:r.Stderr.Len]) || (len(e.Stderr) > 0) != (i == 1) {
				t.Fatalf("source %d, packed %v: %+v", i, packed, e)
			}
			if e.Source != "a.c" || e.CPU == 0 || e.Wall == 0 || time.Since(e.Made) > time.Hour {
				t.Errorf("%+v", e.Origin)
			}
		}
	}
	c.do(gcc, keyed("int f(int x) { return y; }\n", resultcache.Key{2}))
	c.do(gcc, keyed(code, resultcache.Key{}))
	for _, key := range []resultcache.Key{{2}, {}} {
		if e := other.look(key); e != nil {
			t.Errorf("%v: %+v", key, e)
		}
	}
	if st := ts.Status().Results; st.Entries != 4 || st.Kept != 4 || st.Tenants != 1 || st.Bytes < 8<<10 {
		t.Errorf("%+v", st)
	}
	c.close()
	other.close()
	until(t, "the clients to be gone", func() bool { return len(ts.Status().Clients) == 0 })
	if again := dial(t, ts.addr, &job.Hello{}); again.look(resultcache.Key{1, 1}) == nil {
		t.Error("the shelf is gone with its tenant's connections")
	}
}

// TestShelfInAFile: a shelf that is in a file is read as any other, by another server too. One that cannot be in a file,
// because the device answers Reads from memory only, is in memory.
func TestShelfInAFile(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "rdistcc-worker-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk := func(o *Options) {
		o.Results, o.ResultsDir, o.ResultsDisk = 16<<20, filepath.Join(dir, "results"), 64<<20
	}
	ts, c := startTrees(t, disk)
	key := resultcache.Key{1}
	if r := c.do(ts.tool("gcc"), keyed("int x;\n", key)); r.Exit != 0 || r.Status != job.StatusRan {
		t.Fatalf("%+v", r.Result)
	}
	until(t, "the result", func() bool { return c.look(key) != nil })
	if st := ts.Status().Results; st.Disk == 0 {
		t.Skip("needs a disk with room")
	}
	c.close()
	ts.Close()
	ts, c = startTrees(t, disk)
	if e := c.look(key); e == nil || len(e.Files) != 1 {
		t.Errorf("%+v after a restart", e)
	}
	c.close()
	ts.Close()
	ts, c = startTrees(t, func(o *Options) {
		disk(o)
		o.Device = sourceless{o.Device}
	})
	if r := c.do(ts.tool("gcc"), keyed("int x;\n", key)); r.Exit != 0 || c.look(key) == nil {
		t.Errorf("%+v", r.Result)
	}
	if st := ts.Status().Results; st.Disk != 0 || st.Entries != 1 {
		t.Errorf("%+v", st)
	}
}

// sourceless is a device without MROptions.Source.
type sourceless struct{ iwarp.Device }

func (d sourceless) Attr() iwarp.DeviceAttr {
	a := d.Device.Attr()
	a.Source = false
	return a
}

// messages counts what clients have sent.
func (ts *testServer) messages() (n uint64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for x := range ts.conns {
		n += x.qp.Stats().SendsReceived
	}
	return n
}

// TestShelvesOfTenants: each tenant has its own shelf, and can read nothing else by its STag.
func TestShelvesOfTenants(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Results = 16 << 20 })
	if !ts.places.Trees {
		t.Skip("needs the right to make namespaces")
	}
	one := dialFrom(t, "127.0.0.1", addr, 1, &job.Hello{})
	two := dialFrom(t, "127.0.0.2", addr, 2, &job.Hello{})
	key := resultcache.Key{1}
	if r := one.do(ts.tool("gcc"), keyed("int x;\n", key)); r.Exit != 0 || r.Status != job.StatusRan {
		t.Fatalf("%+v", r.Result)
	}
	if one.look(key) == nil || two.look(key) != nil {
		t.Error("a result is not on its tenant's shelf, or on another one")
	}
	two.mu.Lock()
	two.welcome.Shelf.STag = one.welcome.Shelf.STag
	two.mu.Unlock()
	w := two.welcome.Shelf
	if got := two.tryRead(t, job.Window{STag: w.STag, TO: w.TO, Len: format.HeadLen}); got {
		t.Error("a tenant reads another one's shelf")
	}
}

// tryRead reports whether a Read succeeds; if not, the connection ends.
func (c *testClient) tryRead(t *testing.T, w job.Window) bool {
	t.Helper()
	mem := make([]byte, w.Len)
	mr, err := c.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	before := c.reads
	c.mu.Unlock()
	if err := c.postRead(w, mr); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.reads == before && !c.ended {
		c.cond.Wait()
	}
	return c.reads > before
}

// TestNoShelf: without memory for it, without Reads or without a Guard, clients have none, and named jobs run as others.
func TestNoShelf(t *testing.T) {
	ts, c := startTrees(t, nil)
	if c.welcome.Shelf != (job.Window{}) {
		t.Errorf("%+v", c.welcome.Shelf)
	}
	if r := c.do(ts.tool("gcc"), keyed("int x;\n", resultcache.Key{1})); r.Exit != 0 || r.Status != job.StatusRan {
		t.Fatalf("%+v", r.Result)
	}
	ts, c = startTrees(t, func(o *Options) {
		o.Results = 16 << 20
		o.Device = unguarded{o.Device}
	})
	if c.welcome.Shelf != (job.Window{}) || ts.Status().Results.Tenants != 0 {
		t.Errorf("without a Guard: %+v", c.welcome.Shelf)
	}
}

// BenchmarkShelve is what a daemon does for a result of 10 KB that it keeps.
func BenchmarkShelve(b *testing.B) {
	all := shelves.New(shelves.Options{Budget: 64 << 20})
	defer all.Close()
	tenant, err := all.Join("tenant")
	if err != nil {
		b.Fatal(err)
	}
	t := &task{c: &conn{shelf: &shelf{Tenant: tenant}, name: "desk", log: slog.New(slog.DiscardHandler)}, m: &job.Job{Key: [32]byte{1}}, source: "a.c", files: 1, started: time.Now()}
	t.job.Toolchain = &toolchain.Toolchain{Family: "gcc", Version: "12.2.0"}
	t.job.Source.Slot = make([]byte, 10<<10)
	r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: 10 << 10}}}}
	b.ReportAllocs()
	for b.Loop() {
		t.m.Key[1]++
		t.shelve(r, 10<<10)
	}
	if tenant.Stats().Entries == 0 {
		b.Error("nothing is kept")
	}
	all.Leave(tenant)
}

// unguarded is a device that ignores MROptions.Guard, as one whose adapter reads memory by itself.
type unguarded struct{ iwarp.Device }

func (d unguarded) Attr() iwarp.DeviceAttr {
	a := d.Device.Attr()
	a.Guard = false
	return a
}

// TestShelfOfBases: a result in which the client's directory is nowhere is kept by the name that does not depend on it,
// packed or not, and so is one with it in its debug information alone, if the client expects that; any other by its own. A directory that
// cannot be one is none.
func TestShelfOfBases(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Results = 16 << 20 })
	for i, x := range []struct {
		base  string
		debug bool
		zstd  bool
		moves bool
	}{{"/sources", false, false, true}, {"/sources", false, true, true}, {"/sources", true, false, false}, {"/sources", true, true, false}, {"/elsewhere", true, false, true}, {"/sources/", true, false, true}, {"/sources/", true, true, true}, {"/sources/", false, false, true}, {"/sources//", true, false, false}, {"src", false, false, false}, {"/a/../sources", false, false, false}} {
		exact, moved := resultcache.Key{1, byte(i)}, resultcache.Key{2, byte(i)}
		q := keyed("int big[] = {"+strings.Repeat("1,", 20000)+"};\n", exact)
		q.body.Cwd = "/sources" // long enough for package move
		if x.debug {
			q.body.Args = append([]string{"-g"}, q.body.Args...)
		}
		q.change = func(m *job.Job) { m.Key, m.Base, m.Moved, m.Zstd = exact, x.base, moved, x.zstd }
		r := c.do(ts.tool("gcc"), q)
		if r.Status != job.StatusRan || r.Exit != 0 || x.zstd != (r.Packed != 0) {
			t.Fatalf("%+v: %s", r.Result, r.bytes(r.Stderr))
		}
		there, not, base := exact, moved, ""
		if x.moves {
			there, not, base = moved, exact, strings.TrimSuffix(x.base, "/")
		}
		if e := c.look(there); e == nil || e.Base != base {
			t.Errorf("%+v: %+v", x, e)
		}
		if c.look(not) != nil {
			t.Errorf("%+v: it is kept by the other name", x)
		}
	}
}
