package mpa

import (
	"math/rand/v2"
	"testing"
)

// FPDUs of any sizes stand so that TCP, which cuts at the cuts and else every
// segment, cuts nowhere inside one; and no cut is needless.
// covers MPA-34
func TestAlign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, segment := range []int{536, 1444, 1448, 8948} {
		for _, each := range []bool{false, true} {
			for _, markers := range []bool{false, true} {
				b := NewBatch()
				var m Marks
				for range 50 {
					b.Reset(true)
					if markers {
						b.Mark(&m)
					}
					b.Align(segment, each)
					start := map[int]bool{0: true}
					var starts []int
					largest := MULPDU(segment, markers)
					for n := 0; !b.Full(1) && n < 100; n++ {
						size := largest
						if r.IntN(2) == 0 {
							size = 14 + r.IntN(largest-14)
						}
						starts = append(starts, b.Size())
						start[b.Size()] = true
						b.Add(make([]byte, 14), make([]byte, size-14))
					}
					starts = append(starts, b.Size())
					if len(b.Bufs()) != 1 {
						t.Fatalf("%d buffers", len(b.Bufs()))
					}
					run := 0
					cuts := append(append([]int{}, b.Cuts()...), b.Size())
					for _, cut := range cuts {
						if !start[cut] && cut != b.Size() {
							t.Fatalf("a cut at %d, inside an FPDU", cut)
						}
						if each && cut-run > segment {
							t.Fatalf("a run of %d bytes for segments of %d", cut-run, segment)
						}
						for at := run; at < cut; at += segment {
							if !start[at] {
								t.Fatalf("segment %d, each %v, markers %v: TCP cuts at %d, inside an FPDU", segment, each, markers, at)
							}
						}
						run = cut
					}
					if each {
						continue
					}
					for i, cut := range b.Cuts() {
						prev := 0
						if i > 0 {
							prev = b.Cuts()[i-1]
						}
						for k, s := range starts { // what the next FPDU would have had to fit into
							if s == cut && (cut-prev)%segment+starts[k+1]-s <= segment {
								t.Fatalf("a needless cut at %d", cut)
							}
						}
					}
				}
			}
		}
	}
}
