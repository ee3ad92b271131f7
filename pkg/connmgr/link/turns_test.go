package link

import "testing"

// TestTurns: new flights come first, but half of the turns are for those that have begun.
func TestTurns(t *testing.T) {
	var q turns
	long, other := &Flight{ID: 1, off: 1, Length: 9}, &Flight{ID: 2, off: 1, Length: 9}
	q.again(long)
	q.again(other)
	for id := range uint64(4) {
		q.again(&Flight{ID: 10 + id, Length: 1})
	}
	var got []uint64
	for f := q.next(); f != nil; f = q.next() {
		got = append(got, f.ID)
		if f.off++; f.off < 4 && f.Length > 1 {
			q.again(f)
		}
	}
	want := []uint64{10, 1, 11, 2, 12, 1, 13, 2, 1, 2}
	if len(got) != len(want) {
		t.Fatalf("turns %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("turns %v, want %v", got, want)
		}
	}
	q.again(long)
	q.again(other)
	q.drop(long)
	if f := q.next(); f != other || q.next() != nil {
		t.Errorf("next is %+v once one was dropped", f)
	}
}
