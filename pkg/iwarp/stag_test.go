package iwarp_test

import (
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// covers SEC-08: STags cannot be guessed from earlier ones. None is zero, none
// comes again soon after its end, no difference is frequent, and each octet takes
// all its values about equally often.
func TestSTagsAreUnpredictable(t *testing.T) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 16
	var octets [4][256]int
	diffs := make(map[uint32]int)
	seen := make(map[iwarp.STag]bool)
	again := 0
	var last iwarp.STag
	for i := range n {
		mr, err := pd.RegMR(make([]byte, 1), iwarp.RemoteRead, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := mr.STag()
		if s == 0 {
			t.Fatal("an STag of zero")
		}
		if s == last {
			t.Fatalf("STag %08x twice in a row", uint32(s))
		}
		if seen[s] {
			again++ // 2^16 draws of 2^32: half a time on average
		}
		seen[s] = true
		for k := range octets {
			octets[k][byte(s>>(8*k))]++
		}
		if i > 0 {
			diffs[uint32(s-last)]++
		}
		last = s
		if err := mr.Dereg(); err != nil {
			t.Fatal(err)
		}
	}
	if again > 8 {
		t.Errorf("%d of %d STags came again", again, n)
	}
	for d, k := range diffs {
		if k > 4 {
			t.Errorf("difference %08x came %d times", d, k)
		}
	}
	for k := range octets {
		chi := 0.0
		for _, c := range octets[k] {
			x := float64(c) - n/256
			chi += x * x / (n / 256)
		}
		if chi > 400 { // 255 degrees of freedom: beyond it once in 10^8
			t.Errorf("octet %d is not even: chi square %.0f", k, chi)
		}
	}
}
