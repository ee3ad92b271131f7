package shelf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// key returns a Key with the number n.
func key(n uint64) (k resultcache.Key) {
	binary.LittleEndian.PutUint64(k[:], n)
	k[31] = 1
	return k
}

// bench is a Shelf and a reader of it.
type bench struct {
	t   testing.TB
	mem []byte
	mu  sync.Mutex
	*Shelf
	x Index
}

func newBench(t testing.TB, data uint64) *bench {
	t.Helper()
	b := &bench{t: t, mem: make([]byte, Size(data))}
	var err error
	if b.Shelf, err = New(b.mem, data, &b.mu); err != nil {
		t.Fatal(err)
	}
	return b
}

// read is an RDMA Read.
func (b *bench) read(off, n uint64) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.mem[off:][:n])
}

// head reads the head.
func (b *bench) head() {
	b.t.Helper()
	h, err := ParseHead(b.read(0, HeadLen), uint64(len(b.mem)))
	if err == nil {
		err = b.x.Learn(h)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// refresh reads the head, and the records that are new. It returns the number of Reads.
func (b *bench) refresh() (reads int) {
	b.t.Helper()
	b.head()
	for reads = 1; ; reads++ {
		off, n := b.x.Next()
		if n == 0 {
			return reads
		}
		b.x.Add(b.read(off, n))
	}
}

// get finds and reads an entry.
func (b *bench) get(k resultcache.Key) ([]byte, bool) {
	b.t.Helper()
	p, ok := b.x.Find(k)
	if !ok {
		return nil, false
	}
	e := b.read(p.Off, uint64(p.Len))
	b.head()
	return e, b.x.Counts(p)
}

// TestGolden: the bytes of a head, a record and an entry.
func TestGolden(t *testing.T) {
	b := newBench(t, 4096)
	if !b.Put(key(0x1122334455667788), []byte("he"), []byte("llo")) {
		t.Fatal("not put")
	}
	const (
		head = "5244534845 4c4602 0100000000000000 0000000000000000 4000000000000000 0026000000000000 0010000000000000" +
			"0000000000000000 0000000000000000 SUM 0100000000000000"
		rec = "8877665544332211 00000000 05000000 00000000"
	)
	plain := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	raw, _ := hex.DecodeString(plain(head[:strings.Index(head, "SUM")]))
	sum := binary.LittleEndian.AppendUint64(nil, sum64(raw))
	want := plain(strings.Replace(head, "SUM", hex.EncodeToString(sum), 1))
	if got := hex.EncodeToString(b.mem[:HeadLen]); got != want {
		t.Errorf("head   %s\nwant   %s", got, want)
	}
	raw, _ = hex.DecodeString(plain(rec))
	want = plain(rec) + hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, uint32(sum64(raw))))
	if got := hex.EncodeToString(b.mem[recordsAt:][:recordLen]); got != want {
		t.Errorf("record %s\nwant   %s", got, want)
	}
	if at := recordsAt + 64*recordLen; string(b.mem[at:at+5]) != "hello" {
		t.Errorf("the entry is not at %d", at)
	}
}

// TestWhatIsFound puts entries of all lengths and reads them with an Index that is always a little behind. What it finds and still counts is what
// was put; the newest are found; what counts never overlaps.
func TestWhatIsFound(t *testing.T) {
	const data = 256 << 10
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, data)
		content := make(map[uint64][]byte)
		hits := 0
		for n := range uint64(2000) {
			e := make([]byte, 1+rnd.IntN(1<<rnd.IntN(13)))
			for i := range e {
				e[i] = byte(rnd.Uint32())
			}
			if !b.Put(key(n), e[:len(e)/2], e[len(e)/2:]) {
				t.Fatalf("entry of %d bytes is not put", len(e))
			}
			content[n] = e
			switch rnd.IntN(40) {
			case 0:
				b.Limit(data/2 + uint64(rnd.IntN(data)))
			case 1:
				b.Clear()
			case 2, 3, 4:
				b.refresh()
			}
			at := n - min(n, uint64(rnd.IntN(100)))
			if got, ok := b.get(key(at)); ok {
				if !bytes.Equal(got, content[at]) {
					t.Fatalf("seed %d: entry %d is another one", seed, at)
				}
				hits++
			}
			st := b.Stats()
			if uint64(st.Entries) > records(data) || st.Bytes > data {
				t.Fatalf("seed %d: %+v", seed, st)
			}
			if n%100 == 0 {
				b.disjoint()
			}
		}
		if b.refresh(); hits < 100 {
			t.Errorf("seed %d: %d entries found", seed, hits)
		}
		if got, ok := b.get(key(1999)); !ok || !bytes.Equal(got, content[1999]) {
			t.Errorf("seed %d: the newest entry is not found", seed)
		}
	}
}

// disjoint checks the places of all entries that count.
func (b *bench) disjoint() {
	b.t.Helper()
	taken := make([]bool, b.limit/align)
	for i := b.h.First; i < b.h.Last; i++ {
		r, ok := parseRecord(b.place(i))
		if !ok || r.end() > b.limit {
			b.t.Fatalf("record %d: %+v", i, r)
		}
		for at := uint64(r.place); at < r.end()/align; at++ {
			if taken[at] {
				b.t.Fatalf("two entries at %d", at*align)
			}
			taken[at] = true
		}
	}
}

