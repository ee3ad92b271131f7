package iwarp

import "testing"

// BenchmarkRegister is what a job pays for a region of its own: a new STag for
// memory that is there already, and its end.
func BenchmarkRegister(b *testing.B) {
	e := newEnd(b)
	buf := make([]byte, 1<<20)
	o := &MROptions{QP: e.qp}
	for range quarantine * stagShards { // the quarantine fills
		mr, _ := e.pd.RegMR(buf, LocalWrite|RemoteWrite, o)
		_ = mr.Dereg()
	}
	b.ReportAllocs()
	for b.Loop() {
		mr, err := e.pd.RegMR(buf, LocalWrite|RemoteWrite, o)
		if err != nil {
			b.Fatal(err)
		}
		if err := mr.Dereg(); err != nil {
			b.Fatal(err)
		}
	}
}
