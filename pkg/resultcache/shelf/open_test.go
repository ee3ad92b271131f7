package shelf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// disk is a File in memory. It calls wrote after each write.
type disk struct {
	mem   []byte
	wrote func(off int64, n int)
	bad   func(off int64) bool // what cannot be read or written
}

var errBad = errors.New("input/output error")

func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case d.bad != nil && d.bad(off):
		return 0, errBad
	case off+int64(len(p)) > int64(len(d.mem)):
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, d.mem[off:]), nil
}

func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	if d.bad != nil && d.bad(off) {
		return 0, errBad
	}
	n := copy(d.mem[off:], p)
	if d.wrote != nil {
		d.wrote(off, n)
	}
	return n, nil
}

func (d *disk) Show(p []byte, off int64) { copy(d.mem[off:], p) }

// entry returns an entry for key(n), with an output of length bytes.
func entry(t testing.TB, n uint64, length int) []byte {
	t.Helper()
	out := make([]byte, length)
	for i := range out {
		out[i] = byte(n) + byte(i)
	}
	r := resultcache.Raw{Key: key(n), Files: []resultcache.RawFile{{Len: uint32(length)}}, Outputs: out}
	front, err := r.AppendFront(nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(front, out...)
}

// filed is a bench whose Shelf is in a disk.
type filed struct {
	bench
	d    *disk
	data uint64
	put  map[uint64][]byte // by number of the key
}

func newFiled(t testing.TB, data uint64) *filed {
	t.Helper()
	f := &filed{bench: bench{t: t, mem: make([]byte, Size(data))}, data: data, put: make(map[uint64][]byte)}
	f.d = &disk{mem: f.mem}
	var err error
	if f.Shelf, err = Create(f.d, data); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *filed) add(n uint64, length int) {
	f.t.Helper()
	f.put[n] = entry(f.t, n, length) // before it is there: a crash may come any time
	if !f.Put(key(n), f.put[n][:50], f.put[n][50:]) {
		f.t.Fatalf("entry %d is not put", n)
	}
}

// reopen opens a copy of mem as after a restart, verified if verify is set, and returns which entries a reader finds. It
// fails if one of them is not what was put, whether Read whole or not, unless damage is allowed.
func (f *filed) reopen(mem []byte, verify, damage bool) (*filed, map[uint64]bool) {
	f.t.Helper()
	g := &filed{bench: bench{t: f.t, mem: bytes.Clone(mem)}, data: f.data, put: f.put}
	g.d = &disk{mem: g.mem}
	s, _, err := Open(g.d, f.data)
	if err != nil {
		f.t.Fatal(err)
	}
	g.Shelf = s
	if verify {
		if _, err := s.Verify(nil); err != nil {
			f.t.Fatal(err)
		}
	}
	g.disjoint()
	g.refresh()
	found := make(map[uint64]bool)
	for n, want := range f.put {
		got, ok := g.get(key(n))
		switch {
		case ok && bytes.Equal(got, want):
			found[n] = true
		case ok && !damage:
			f.t.Fatalf("entry %d is another one", n)
		}
	}
	return g, found
}

// TestReopen: a Shelf that is opened again has what it had, and goes on from there, round and round.
func TestReopen(t *testing.T) {
	f := newFiled(t, 64<<10)
	if _, found := f.reopen(f.mem, true, false); len(found) != 0 {
		t.Fatal("an empty one has something")
	}
	n := uint64(0)
	for range 40 {
		for range 7 {
			n++
			f.add(n, int(1+n*571%3000))
		}
		g, found := f.reopen(f.mem, n%2 == 0, false)
		if st := f.Stats(); len(found) != st.Entries || g.Stats().Entries != st.Entries || g.Stats().Bytes != st.Bytes {
			t.Fatalf("after %d: %d found, %+v, was %+v", n, len(found), g.Stats(), st)
		}
		f = g
		f.x = Index{}
	}
}

// TestCrashes: the daemon is killed after each write, also in the middle of the only two that are not the whole of a
// change: then what counts is whole, nothing that was put completely and not evicted is lost, and the Shelf goes on.
func TestCrashes(t *testing.T) {
	f := newFiled(t, 32<<10)
	f.Limit(24 << 10)
	crashes := 0
	f.d.wrote = func(off int64, n int) {
		crashes++
		g, found := f.reopen(f.mem, false, false)
		// What is being put may be there or not.
		if has := g.Stats().Entries; len(found) != has || has+1 < f.countLocked() {
			t.Errorf("crash %d: %d of %d are found, %d had been put", crashes, len(found), has, f.countLocked())
		}
		if off >= int64(f.h.At) && n > 100 { // cut short within the entry
			cut := bytes.Clone(f.mem)
			clear(cut[off+int64(n/2) : off+int64(n)])
			f.reopen(cut, false, false)
		}
		if crashes%17 == 0 {
			g.add(1<<40, 500)
			if g.refresh(); g.x.Len() == 0 {
				t.Errorf("crash %d: it does not go on", crashes)
			}
			delete(f.put, 1<<40)
		}
	}
	for n := range uint64(100) {
		f.add(n+1, int(n*131%2500))
	}
	f.Limit(9000)
	f.Limit(32 << 10)
	for n := range uint64(30) {
		f.add(101+n, int(n*131%800))
	}
	f.Clear()
	if crashes < 400 {
		t.Errorf("%d crashes", crashes)
	}
}

// countLocked returns how many entries count. The caller is in a method of f.
func (f *filed) countLocked() int { return int(f.h.Last - f.h.First) }

// TestPowerLoss: some sectors are as they were before the last writes. After Verify, what is found is what was put.
func TestPowerLoss(t *testing.T) {
	lost, kept := 0, 0
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		f := newFiled(t, 64<<10)
		n := uint64(0)
		some := func(most int) {
			for range rnd.IntN(most) {
				n++
				f.add(n, rnd.IntN(4000))
			}
		}
		some(60)
		old := bytes.Clone(f.mem)
		some(30)
		mem := bytes.Clone(f.mem)
		for at := 0; at < len(mem); at += 512 {
			if rnd.IntN(3) == 0 {
				copy(mem[at:min(at+512, len(mem))], old[at:])
			}
		}
		g, found := f.reopen(mem, true, false)
		kept += len(found)
		lost += f.countLocked() - len(found)
		for range 50 {
			n++
			g.add(n, rnd.IntN(4000))
		}
		g.x = Index{}
		if g.refresh(); g.x.Len() == 0 {
			t.Error("it does not go on")
		}
	}
	if lost == 0 || kept == 0 {
		t.Errorf("%d lost, %d kept: the test shows nothing", lost, kept)
	}
}

