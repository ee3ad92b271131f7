package compress

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestStream(t *testing.T) {
	for _, n := range []int{0, 1, 100_000, 20 << 20} {
		want := source(n)
		var packed bytes.Buffer
		if err := Copy(&packed, iotest.HalfReader(bytes.NewReader(want))); err != nil {
			t.Fatal(err)
		}
		if n > 1000 && packed.Len() > n/2 {
			t.Errorf("%d bytes of %d", packed.Len(), n)
		}
		r, err := Reader(iotest.HalfReader(&packed))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d, %v", len(got), n, err)
		}
		r.Close()
	}
	broken := errors.New("broken")
	if err := Copy(io.Discard, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
	r, err := Reader(bytes.NewReader([]byte("no frame")))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); err == nil {
		t.Error("something else was unpacked")
	}
}
