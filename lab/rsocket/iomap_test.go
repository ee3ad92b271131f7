package rsocket

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Direct writes go where the peer has mapped memory, and are there before what is written next.
func TestWriteAt(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		a, b := pair(t, d, nil, &Options{IOMaps: 2, SendBuffer: 1000})
		mem, small := make([]byte, 100<<10), make([]byte, 16)
		if _, err := a.Map(mem, 1000); err != nil {
			t.Fatal(err)
		}
		unmap, err := a.Map(small, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Map(small, 5000); !errors.Is(err, iwarp.ErrLimit) {
			t.Errorf("a third map: %v", err)
		}
		if _, err := a.Write([]byte("mapped")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		data := randomBytes(3, len(mem))
		if n, err := b.WriteAt(data, 1000); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
		if _, err := b.WriteAt([]byte("0123456789abcdef"), 0); err != nil {
			t.Fatal(err)
		}
		// Beyond a map there is nothing, and up to there all is written.
		if n, err := b.WriteAt([]byte("xyz"), 14); n != 2 || !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("across the end of a map: %d, %v", n, err)
		}
		for _, at := range []int64{16, 999, 1000 + int64(len(mem)), -1} {
			if n, err := b.WriteAt([]byte("x"), at); n != 0 || !errors.Is(err, iwarp.ErrInvalid) {
				t.Errorf("at %d: %d, %v", at, n, err)
			}
		}
		if _, err := b.Write([]byte("done")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(a, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, data) || string(small) != "0123456789abcdxy" {
			t.Errorf("mapped memory differs: %q", small)
		}
		// A place that is free again can be used again.
		if err := errors.Join(unmap(), unmap()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Map(small, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// What is unmapped cannot be written any more: a peer that does it loses its connection.
func TestUnmap(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		a, b := pair(t, d, nil, &Options{IOMaps: 1})
		mem := make([]byte, 8)
		unmap, err := a.Map(mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := unmap(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.WriteAt([]byte("y"), 0); err != nil {
			t.Fatal(err) // it is found out there
		}
		for _, c := range []*Conn{a, b} {
			if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("the connection goes on: %v", err)
			}
		}
		if mem[0] != 0 {
			t.Error("unmapped memory was written")
		}
	})
}

func TestNoMaps(t *testing.T) {
	a, _ := pair(t, providers["memory"], nil, nil)
	if _, err := a.Map(make([]byte, 8), 0); !errors.Is(err, iwarp.ErrLimit) {
		t.Errorf("got %v", err)
	}
}
