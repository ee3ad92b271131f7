package iwarp_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// tap keeps what passes through a connection.
type tap struct {
	net.Conn
	mu      sync.Mutex // guards in and out
	in, out bytes.Buffer
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.in.Write(b[:n])
	c.mu.Unlock()
	return n, err
}

func (c *tap) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	c.out.Write(b[:n])
	c.mu.Unlock()
	return n, err
}

func (c *tap) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// TestOnlyMessagesAfterStartUp covers RDMAP-47: each octet that follows start-up, in
// both directions and up to the end, is of an FPDU with a message that there is.
func TestOnlyMessagesAfterStartUp(t *testing.T) {
	n := iwarptest.NewNetwork()
	cfg := n.Config()
	var taps []*tap
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		taps = append(taps, &tap{Conn: c})
		return taps[len(taps)-1], nil
	}
	a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: 4, IRD: 4, Extensions: true}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
	all := iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic
	ends := [2]*iwarptest.End{a, b}
	var mrs [2]iwarp.MR
	for i, e := range ends {
		mrs[i] = e.Reg(t, make([]byte, 100_000), all, nil)
		for k := range uint64(4) {
			e.Recv(t, 100+k, 64)
		}
	}
	for i, e := range ends {
		sgl := []iwarp.SGE{{Length: 50_000, LKey: mrs[i].STag()}}
		word := []iwarp.SGE{{Addr: 60_000, Length: 8, LKey: mrs[i].STag()}}
		source := []iwarp.SGE{{Addr: 61_000, Length: 8, LKey: mrs[i].STag()}} // no answer comes there meanwhile
		peer := mrs[1-i].STag()
		wrs := []iwarp.SendWR{
			{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hello")},
			{Op: iwarp.OpRead, SGL: sgl, STag: peer, TO: 50_000},
			{Op: iwarp.OpFetchAdd, SGL: word, STag: peer, TO: 70_000},
			{Op: iwarp.OpCmpSwap, SGL: word, STag: peer, TO: 70_000},
			{Op: iwarp.OpWriteImm, Flags: iwarp.Solicited, SGL: source, STag: peer, TO: 80_000},
			{Op: iwarp.OpImmediate},
			{Op: iwarp.OpRead, STag: peer},
		}
		for k := range wrs {
			wrs[k].ID = uint64(k)
			e.Post(t, &wrs[k])
		}
		for k := 0; k < len(wrs); {
			if wc := e.Wait(t); wc.Status != iwarp.StatusSuccess {
				t.Fatalf("%+v: %v", wc, e.QP.Err())
			} else if wc.ID < 100 {
				k++
			}
		}
	}
	if err := a.QP.Disconnect(iwarptest.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.WaitDone(t)
	seen := make(map[rdmap.Opcode]int)
	for reply, buf := range []*bytes.Buffer{&taps[0].out, &taps[0].in} {
		stream := buf.Bytes()
		_, size, err := mpa.ParseFrame(stream, reply == 1)
		if err != nil || size == 0 {
			t.Fatal("no start-up frame", err)
		}
		rd := mpa.NewReader(true)
		for stream = stream[size:]; len(stream) > 0; {
			k := copy(rd.Want(), stream)
			rd.Filled(k)
			stream = stream[k:]
			for {
				u, err := rd.Next()
				if err != nil {
					t.Fatal(err)
				}
				if u == nil {
					break
				}
				op := rdmap.Opcode(u[1] & 0xf)
				if len(u) < ddp.TaggedSize || u[1]&0xf0 != 0x40 || op > rdmap.OpAtomicResponse {
					t.Errorf("no message: %x", u)
				}
				seen[op]++
			}
		}
		if rd.Partial() {
			t.Error("octets are left over")
		}
	}
	for op, least := range map[rdmap.Opcode]int{rdmap.OpWrite: 3, rdmap.OpReadRequest: 4, rdmap.OpReadResponse: 6, rdmap.OpSend: 2,
		rdmap.OpImmediate: 2, rdmap.OpImmediateSE: 2, rdmap.OpAtomicRequest: 4, rdmap.OpAtomicResponse: 4} {
		if seen[op] < least {
			t.Errorf("%d segments of opcode %d, want %d", seen[op], op, least)
		}
	}
}
