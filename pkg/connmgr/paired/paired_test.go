package paired

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func compile(i int) Compile { return Compile{"/usr/bin/gcc", "/src", fmt.Sprintf("%d.c", i), ""} }

func TestRatio(t *testing.T) {
	var p Table
	want := func(host string, ratio float64) {
		t.Helper()
		if got := p.Ratio(host); math.Abs(got-ratio) > 0.01 {
			t.Errorf("%s: %.2f, want %.2f", host, got, ratio)
		}
	}
	want("fast", 1)
	for i := range 3 {
		p.Far(compile(i), "fast", time.Second)
		want("fast", 1) // of two at most
		p.Here(compile(i), 2*time.Second)
	}
	want("fast", 2)
	want("other", 1)
	// In the other order, and with one that is far off: something else ran then.
	for i, ratio := range []float64{0.5, 30, 0.5, 0.5} {
		p.Here(compile(10+i), time.Duration(ratio*float64(time.Second)))
		p.Far(compile(10+i), "slow", time.Second)
	}
	want("slow", 0.5)
	// A pair counts once; short compiles, and those without a source, not at all.
	for range 10 {
		p.Far(compile(0), "fast", time.Second)
		p.Here(Compile{Source: ""}, time.Hour)
		p.Here(compile(20), time.Millisecond)
		p.Far(compile(20), "fast", time.Hour)
	}
	want("fast", 2)
	// What was long ago is forgotten.
	for i := range 2 * remembered {
		p.Far(compile(i), "fast", time.Second)
		p.Here(compile(i), 3*time.Second)
	}
	want("fast", 3)
}

func TestBounded(t *testing.T) {
	var p Table
	for i := range maxCompiles * 3 {
		p.Far(compile(i), "a", time.Second)
		p.Here(Compile{Source: "x.c", Output: fmt.Sprint(i)}, time.Second)
	}
	if len(p.far) > maxCompiles+1 || len(p.here) > maxCompiles+1 {
		t.Errorf("%d and %d compiles", len(p.far), len(p.here))
	}
}