// TestStaleRecords: a head that is older than what was evicted since brings nothing back that was written over, and a
// record of an earlier round does not count in place of a newer one.
func TestStaleRecords(t *testing.T) {
	f := newFiled(t, 64<<10)
	for n := range uint64(60) {
		f.add(n+1, 3000)
	}
	h := f.h
	h.First = 0
	mem := bytes.Clone(f.mem)
	h.Append(mem[:0])
	if g, found := f.reopen(mem, false, true); g.Stats().Entries < f.countLocked() || g.h.First < f.h.First-2 || len(found) != f.countLocked() {
		t.Errorf("%+v, %d found, was %+v", g.Stats(), len(found), f.Stats())
	}

	f = newFiled(t, 64<<10)
	var old []byte
	for n := range f.h.Records + 5 {
		if f.add(n+1, 10); n == 3 {
			old = f.read(f.placeAt(n), recordLen)
		}
	}
	mem = bytes.Clone(f.mem)
	copy(mem[f.placeAt(3):], old)
	if g, _ := f.reopen(mem, false, false); g.Stats().Entries >= f.countLocked() || g.h.Last > f.h.Records+3 {
		t.Errorf("%+v of %+v", g.Stats(), f.Stats())
	}
}

// TestFlippedBits: a bit is flipped anywhere. Then there is no Shelf, or one whose entries are what was put, but for the
// entry with the bit in it: that is for the reader to see, or for Verify.
func TestFlippedBits(t *testing.T) {
	f := newFiled(t, 8<<10)
	for n := range uint64(12) {
		f.add(n+1, 300)
	}
	was := f.countLocked()
	for at := range f.mem {
		if at >= HeadLen && at < recordsAt || at >= recordsAt+int(f.h.Records)*recordLen && at%5 > 0 { // nothing there, and much
			continue
		}
		mem := bytes.Clone(f.mem)
		mem[at] ^= 1 << (at % 8)
		if at < HeadLen {
			if _, _, err := Open(&disk{mem: mem}, f.data); !errors.Is(err, ErrTorn) {
				t.Errorf("byte %d of the head: %v", at, err)
			}
			continue
		}
		_, found := f.reopen(mem, false, true)
		if len(found) < was-1 && at >= int(f.h.At) || len(found) < was/2-1 {
			t.Errorf("byte %d: %d of %d are left", at, len(found), was)
		}
		if g, found := f.reopen(mem, true, false); g.Stats().Entries == was && len(found) < was-1 {
			t.Errorf("byte %d: %d of %d are left after Verify", at, len(found), was)
		}
	}
}

