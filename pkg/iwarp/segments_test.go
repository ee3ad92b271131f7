package iwarp

import (
	"net"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// TestMULPDUFollowsThePath covers MPA-33: when the size of TCP's segments changes,
// so does that of the FPDUs cut from then on; loopback's are not aligned.
func TestMULPDUFollowsThePath(t *testing.T) {
	tx := txState{sender: rdmap.NewSender(targetULPDU)}
	b := mpa.NewBatch()
	payload := [][]byte{make([]byte, 200_000)}
	tx.sender.Start(rdmap.Message{Op: rdmap.OpWrite, STag: 1, Payload: payload})
	for _, x := range []struct {
		emss, fpdu int // of a segment that is not the last
		aligned    bool
	}{{65483, 32<<10 + 20, false}, {1448, 1448, true}, {1446, 1444, true}, {8948, 8948, true}, {536, 536, true}, {100, 132, false}, {0, 32<<10 + 20, false}} {
		tx.setPath(x.emss)
		b.Reset(true) // as between two writes
		if tx.sender.Cut(b) {
			tx.sender.Start(rdmap.Message{Op: rdmap.OpWrite, STag: 1, Payload: payload})
		}
		first := 2 + int(b.Bufs()[0][0])<<8 + int(b.Bufs()[0][1]) + 4
		if first != x.fpdu || (tx.path.segment > 0) != x.aligned {
			t.Errorf("segments of %d: FPDUs of %d, aligned to %d; want %d, %v", x.emss, first, tx.path.segment, x.fpdu, x.aligned)
		}
	}
}

// TestPathIsLookedAtSeldom: a look is due every few megabytes, or after some hundred
// short batches.
func TestPathIsLookedAtSeldom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tx := txState{sender: rdmap.NewSender(targetULPDU), raw: rawConn(c)}
	tx.initPath()
	looks := 0
	look := tx.path.look
	tx.path.look = func(fd uintptr) { looks++; look(fd) }
	for range 16 {
		tx.followPath(1 << 20)
	}
	if looks != 3 && looks != 4 {
		t.Errorf("%d looks in 16 MiB", looks)
	}
	looks = 0
	for range 1000 {
		tx.followPath(64)
	}
	if looks < 3 || looks > 4 {
		t.Errorf("%d looks at 1000 short batches", looks)
	}
	if n := testing.AllocsPerRun(10, func() { tx.followPath(lookEvery) }); n > 0 {
		t.Errorf("a look allocates %.0f times", n)
	}
}
