package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// TestTsharkDecodesMarkers covers INT-08: with markers in both directions and one
// FPDU in each segment, which is all that Wireshark can decode of markers, it finds
// every FPDU, every CRC good, and nothing malformed.
func TestTsharkDecodesMarkers(t *testing.T) {
	var toB, toA bytes.Buffer
	fpdus := 0
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		cfg := n.Config()
		cfg.Dial = iwarptest.Tap(n.Dial, &toB, &toA)
		a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
		b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		// Two markers in an FPDU, and an FPDU that ends where a marker begins, are
		// beyond Wireshark too: short segments have one at most.
		p := &iwarp.ConnParam{Markers: true, MaxULPDU: 430, ORD: 4, IRD: 4}
		iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
		for i, e := range []struct{ from, to *iwarptest.End }{{a, b}, {b, a}} {
			src := bytes.Repeat([]byte{byte(i + 1)}, 3000)
			mr := e.from.Reg(t, src, iwarp.LocalWrite, nil)
			win := e.to.Reg(t, make([]byte, 3000), iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead, &iwarp.MROptions{QP: e.to.QP})
			sge := func(n int) []iwarp.SGE { return []iwarp.SGE{{Addr: mr.Base(), Length: uint32(n), LKey: mr.STag()}} }
			e.to.Recv(t, 1, 3000)
			e.to.Recv(t, 2, 3000)
			for id, wr := range []iwarp.SendWR{
				{Op: iwarp.OpSend, SGL: sge(1001)},
				{Op: iwarp.OpWrite, SGL: sge(2500), STag: win.STag(), TO: win.Base()},
				{Op: iwarp.OpRead, SGL: sge(1234), STag: win.STag(), TO: win.Base()},
				{Op: iwarp.OpSendInv, SGL: sge(7), InvSTag: win.STag()},
			} {
				wr.ID = uint64(10 + id)
				e.from.Post(t, &wr)
				e.from.WaitOK(t, wr.ID)
			}
			e.to.WaitOK(t, 1)
			e.to.WaitOK(t, 2)
		}
		synctest.Wait()
		fpdus = int(a.Dev.Stats().FPDUsSent + b.Dev.Stats().FPDUsSent)
	})
	path := filepath.Join(t.TempDir(), "markers.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := iwarptest.NewPcapWriter(f)
	conn := w.Conn(netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("192.0.2.2:7632"))
	conn.Data(true, toB.Next(24))
	conn.Data(false, toA.Next(24))
	unreadable := 0
	for _, d := range []struct {
		initiator bool
		b         []byte
	}{{true, toB.Bytes()}, {false, toA.Bytes()}} {
		for at := 0; at < len(d.b); {
			n := markedLength(d.b, at)
			if (at+n)%512 == 0 && at%512 != 0 && (at+n)/512 > at/512+1 {
				unreadable++
			}
			conn.Data(d.initiator, d.b[at:at+n])
			at += n
		}
		conn.CloseWrite(d.initiator)
	}
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if unreadable > 0 {
		t.Fatalf("%d FPDUs are of the kind that Wireshark misreads: choose other sizes", unreadable)
	}
	r := iwarptest.Tshark(t, path)
	r.Clean(t, fpdus)
	for _, op := range []string{"Write", "Send", "Send with Invalidate", "Read Request", "Read Response"} {
		if r.Opcodes[op] == 0 {
			t.Errorf("no %s among %v", op, r.Opcodes)
		}
	}
}

// markedLength is the length of the FPDU at position at of a marked stream: four
// octets at a time, as a marker may stand before each of them.
func markedLength(b []byte, at int) int {
	p := at
	if p%512 == 0 {
		p += 4
	}
	n := int(binary.BigEndian.Uint16(b[p:]))
	for left := 2 + n + mpa.PadSize(n); left > 0; left -= 4 {
		if p%512 == 0 {
			p += 4
		}
		p += 4
	}
	if p%512 == 0 {
		p += 4
	}
	return p + mpa.CRCSize - at
}
