package iwarp_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// file is a Source.
type file struct {
	*os.File
	n int64
}

func (f file) Size() int64 { return f.n }

// newSource returns a file of n bytes, and them.
func newSource(t *testing.T, n int) (file, []byte) {
	t.Helper()
	src := make([]byte, n)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	name := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(name, src, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return file{f, int64(n)}, src
}

// TestReadOfASource: Reads of a region that is a file bring what is in it, also where they follow each other closely
// and do not fit into one batch. A Read beyond it, or longer than GuardedMax, ends the stream.
func TestReadOfASource(t *testing.T) {
	for _, far := range []uint64{0, 3*iwarp.GuardedMax - 10, 1 << 40} {
		a, b := readPair(t, 16)
		f, src := newSource(t, 3*iwarp.GuardedMax)
		const base = 4711
		mr := b.Reg(t, nil, iwarp.RemoteRead, &iwarp.MROptions{Source: f, Base: base})
		if mr.Len() != len(src) || mr.Base() != base {
			t.Fatalf("%d bytes at %d", mr.Len(), mr.Base())
		}
		var want [][]byte
		dst := make([]byte, 16*iwarp.GuardedMax)
		dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
		for i, n := range []int{iwarp.GuardedMax, 1, 5000, iwarp.GuardedMax - 1, 80, 4096, 4097, iwarp.GuardedMax} {
			at := i * 18000
			want = append(want, src[at:at+n])
			a.Post(t, &iwarp.SendWR{ID: uint64(i), Op: iwarp.OpRead, STag: mr.STag(), TO: base + uint64(at),
				SGL: []iwarp.SGE{{Addr: uint64(i * iwarp.GuardedMax), Length: uint32(n), LKey: dm.STag()}}})
		}
		for i, w := range want {
			a.WaitOK(t, uint64(i))
			if !bytes.Equal(dst[i*iwarp.GuardedMax:][:len(w)], w) {
				t.Errorf("Read %d of %d bytes brought something else", i, len(w))
			}
		}
		n := uint32(11)
		if far == 0 {
			n = iwarp.GuardedMax + 1
		}
		a.Post(t, &iwarp.SendWR{ID: 99, Op: iwarp.OpRead, STag: mr.STag(), TO: base + far, SGL: []iwarp.SGE{{Length: n, LKey: dm.STag()}}})
		if wc := a.Wait(t); wc.Status == iwarp.StatusSuccess {
			t.Errorf("a Read of %d bytes at %d succeeded", n, far)
		}
	}
}

// TestSourceThatFails: an error of the Source ends the stream, and nothing else.
func TestSourceThatFails(t *testing.T) {
	a, b := readPair(t, 16)
	f, src := newSource(t, 2*iwarp.GuardedMax)
	mr := b.Reg(t, nil, iwarp.RemoteRead, &iwarp.MROptions{Source: f})
	dst := make([]byte, 100)
	dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
	if err := f.Truncate(iwarp.GuardedMax); err != nil {
		t.Fatal(err)
	}
	read := func(to uint64) iwarp.WC {
		a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: mr.STag(), TO: to, SGL: []iwarp.SGE{{Length: 100, LKey: dm.STag()}}})
		return a.Wait(t)
	}
	if wc := read(iwarp.GuardedMax - 100); wc.Status != iwarp.StatusSuccess || !bytes.Equal(dst, src[iwarp.GuardedMax-100:iwarp.GuardedMax]) {
		t.Errorf("%+v", wc)
	}
	if wc := read(iwarp.GuardedMax - 50); wc.Status == iwarp.StatusSuccess {
		t.Error("a Read of what the file has lost succeeded")
	}
	if err := mr.Dereg(); err != nil {
		t.Error(err)
	}
}