// TestReads: a reader reads only what is new.
func TestReads(t *testing.T) {
	b := newBench(t, 64<<20)
	if n := b.refresh(); n != 1 {
		t.Errorf("an empty shelf takes %d Reads", n)
	}
	for n := range uint64(10000) {
		b.Put(key(n), []byte("x"))
	}
	if n := b.refresh(); n != 1+1 { // 43690 records at a time
		t.Errorf("10000 entries take %d Reads", n)
	}
	b.Put(key(10000), []byte("x"))
	if off, n := b.x.Next(); n != 0 {
		t.Errorf("reads %d bytes at %d before it knows of anything new", n, off)
	}
	if n := b.refresh(); n != 2 || b.x.Len() != 10001 {
		t.Errorf("one entry more takes %d Reads; %d entries", n, b.x.Len())
	}
}

// TestStale: an entry that was evicted since the records were read is read, but does not count.
func TestStale(t *testing.T) {
	b := newBench(t, 4096)
	b.Put(key(1), bytes.Repeat([]byte("a"), 500))
	b.refresh()
	p, ok := b.x.Find(key(1))
	if !ok || !b.x.Counts(p) {
		t.Fatal("not found")
	}
	for n := range uint64(8) {
		b.Put(key(10+n), bytes.Repeat([]byte("b"), 512))
	}
	if _, ok := b.x.Find(key(1)); !ok {
		t.Error("the reader cannot know yet")
	}
	if got, ok := b.get(key(1)); ok {
		t.Errorf("%q counts", got)
	}
	if _, ok := b.x.Find(key(1)); ok {
		t.Error("it is found again")
	}
	b.refresh()
	q, _ := b.x.Find(key(17))
	b.x.Forget(key(17), p)
	if _, ok := b.x.Find(key(17)); !ok {
		t.Error("another place is forgotten")
	}
	b.x.Forget(key(17), q)
	if _, ok := b.x.Find(key(17)); ok {
		t.Error("found although forgotten")
	}
}

// TestAgain: the latest entry of a key is found.
func TestAgain(t *testing.T) {
	b := newBench(t, 4096)
	for _, e := range []string{"one", "two"} {
		b.Put(key(1), []byte(e))
		b.refresh()
		if got, ok := b.get(key(1)); !ok || string(got) != e {
			t.Errorf("%q, want %q", got, e)
		}
	}
}

// TestTooBig: no entry pushes out all others.
func TestTooBig(t *testing.T) {
	b := newBench(t, 64<<10)
	if b.Put(key(1), make([]byte, 8<<10+1)) || b.Put(key(1)) || !b.Put(key(1), make([]byte, 8<<10)) {
		t.Error("an entry of more than an eighth, or of nothing, is put")
	}
	b.Limit(0)
	if b.Put(key(1), []byte("x")) || b.Stats().Entries != 0 || b.Data() != b.h.At {
		t.Errorf("something is put where there is no room: %+v", b.Stats())
	}
}

// TestTornHead: a head that has any of its bytes from another state is torn, or is one of the two states.
func TestTornHead(t *testing.T) {
	b := newBench(t, 4096)
	b.Put(key(1), make([]byte, 400))
	old := b.read(0, HeadLen)
	for n := range uint64(300) {
		b.Put(key(n), make([]byte, 400))
	}
	fresh := b.read(0, HeadLen)
	for i := range HeadLen + 1 {
		for _, h := range [][]byte{append(bytes.Clone(old[:i]), fresh[i:]...), append(bytes.Clone(fresh[:i]), old[i:]...)} {
			if _, err := ParseHead(h, uint64(len(b.mem))); err != nil != (!bytes.Equal(h, old) && !bytes.Equal(h, fresh)) {
				t.Errorf("cut at %d: %v", i, err)
			}
		}
		if i < HeadLen {
			h := bytes.Clone(fresh)
			h[i] ^= 1
			if _, err := ParseHead(h, uint64(len(b.mem))); !errors.Is(err, ErrTorn) {
				t.Errorf("bit in byte %d: %v", i, err)
			}
		}
	}
}

// TestTornRecord: a record that has some of its bytes from an older one, or a changed bit, is not used.
func TestTornRecord(t *testing.T) {
	b := newBench(t, 1<<20)
	for n := range b.h.Records {
		b.Put(key(n), make([]byte, 100))
	}
	old := b.read(recordsAt, recordLen)
	b.Put(key(99999), make([]byte, 77))
	fresh := b.read(recordsAt, recordLen)
	try := func(rec []byte) (found bool) {
		x := Index{known: b.h.Last - 1}
		if err := x.Learn(b.h); err != nil {
			t.Fatal(err)
		}
		if _, n := x.Next(); n != recordLen {
			t.Fatalf("reads %d bytes", n)
		}
		x.Add(rec)
		return len(x.all) > 0
	}
	if !try(fresh) || try(old) {
		t.Error("a whole record is not used, or an old one is")
	}
	for i := range recordLen {
		if i > 0 && (try(append(bytes.Clone(old[:i]), fresh[i:]...)) && !bytes.Equal(old[:i], fresh[:i]) || try(append(bytes.Clone(fresh[:i]), old[i:]...)) && !bytes.Equal(old[i:], fresh[i:])) {
			t.Errorf("cut at %d: used", i)
		}
		rec := bytes.Clone(fresh)
		rec[i] ^= 0x10
		if try(rec) {
			t.Errorf("bit in byte %d: used", i)
		}
	}
}

