package iwarp

import (
	"runtime"
	"testing"
)

// TestQueuesOfNoStreamAreSmall: queues get their places when they are needed. A program that dials a
// thousand hosts, of which most never answer, makes as many QPs.
func TestQueuesOfNoStreamAreSmall(t *testing.T) {
	const n, places, most = 64, 1 << 10, 8 << 10 // most: bytes of each QP and its CQ
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		cq, err := dev.CreateCQ(2 * places)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: places, MaxRecv: places}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > most {
		t.Errorf("a QP that was never connected, and its CQ, take %d bytes, want at most %d", each, most)
	}
}
