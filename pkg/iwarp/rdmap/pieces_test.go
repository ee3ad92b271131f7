package rdmap

import (
	"bytes"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// TestManyPieces: a message with more pieces than fit into a batch at once is cut nevertheless.
func TestManyPieces(t *testing.T) {
	for _, piece := range []int{1, 50, 5000} {
		var m Message
		m.Op = OpSend
		var want []byte
		for i := range 1024 {
			p := bytes.Repeat([]byte{byte(i)}, piece)
			m.Payload, want = append(m.Payload, p), append(want, p...)
		}
		s := NewSender(mpa.MaxULPDU)
		s.Start(m)
		b := mpa.NewBatch()
		rd := mpa.NewReader(true)
		var got []byte
		for done := false; !done; {
			b.Reset(true)
			if done = s.Cut(b); b.FPDUs() == 0 {
				t.Fatalf("pieces of %d bytes: an empty batch takes nothing", piece)
			}
			for stream := bytes.Join(b.Bufs(), nil); len(stream) > 0; {
				n := copy(rd.Want(), stream)
				rd.Filled(n)
				stream = stream[n:]
				for {
					u, err := rd.Next()
					if err != nil {
						t.Fatal(err)
					}
					if u == nil {
						break
					}
					got = append(got, u[18:]...)
				}
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("pieces of %d bytes arrived changed", piece)
		}
	}
}
