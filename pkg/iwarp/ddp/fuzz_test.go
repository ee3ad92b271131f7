package ddp_test

import (
	"bytes"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
)

// FuzzParseHeader: a header that was read is written the same, but for reserved
// bits and the version, which are ours to set.
func FuzzParseHeader(f *testing.F) {
	v, err := iwarptest.ReadVectors("../testdata/vectors/vectors.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range v.Vectors {
		if x.Kind == "fpdu" {
			f.Add([]byte(x.ULPDU))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < ddp.UntaggedSize {
			return
		}
		want := bytes.Clone(b)
		want[0] = want[0]&0xc0 | ddp.Version
		got := make([]byte, ddp.UntaggedSize)
		if ddp.IsTagged(b) {
			h := ddp.ParseTagged(b)
			h.Put(got)
			got, want = got[:ddp.TaggedSize], want[:ddp.TaggedSize]
		} else {
			h := ddp.ParseUntagged(b)
			h.Put(got)
			want = want[:ddp.UntaggedSize]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}
