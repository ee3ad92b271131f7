package compress

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// source is n bytes that look like a program's text.
func source(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "static inline int function_%d(struct thing *t, int v)\n{\n\treturn t->field_%d + v * %d;\n}\n", r.IntN(1000), r.IntN(50), r.IntN(100))
	}
	return b.Bytes()[:n]
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, src := range [][]byte{nil, {7}, source(100), source(3 << 20), noise(1 << 20), make([]byte, 5<<20)} {
		p, err := Pack(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		if len(p) > Bound(len(src)) {
			t.Errorf("%d bytes became %d, more than Bound's %d", len(src), len(p), Bound(len(src)))
		}
		if n, err := Len(p); n != uint64(len(src)) || err != nil {
			t.Errorf("Len of %d bytes: %d, %v", len(src), n, err)
		}
		got, err := Unpack(nil, p, uint64(len(src)))
		if err != nil || !bytes.Equal(got, src) {
			t.Errorf("%d bytes packed into %d came back as %d, %v", len(src), len(p), len(got), err)
		}
	}
}

func TestSourcesBecomeSmall(t *testing.T) {
	src := source(1 << 20)
	p, err := Pack(nil, src)
	if err != nil || len(p) > len(src)/4 {
		t.Errorf("1 MiB of source text became %d bytes, %v", len(p), err)
	}
}

// Both append, and use the room that there is.
func TestNothingIsAllocatedWhereThereIsRoom(t *testing.T) {
	src := source(100 << 10)
	buf := make([]byte, 3, 3+Bound(len(src)))
	copy(buf, "abc")
	p, err := Pack(buf, src)
	if err != nil || &p[0] != &buf[0] || string(p[:3]) != "abc" {
		t.Errorf("Pack did not append in place: %q, %v", p[:3], err)
	}
	room := make([]byte, 2, 2+len(src))
	got, err := Unpack(room, p[3:], uint64(len(src)))
	if err != nil || &got[0] != &room[0] || !bytes.Equal(got[2:], src) {
		t.Errorf("Unpack did not append in place: %d bytes, %v", len(got), err)
	}
}

func TestUnpackIsBounded(t *testing.T) {
	bomb, _ := Pack(nil, make([]byte, 64<<20))
	if len(bomb) > 64<<10 {
		t.Fatalf("64 MiB of zeros became %d bytes: this shows nothing", len(bomb))
	}
	var before, after [1]byte
	dst := append(make([]byte, 0, 10), before[0], after[0])
	got, err := Unpack(dst, bomb, 1<<20)
	if !errors.Is(err, Err) || len(got) != 2 || cap(got) != 10 {
		t.Errorf("64 MiB in a frame, 1 MiB expected: %d bytes of %d, %v", len(got), cap(got), err)
	}
}

func TestWhatIsNoFrameOfOurs(t *testing.T) {
	one, _ := Pack(nil, source(1000))
	two := append(bytes.Clone(one), one...)
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	w.Reset(&stream)
	for range 3 {
		_, _ = w.Write(source(100 << 10))
		_ = w.Flush()
	}
	_ = w.Close()
	skip := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, one...)
	for name, src := range map[string][]byte{
		"nothing": nil, "one byte": {0x28}, "text": []byte(strings.Repeat("int x;\n", 100)),
		"cut": one[:len(one)-1], "two frames": two, "with more behind": append(bytes.Clone(one), 1, 2, 3),
		"of no length": stream.Bytes(), "skippable": skip,
	} {
		if got, err := Unpack([]byte("x"), src, 1<<20); !errors.Is(err, Err) || string(got) != "x" {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestManyAtATime(t *testing.T) {
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			src := source(50<<10 + i)
			p, err := Pack(nil, src)
			if err != nil {
				t.Error(err)
			}
			if got, err := Unpack(nil, p, 1<<20); err != nil || !bytes.Equal(got, src) {
				t.Errorf("caller %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	all.Wait()
}

func FuzzUnpack(f *testing.F) {
	for _, src := range [][]byte{nil, source(300), noise(64), make([]byte, 1<<20)} {
		p, _ := Pack(nil, src)
		f.Add(p)
		f.Add(append(bytes.Clone(p), p...))
		f.Add(p[:len(p)/2])
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 64 << 10
		room := make([]byte, 1, 1+most+1)
		room[:cap(room)][most+1] = 0xa5
		got, err := Unpack(room, src, most)
		if err != nil {
			if !errors.Is(err, Err) || len(got) != 1 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			return
		}
		if len(got) > 1+most || room[:cap(room)][most+1] != 0xa5 {
			t.Fatalf("%d bytes unpacked, %d allowed", len(got)-1, most)
		}
		p, _ := Pack(nil, got)
		if again, err := Unpack(nil, p, uint64(len(got))); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("packed again: %v", err)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{}, uint16(1))
	f.Add(source(500), uint16(3))
	f.Fuzz(func(t *testing.T, src []byte, times uint16) {
		src = bytes.Repeat(src, int(times%64))
		p, err := Pack(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Unpack(nil, p, uint64(len(src))); err != nil || !bytes.Equal(got, src) {
			t.Fatalf("%d bytes came back as %d, %v", len(src), len(got), err)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	src := source(1 << 20)
	buf := make([]byte, 0, Bound(len(src)))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Pack(buf, src)
	}
}

func BenchmarkUnpack(b *testing.B) {
	src := source(1 << 20)
	p, _ := Pack(nil, src)
	buf := make([]byte, 0, len(src))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Unpack(buf, p, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
