package mpa

import (
	"bytes"
	"testing"
)

// The position counts 32 bits; markers keep their places when it wraps, and
// FPDUPTR is right across that. covers MPA-44, MPA-50
func TestMarkersWrap(t *testing.T) {
	const before = 2000
	for _, first := range []uint32{-before & 0xffffffff, 0} {
		b := NewBatch()
		b.Reset(true)
		b.Mark(&Marks{pos: first})
		rd := NewReader(true)
		rd.ExpectMarkers()
		rd.marks.pos = first
		for n := range 40 {
			b.Add(make([]byte, 100+n*31))
		}
		stream := bytes.Join(b.Bufs(), nil)
		for at := -int(first % 512); at < len(stream); at += 512 {
			if at >= 0 && (stream[at] != 0 || stream[at+1] != 0) {
				t.Errorf("no marker at %d", at)
			}
		}
		got := 0
		for len(stream) > 0 {
			n := copy(rd.Want(), stream)
			rd.Filled(n)
			stream = stream[n:]
			for {
				u, err := rd.Next()
				if err != nil {
					t.Fatalf("from %#x: ULPDU %d: %v", first, got, err)
				}
				if u == nil {
					break
				}
				if len(u) != 100+got*31 {
					t.Fatalf("from %#x: ULPDU %d has %d octets", first, got, len(u))
				}
				got++
			}
		}
		if got != 40 {
			t.Errorf("from %#x: %d ULPDUs", first, got)
		}
	}
}

func TestMarkedSize(t *testing.T) {
	for _, x := range []struct{ pos, n, want uint32 }{
		{0, 42, 52}, {492, 42, 52}, {544, 477, 488}, {1536, 28, 40}, {2040, 34, 44}, {2084, 1714, 1732},
		{4, 14, 20}, {508, 14, 24}, // a marker right after ULPDU_Length's group
	} {
		if got := markedSize(x.pos, int(x.n)); got != int(x.want) {
			t.Errorf("ULPDU of %d at %d: got %d, want %d", x.n, x.pos, got, x.want)
		}
	}
}

func benchReader(b *testing.B, markers bool) {
	batch := NewBatch()
	batch.Reset(true)
	if markers {
		batch.Mark(new(Marks))
	}
	for range 32 {
		batch.Add(make([]byte, 14), make([]byte, 1408))
	}
	stream := bytes.Join(batch.Bufs(), nil)
	rd := NewReader(true)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		if markers {
			rd.ExpectMarkers()
		}
		for p := stream; len(p) > 0; {
			n := copy(rd.Want(), p)
			rd.Filled(n)
			p = p[n:]
			for {
				u, err := rd.Next()
				if err != nil {
					b.Fatal(err)
				}
				if u == nil {
					break
				}
			}
		}
	}
}

func BenchmarkReader(b *testing.B)       { benchReader(b, false) }
func BenchmarkReaderMarked(b *testing.B) { benchReader(b, true) }
func BenchmarkBatch(b *testing.B)        { benchBatch(b, false) }
func BenchmarkBatchMarked(b *testing.B)  { benchBatch(b, true) }
func benchBatch(b *testing.B, marks bool) {
	batch, header, p := NewBatch(), make([]byte, 14), make([]byte, 1408)
	m := new(Marks)
	b.SetBytes(32 * 1422)
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset(true)
		if marks {
			batch.Mark(m)
		}
		for range 32 {
			batch.Add(header, p)
		}
	}
}

// With and without markers, framing allocates nothing.
func TestFramingAllocatesNothing(t *testing.T) {
	batch, header, p := NewBatch(), make([]byte, 14), make([]byte, 30_000)
	rd := NewReader(true)
	rd.ExpectMarkers()
	var m Marks
	f := func(marked bool) func() {
		return func() {
			batch.Reset(true)
			if marked {
				batch.Mark(&m)
			}
			for !batch.Full(1) {
				batch.Add(header, p)
			}
			for _, b := range batch.Bufs() {
				for marked && len(b) > 0 {
					n := copy(rd.Want(), b)
					rd.Filled(n)
					b = b[n:]
					for {
						if u, err := rd.Next(); err != nil {
							t.Fatal(err)
						} else if u == nil {
							break
						}
					}
				}
			}
		}
	}
	for _, marked := range []bool{false, true} {
		if n := testing.AllocsPerRun(100, f(marked)); n >= 1 {
			t.Errorf("markers %v: %.1f allocations", marked, n)
		}
	}
}
