package rdmap_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// covers DDP-03, RDMAP-02, RDMAP-05: reserved bits of DDP and RDMAP, and the
// Invalidate STag of a message that has none, are not looked at.
func TestReservedBitsAreIgnored(t *testing.T) {
	v := vectors(t)
	for _, name := range []string{"send-24", "write-8", "send-se", "send-inv"} {
		u := bytes.Clone(v.Find(name).ULPDU)
		u[0] |= 0x3c
		u[1] |= 0x30
		if !ddp.IsTagged(u) {
			binary.BigEndian.PutUint32(u[10:], 1) // MSN
			if name != "send-inv" {
				copy(u[2:6], []byte{0xde, 0xad, 0xbe, 0xef})
			}
		}
		b := mpa.NewBatch()
		b.Reset(true)
		b.Add(u)
		c := &consumer{room: 1000, receives: 1, open: true}
		r := rdmap.NewReceiver(c, true, false)
		if err := feed(r, bytes.Join(b.Bufs(), nil)); err != nil || r.Sends+r.Writes != 1 {
			t.Errorf("%s: %v, %d Sends, %d Writes", name, err, r.Sends, r.Writes)
		}
	}
}

// covers DDP-37: the segments of a Write may come in any order of their TOs: each
// is placed where it says.
func TestWriteSegmentsInAnyOrder(t *testing.T) {
	c := &consumer{regions: make(map[ddp.STag]*region)}
	c.add(7, 0, 30, false, true, true)
	b := mpa.NewBatch()
	b.Reset(true)
	for i, at := range []uint64{20, 0, 10} {
		u := make([]byte, ddp.TaggedSize, 64)
		h := ddp.Tagged{Last: i == 2, ULP: 0x40, STag: 7, TO: at}
		h.Put(u)
		b.Add(append(u, bytes.Repeat([]byte{byte(at)}, 10)...))
	}
	r := rdmap.NewReceiver(c, true, false)
	if err := feed(r, bytes.Join(b.Bufs(), nil)); err != nil || r.Writes != 1 {
		t.Fatalf("%v, %d Writes", err, r.Writes)
	}
	for i, x := range c.regions[7].buf {
		if int(x) != i/10*10 {
			t.Fatalf("octet %d is %d: %v", i, x, c.regions[7].buf)
		}
	}
}