// TestLies: heads that no shelf has, or changes to.
func TestLies(t *testing.T) {
	good := Head{Last: 10, First: 5, Records: 64, At: recordsAt + 64*recordLen, Data: 4096}
	n := Size(4096)
	if _, err := ParseHead(good.Append(nil), n); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(h *Head){
		"more first than last":         func(h *Head) { h.First = 11 },
		"more records than places":     func(h *Head) { h.Last = 100 },
		"no places":                    func(h *Head) { h.Records, h.At = 0, recordsAt },
		"places without end":           func(h *Head) { h.Records, h.At = 1<<17, recordsAt+1<<17*recordLen },
		"data elsewhere":               func(h *Head) { h.At++ },
		"data beyond the memory":       func(h *Head) { h.Data++ },
		"data beyond all":              func(h *Head) { h.Data = 1 << 63 },
		"places whose length overruns": func(h *Head) { h.Records = 1 << 61 },
		"more marks than places":       func(h *Head) { h.Marks = MaxMarks + 1 },
	} {
		h := good
		change(&h)
		if _, err := ParseHead(h.Append(nil), n); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(h *Head){
		"fewer records": func(h *Head) { h.Last-- },
		"revived":       func(h *Head) { h.First-- },
		"longer":        func(h *Head) { h.Data++ },
		"other places":  func(h *Head) { h.Records++ },
	} {
		var x Index
		h := good
		change(&h)
		if err := errors.Join(x.Learn(good), x.Learn(h)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMemory: an Index does not keep records that count no more.
func TestMemory(t *testing.T) {
	b := newBench(t, 256<<10)
	for n := range uint64(20000) {
		b.Put(key(n), []byte("x"))
		if n%50 == 0 {
			b.refresh()
		}
	}
	if n := len(b.x.all); uint64(n) > 2*b.h.Records+minRecords {
		t.Errorf("%d records are kept of %d places", n, b.h.Records)
	}
}

// TestConcurrent reads while entries are put.
func TestConcurrent(t *testing.T) {
	b := newBench(t, 64<<10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(5000) {
			b.Put(key(n%50), bytes.Repeat([]byte{byte(n % 50)}, 2000))
			if n%500 == 0 {
				b.Limit(32 << 10)
			}
		}
	}()
	for {
		b.refresh()
		for n := range uint64(50) {
			if got, ok := b.get(key(n)); ok && !bytes.Equal(got, bytes.Repeat([]byte{byte(n)}, 2000)) {
				t.Fatalf("entry %d is torn", n)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// FuzzReader: whatever a host shows, a reader does not panic, reads only within the memory, and keeps no more
// records than there are places.
func FuzzReader(f *testing.F) {
	b := newBench(f, 4096)
	for n := range uint64(20) {
		b.Put(key(n), []byte("some result"))
	}
	f.Add(b.mem[:HeadLen], b.mem[recordsAt:][:30*recordLen])
	b.Begin(key(1), Mark{Maker: 1})
	f.Add(b.mem[:HeadLen], b.mem[HeadLen:][:MarkLen])
	f.Fuzz(func(t *testing.T, head, recs []byte) {
		if len(head) == HeadLen { // otherwise no input would get past the sum
			copy(head[HeadLen-8:], head[8:16])
			binary.LittleEndian.PutUint64(head[HeadLen-16:], sum64(head[:HeadLen-16]))
		}
		n := Size(4096)
		h, err := ParseHead(head, n)
		if err != nil {
			return
		}
		var x Index
		if err := x.Learn(h); err != nil {
			t.Fatal(err)
		}
		x.LearnMarks(recs, time.Time{})
		if len(x.marks) > MaxMarks {
			t.Fatalf("%d marks", len(x.marks))
		}
		for {
			off, k := x.Next()
			if k == 0 {
				break
			}
			if off+k > n {
				t.Fatalf("reads %d bytes at %d of %d", k, off, n)
			}
			b := make([]byte, k)
			recs = recs[copy(b, recs):]
			x.Add(b)
		}
		for m, p := range x.all {
			var k resultcache.Key
			binary.LittleEndian.PutUint64(k[:], m)
			if q, ok := x.Find(k); !ok || q != p || p.Off+uint64(p.Len) > n {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// BenchmarkPut is what adding a result of 10 KB costs besides its sum.
func BenchmarkPut(b *testing.B) {
	s := newBench(b, 64<<20)
	e := make([]byte, 10<<10)
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		s.Put(key(n), e)
	}
}
