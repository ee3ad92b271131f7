package mpa

import (
	"bytes"
	"testing"
)

func TestFPDUSize(t *testing.T) {
	for n := range 100 {
		if s := FPDUSize(n); s%4 != 0 || s < n+6 || s > n+9 {
			t.Errorf("FPDUSize(%d) = %d", n, s)
		}
	}
}

// TestBatchGathers: long payload is referred to, short payload copied, and either
// way the same bytes come out.
func TestBatchGathers(t *testing.T) {
	long, short := bytes.Repeat([]byte{7}, 10<<10), []byte("short")
	b := NewBatch()
	b.Reset(true)
	b.Add([]byte("header one...."), long, short, long)
	b.Add([]byte("header two...."), short)
	bufs := b.Bufs()
	if len(bufs) != 5 || &bufs[1][0] != &long[0] {
		t.Errorf("%d buffers; the long payload must be one of them", len(bufs))
	}
	gathered := bytes.Join(bufs, nil)
	if len(gathered) != b.Size() || b.FPDUs() != 2 {
		t.Errorf("%d bytes in %d FPDUs, Size says %d", len(gathered), b.FPDUs(), b.Size())
	}
	b.Reset(true)
	b.CopyAll()
	b.Add([]byte("header one...."), long, short, long)
	b.Add([]byte("header two...."), short)
	if bufs = b.Bufs(); len(bufs) != 1 || !bytes.Equal(bufs[0], gathered) {
		t.Errorf("copied: %d buffers, other bytes than gathered", len(bufs))
	}
}

// TestBatchNeverMoves: what Bufs returns stays valid however full the batch gets.
func TestBatchNeverMoves(t *testing.T) {
	b := NewBatch()
	b.Reset(true)
	p := bytes.Repeat([]byte{1}, 3000)
	n := 0
	for !b.Full(1) {
		b.Add(make([]byte, 14), p)
		n++
	}
	if got := bytes.Join(b.Bufs(), nil); len(got) != n*FPDUSize(3014) {
		t.Errorf("%d bytes of %d FPDUs, want %d", len(got), n, n*FPDUSize(3014))
	}
}

// TestReaderLendsScratch: the big scratch is borrowed for as long as there is much
// to read, and given back when the connection idles.
func TestReaderLendsScratch(t *testing.T) {
	b := NewBatch()
	b.Reset(true)
	b.Add(make([]byte, 14), make([]byte, 30_000))
	stream := bytes.Join(b.Bufs(), nil)
	rd := NewReader(true)
	feed := func(p []byte) (segs int) {
		for len(p) > 0 {
			n := copy(rd.Want(), p)
			rd.Filled(n)
			p = p[n:]
			for {
				seg, err := rd.Next()
				if err != nil {
					t.Fatal(err)
				}
				if seg == nil {
					break
				}
				segs++
			}
		}
		return segs
	}
	if n := feed(stream); n != 1 || rd.big == nil {
		t.Errorf("%d segments; big scratch borrowed: %v", n, rd.big != nil)
	}
	b.Reset(true)
	b.Add(make([]byte, 18))
	small := bytes.Join(b.Bufs(), nil)
	for range keepBig + 1 {
		if n := feed(small); n != 1 {
			t.Errorf("%d segments", n)
		}
	}
	if rd.Want(); rd.big != nil {
		t.Error("a connection whose messages are small keeps the big scratch")
	}
}

// TestOneReadForAMessage: once a connection carries messages a little longer than the small scratch, each of them takes
// one read, also with small ones between them.
func TestOneReadForAMessage(t *testing.T) {
	b := NewBatch()
	message := func(size int) []byte {
		b.Reset(true)
		b.Add(make([]byte, 18), make([]byte, size))
		return bytes.Join(b.Bufs(), nil)
	}
	large, small := message(smallScratch), message(64)
	rd := NewReader(true)
	for i := range 8 {
		for _, p := range [][]byte{large, small, small} {
			reads := 0
			for left := p; len(left) > 0; reads++ {
				n := copy(rd.Want(), left)
				rd.Filled(n)
				left = left[n:]
				for {
					seg, err := rd.Next()
					if err != nil {
						t.Fatal(err)
					}
					if seg == nil {
						break
					}
				}
			}
			if i > 0 && reads != 1 {
				t.Fatalf("round %d: %d reads for a message of %d bytes", i, reads, len(p))
			}
		}
	}
}
