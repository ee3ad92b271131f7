package iwarp

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// TestMillionGuesses: of a million Writes to STags drawn at random, and of those to all
// within 4096 of a live one, none is placed; nor of as many Read Requests and
// invalidations. RDISTCC_GUESSES is another number than a million.
//
// covers SEC-08
func TestMillionGuesses(t *testing.T) {
	count := 1_000_000
	if testing.Short() {
		count /= 10
	}
	if n, err := strconv.Atoi(os.Getenv("RDISTCC_GUESSES")); err == nil {
		count = n
	}
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	qpair, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		t.Fatal(err)
	}
	q := qpair.(*qp)
	// Everything that there is may be written, read and invalidated by this stream.
	const regions, size = 64, 1024
	mem := bytes.Repeat([]byte{0x5c}, regions*size)
	live := make(map[STag]bool)
	var tags []STag
	for i := range regions {
		mr, err := pd.RegMR(mem[i*size:][:size], LocalWrite|RemoteWrite|RemoteRead, &MROptions{QP: qpair})
		if err != nil {
			t.Fatal(err)
		}
		live[mr.STag()] = true
		tags = append(tags, mr.STag())
	}
	x := &rxState{q: q}
	if f := x.Place(tags[0], 0, []byte{0x5c}); f != rdmap.FaultNone {
		t.Fatalf("the right STag: fault %v", f)
	}
	mark := []byte{0xee, 0xee, 0xee, 0xee}
	guesses := 0
	guess := func(s STag) {
		if live[s] {
			return
		}
		guesses++
		if f := x.Place(s, 0, mark); f == rdmap.FaultNone {
			t.Fatalf("a Write to %08x was placed", uint32(s))
		}
		if m := q.dev.mrs.lookup(s); m != nil {
			t.Fatalf("%08x names memory", uint32(s))
		}
		if f := q.remoteInvalidate(s); f == rdmap.FaultNone {
			t.Fatalf("%08x was invalidated", uint32(s))
		}
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for range count {
		guess(STag(rnd.Uint32()))
	}
	for _, s := range tags {
		for d := STag(1); d <= 4096; d++ {
			guess(s + d)
			guess(s - d)
		}
	}
	if !bytes.Equal(mem, bytes.Repeat([]byte{0x5c}, len(mem))) {
		t.Error("memory was changed")
	}
	for _, s := range tags {
		if f := x.Place(s, 0, []byte{0x5c}); f != rdmap.FaultNone {
			t.Errorf("after %d guesses, the right STag: fault %v", guesses, f)
		}
	}
}