// TestOtherFiles: what is no Shelf, or one with other figures, is not opened.
func TestOtherFiles(t *testing.T) {
	f := newFiled(t, 64<<10)
	f.add(1, 100)
	version := bytes.Clone(f.mem)
	version[7]++
	binary.LittleEndian.PutUint64(version[HeadLen-16:], sum64(version[:HeadLen-16]))
	for what, c := range map[string]struct {
		mem  []byte
		data uint64
		want error
	}{
		"zeros":           {make([]byte, len(f.mem)), f.data, ErrTorn},
		"another version": {version, f.data, ErrMalformed},
		"larger":          {append(bytes.Clone(f.mem), make([]byte, Size(128<<10)-Size(64<<10))...), 128 << 10, ErrMalformed},
		"cut short":       {f.mem[:40], f.data, io.ErrUnexpectedEOF},
		"without records": {f.mem[:recordsAt], f.data, io.ErrUnexpectedEOF},
	} {
		if _, _, err := Open(&disk{mem: c.mem}, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFileThatFails: after an error of the file nothing is added, and nobody panics.
func TestFileThatFails(t *testing.T) {
	f := newFiled(t, 64<<10)
	f.add(1, 5000)
	for what, bad := range map[string]func(off int64) bool{
		"entries": func(off int64) bool { return off >= int64(f.h.At) },
		"records": func(off int64) bool { return off >= recordsAt && off < int64(f.h.At) },
		"head":    func(off int64) bool { return off < recordsAt },
	} {
		g, _ := f.reopen(f.mem, false, false)
		g.d.bad = bad
		for n := range uint64(30) {
			g.Put(key(n), entry(t, n, 5000))
		}
		if g.Put(key(99), entry(t, 99, 100)) || !errors.Is(g.err, errBad) {
			t.Errorf("%s: %v", what, g.err)
		}
		g.Limit(1000)
		g.Clear()
		if _, _, err := Open(g.d, f.data); what != "entries" && !errors.Is(err, errBad) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := g.Verify(nil); what != "head" && !errors.Is(err, errBad) && g.Stats().Entries > 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	stop := make(chan struct{})
	close(stop)
	g, _ := f.reopen(f.mem, false, false)
	if _, err := g.Verify(stop); err == nil {
		t.Error("verified although it was to stop")
	}
}

// FuzzOpen: whatever is in a file, opening it does not panic, and what it has then does not overlap and can be gone on with.
func FuzzOpen(f *testing.F) {
	b := newFiled(f, 4096)
	for n := range uint64(20) {
		b.add(n, 100)
	}
	f.Add(b.mem[:HeadLen], b.mem[recordsAt:][:64*recordLen], true)
	f.Fuzz(func(t *testing.T, head, recs []byte, sums bool) {
		mem := make([]byte, Size(4096))
		copy(mem, head[:min(len(head), HeadLen)])
		copy(mem[recordsAt:][:64*recordLen], recs)
		if sums { // otherwise no input would get past them
			copy(mem[HeadLen-8:HeadLen], mem[8:16])
			binary.LittleEndian.PutUint64(mem[HeadLen-16:], sum64(mem[:HeadLen-16]))
			for i := range uint64(64) {
				rec := mem[recordsAt+i*recordLen:][:recordLen]
				binary.LittleEndian.PutUint32(rec[20:], uint32(sum64(rec[:20])))
			}
		}
		s, _, err := Open(&disk{mem: mem}, 4096)
		if err != nil {
			return
		}
		x := &bench{t: t, mem: mem, Shelf: s}
		x.disjoint()
		if _, err := s.Verify(nil); err != nil {
			t.Fatal(err)
		}
		for n := range uint64(100) {
			if !s.Put(key(n), entry(t, n, 10)) {
				t.Fatal("not put")
			}
			x.disjoint()
		}
	})
}

// TestMarksOfAnotherTime: the jobs that were under way when the program ended are not, once the file is opened again.
func TestMarksOfAnotherTime(t *testing.T) {
	const data = 4096
	d := &disk{mem: make([]byte, Size(data))}
	s, err := Create(d, data)
	if err != nil || !s.Put(key(1), entry(t, 1, 100)) {
		t.Fatal(err)
	}
	s.Begin(key(2), Mark{Maker: 7})
	if h, err := ParseHead(d.mem[:HeadLen], Size(data)); err != nil || h.Marks != 1 || h.Makers != 7 {
		t.Fatalf("%+v, %v", h, err)
	}
	s, dropped, err := Open(d, data)
	if err != nil || dropped != 0 {
		t.Fatal(dropped, err)
	}
	for range 2 {
		if h, err := ParseHead(d.mem[:HeadLen], Size(data)); err != nil || h.Marks != 0 || h.Makers != 0 || h.Last != 1 {
			t.Errorf("%+v, %v", h, err)
		}
		s.End(s.Begin(key(3), Mark{Maker: 9})) // and what comes then is of this time
	}
	if s.Stats().Entries != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// stuck is a disk that says in in that it writes, and then waits for out.
type stuck struct {
	*disk
	in, out chan struct{}
}

func (d *stuck) WriteAt(p []byte, off int64) (int, error) {
	if d.in != nil {
		d.in <- struct{}{}
		<-d.out
	}
	return d.disk.WriteAt(p, off)
}

// TestMarksWhileTheDiskIsBusy: marks are added and removed while an entry is being written.
func TestMarksWhileTheDiskIsBusy(t *testing.T) {
	const data = 64 << 10
	d := &stuck{disk: &disk{mem: make([]byte, Size(data))}}
	s, err := Create(d, data)
	if err != nil {
		t.Fatal(err)
	}
	d.in, d.out = make(chan struct{}), make(chan struct{})
	done := make(chan bool)
	go func() { done <- s.Put(key(1), entry(t, 1, 100)) }()
	for range 3 { // the entry, its record, the head
		<-d.in
		at := s.Begin(key(2), Mark{Maker: 7})
		s.Runs(at)
		if h, err := ParseHead(d.mem[:HeadLen], Size(data)); at == 0 || err != nil || h.Marks != 1 || h.Last != 0 {
			t.Errorf("%d: %+v, %v", at, h, err)
		}
		s.End(at)
		d.out <- struct{}{}
	}
	if !<-done {
		t.Error("not put")
	}
	if h, err := ParseHead(d.mem[:HeadLen], Size(data)); err != nil || h.Marks != 0 || h.Last != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}