// TestSourcesThatAreNone: what cannot be a region of a Source, and what such a region is no good for.
func TestSourcesThatAreNone(t *testing.T) {
	n := iwarptest.NewNetwork()
	e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	f, _ := newSource(t, 100)
	for what, reg := range map[string]func() (iwarp.MR, error){
		"memory too": func() (iwarp.MR, error) {
			return e.PD.RegMR(make([]byte, 1), iwarp.RemoteRead, &iwarp.MROptions{Source: f})
		},
		"nothing": func() (iwarp.MR, error) { return e.PD.RegMR(nil, iwarp.RemoteRead, &iwarp.MROptions{Source: file{}}) },
		"to be written": func() (iwarp.MR, error) {
			return e.PD.RegMR(nil, iwarp.RemoteRead|iwarp.LocalWrite, &iwarp.MROptions{Source: f})
		},
		"beyond the last": func() (iwarp.MR, error) {
			return e.PD.RegMR(nil, iwarp.RemoteRead, &iwarp.MROptions{Source: f, Base: 1<<64 - 99})
		},
		"for nobody at all": func() (iwarp.MR, error) { return e.PD.RegMR(nil, 0, &iwarp.MROptions{Source: f}) },
	} {
		if _, err := reg(); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	a, b := readPair(t, 4)
	mr := a.Reg(t, nil, iwarp.RemoteRead, &iwarp.MROptions{Source: f})
	b.Reg(t, make([]byte, 100), iwarp.LocalWrite, nil)
	a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Addr: mr.Base(), Length: 10, LKey: mr.STag()}}})
	if wc := a.Wait(t); wc.Status == iwarp.StatusSuccess {
		t.Error("a Send of a Source's bytes, of which there are none in memory")
	}
}

// BenchmarkReadKept is a Read of 10 KB and one of 80 bytes right behind it, as for a result that a host keeps, on loopback: of
// memory with a Guard, of a file that is in the page cache, and of one that is not.
func BenchmarkReadKept(b *testing.B) {
	const size, length = 64 << 20, 10 << 10
	dir, err := os.MkdirTemp("/var/tmp", "rdistcc-iwarp-") // a disk
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "source")
	if err := os.WriteFile(name, bytes.Repeat([]byte("a result "), size/9+1)[:size], 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	bench := func(mem []byte, o *iwarp.MROptions, before func(b *testing.B)) func(b *testing.B) {
		return func(b *testing.B) {
			x, y := readPair(b, 2)
			mr := y.Reg(b, mem, iwarp.RemoteRead, o)
			dst := x.Reg(b, make([]byte, length+80), iwarp.LocalWrite, nil)
			wcs := make([]iwarp.WC, 2)
			at := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				at = (at + 7777<<6) % (size - length)
				if before != nil {
					before(b)
				}
				x.Post(b, &iwarp.SendWR{Op: iwarp.OpRead, Flags: iwarp.More, STag: mr.STag(), TO: uint64(at), SGL: []iwarp.SGE{{Length: length, LKey: dst.STag()}}})
				x.Post(b, &iwarp.SendWR{Op: iwarp.OpRead, STag: mr.STag(), SGL: []iwarp.SGE{{Addr: length, Length: 80, LKey: dst.STag()}}})
				for n := 0; n < 2; {
					if err := x.CQ.Wait(b.Context()); err != nil {
						b.Fatal(err)
					}
					n += x.CQ.Poll(wcs[n:])
				}
				if wcs[0].Status != iwarp.StatusSuccess || wcs[1].Status != iwarp.StatusSuccess {
					b.Fatal(wcs, x.QP.Err())
				}
			}
		}
	}
	b.Run("memory", bench(make([]byte, size), &iwarp.MROptions{Guard: new(sync.Mutex)}, nil))
	b.Run("file", bench(nil, &iwarp.MROptions{Source: file{f, size}}, nil))
	b.Run("cold", bench(nil, &iwarp.MROptions{Source: file{f, size}}, func(b *testing.B) {
		b.StopTimer()
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil { // all, as it is kept in large pieces
			b.Fatal(err)
		}
		if _, err := f.ReadAt(make([]byte, 80), 0); err != nil { // a host writes the head with each result
			b.Fatal(err)
		}
		b.StartTimer()
	}))
}
