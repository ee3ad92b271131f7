package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// triple is a Terminate's layer, error type and code (RFC 5040 §4.8).
type triple struct{ layer, etype, code uint8 }

func (x triple) String() string { return fmt.Sprintf("%d/%d/%02x", x.layer, x.etype, x.code) }

// Opcodes (RFC 5040 §4.4).
const (
	opWrite    = 0
	opReadReq  = 1
	opReadResp = 2
	opSend     = 3
	opSendInv  = 4

	opTerminate = 7
)

// Offsets in the FPDU of a Read Request (RFC 5040 §4.4).
const (
	offReadSize = 32
	offReadSTag = 36
	offReadTO   = 40
)

// flip changes one octet at off.
func flip(off int, to byte) func([]byte) { return func(b []byte) { b[off] = to } }

// Whatever rule we break, siw's Terminate reaches us and says what siw means, in
// spite of the order in which it writes the fields (INT-04).
func TestSiwTerminates(t *testing.T) {
	request := func(f func(p *peer) *iwarp.SendWR) func(*peer) error {
		return func(p *peer) error { return p.qp.PostSend(f(p)) }
	}
	write := request(func(p *peer) *iwarp.SendWR { return p.writeWR(64) })
	read := request(func(p *peer) *iwarp.SendWR { return p.readWR(0, 64) })
	send := func(op iwarp.Opcode) func(*peer) error {
		return request(func(p *peer) *iwarp.SendWR {
			return &iwarp.SendWR{Op: op, InvSTag: iwarp.STag(p.far.RKey2), SGL: []iwarp.SGE{{Length: 12, LKey: p.sendMR.STag()}}}
		})
	}
	for _, c := range []struct {
		name   string
		do     func(p *peer) error
		change func([]byte) []byte // of what we send
		want   triple
	}{
		{"Write, wrong STag", request(func(p *peer) *iwarp.SendWR {
			wr := p.writeWR(64)
			wr.STag ^= 0x5500
			return wr
		}), nil, triple{1, 1, 0}},
		{"Write past the end", request(func(p *peer) *iwarp.SendWR {
			wr := p.writeWR(64)
			wr.TO += uint64(p.far.Len) - 32
			return wr
		}), nil, triple{1, 1, 1}},
		{"Write, TO wraps", write, edit(opWrite, func(b []byte) { put(offTO, 0xffffffff)(b); put(offTO+4, 0xfffffff0)(b) }), triple{1, 0, 0}},
		{"Read, wrong STag", request(func(p *peer) *iwarp.SendWR {
			wr := p.readWR(0, 64)
			wr.STag ^= 0x5500
			return wr
		}), nil, triple{0, 1, 0}},
		{"Read past the end", request(func(p *peer) *iwarp.SendWR {
			wr := p.readWR(0, 64)
			wr.TO += uint64(p.far.Len) - 32
			return wr
		}), nil, triple{0, 1, 1}},
		{"Send longer than the receive", request(func(p *peer) *iwarp.SendWR {
			return &iwarp.SendWR{Op: iwarp.OpSend, SGL: p.local(0, peerRecv+1)}
		}), nil, triple{1, 2, 2}},
		{"Send with Invalidate of an unknown STag", request(func(p *peer) *iwarp.SendWR {
			return &iwarp.SendWR{Op: iwarp.OpSendInv, InvSTag: 0x12345600, SGL: p.local(0, 12)}
		}), nil, triple{0, 2, 9}}, // which siw sends only when its application, which sees the error, closes
		{"CRC", send(iwarp.OpSend), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, triple{2, 0, 2}},
		{"payload changed", send(iwarp.OpSend), func(b []byte) []byte { b[len(b)-8] ^= 1; return b }, triple{2, 0, 2}},
		{"DDP version, tagged", write, edit(opWrite, flip(offDDP, 0xc3)), triple{1, 1, 4}},
		{"DDP version, untagged", send(iwarp.OpSend), edit(opSend, flip(offDDP, 0x43)), triple{1, 2, 6}},
		{"RDMAP version", send(iwarp.OpSend), edit(opSend, flip(offRDMAP, 0x80|opSend)), triple{0, 2, 5}},
		{"opcode 11", send(iwarp.OpSend), edit(opSend, flip(offRDMAP, 0x40|11)), triple{0, 2, 6}},
		{"queue 5", send(iwarp.OpSend), edit(opSend, put(offQN, 5)), triple{1, 2, 1}},
		{"MSN 7", send(iwarp.OpSend), edit(opSend, put(offMSN, 7)), triple{1, 2, 3}},
		{"MO 4 first", send(iwarp.OpSend), edit(opSend, put(offMO, 4)), triple{1, 2, 4}},
		{"Read Request of MSN 9", read, edit(opReadReq, put(offMSN, 9)), triple{1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := Boot(t)
			note := row(t, "siw-peer -s", "siw's Terminate: "+c.name)
			var m *mangler
			dev := open(t, iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				var d net.Dialer
				conn, err := d.DialContext(ctx, "tcp", addr)
				if err != nil {
					return nil, err
				}
				m = &mangler{Conn: conn, in: &frames{}, out: &frames{}}
				return m, nil
			}})
			var term *iwarp.TerminateError
			held := 0 // times that siw could not send its Terminate
			for term == nil {
				p := newPeer(t, dev)
				port, addr := g.Port()
				g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d", GuestAddr, port), port, time.Minute)
				tellTerminates(t, g)
				if err := p.dial(t.Context(), addr, iwarp.ConnParam{RTR: iwarp.RTRWrite}); err != nil {
					t.Fatal(err)
				}
				// siw is awake and has answered: what follows is not lost.
				if err := p.do(t.Context(), "reply", 4, 0); err != nil {
					t.Fatal(err)
				}
				letReturn(t.Context())
				var came atomic.Bool // a Terminate, on the wire
				m.in.set(func(fpdu []byte) []byte {
					if fpdu[offRDMAP]&0xf == opTerminate {
						came.Store(true)
					}
					return nil
				})
				m.out.set(c.change)
				if err := c.do(p); err != nil {
					t.Fatal(err)
				}
				if held < 2 && end(t, p) == nil && !came.Load() && heldBack(t, g) {
					held++
					continue
				}
				term = ended(t, p)
			}
			*note = fmt.Sprintf("%d/%d/%02x, octets %x", term.Layer, term.Type, term.Code, term.Raw[:min(4, len(term.Raw))])
			if held > 0 {
				*note += fmt.Sprintf("; before, siw held it back %d times", held)
			}
			if got := (triple{term.Layer, term.Type, term.Code}); !term.FromPeer || got != c.want {
				t.Errorf("got %v (from the peer: %v), want %v of the peer; octets %x", got, term.FromPeer, c.want, term.Raw)
			}
			// 1/1 without headers reads the same in both orders.
			if len(term.Raw) < 4 || !term.PeerLayout && (term.Raw[0] != 0x11 || term.Raw[2] != 0) {
				t.Errorf("siw's order of fields is not told: %+v", term)
			}
		})
	}
}

// set makes f the change of the next frames.
func (f *frames) set(change func([]byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change = change
}

// ended waits for the end of p's stream, which must be a Terminate.
func ended(t *testing.T, p *peer) *iwarp.TerminateError {
	t.Helper()
	term := new(iwarp.TerminateError)
	if err := end(t, p); !errors.As(err, &term) {
		t.Fatalf("the stream ended with %v, not with a Terminate", err)
	}
	return term
}

// end waits for the end of p's stream and returns its reason.
func end(t *testing.T, p *peer) error {
	t.Helper()
	select {
	case <-p.qp.Done():
	case <-time.After(peerTime):
		t.Fatal("the stream goes on")
	}
	return p.qp.Err()
}

// tellTerminates has siw say in the kernel log, from now on empty, what becomes of its Terminates.
func tellTerminates(t *testing.T, g *Guest) {
	t.Helper()
	g.Run(t, "dmesg -c >/dev/null; echo 'func siw_send_terminate +p' >/proc/dynamic_debug/control")
}

// heldBack reports whether siw had a Terminate for us and did not send it: it sends none while it works on
// a Send or Read Response, even when the peer already has all of that and only siw's thread has not
// continued since. Then it closes in good order, and its peer learns of no error.
func heldBack(t *testing.T, g *Guest) bool {
	t.Helper()
	return strings.Contains(g.Run(t, "dmesg"), "cannot send TERMINATE")
}

// Whatever rule siw breaks, by itself or by a change on the way, our Terminate ends
// the stream with the code of RFC 5040 and 5041, siw reads it, and nothing of what
// was wrong is placed.
func TestOurTerminates(t *testing.T) {
	type fixture struct {
		*peer
		foreign iwarp.MR // of another PD
	}
	field := func(op byte, off int, v func(f *fixture) uint32) func(f *fixture) func([]byte) []byte {
		return func(f *fixture) func([]byte) []byte { return edit(op, put(off, v(f))) }
	}
	constant := func(v uint32) func(*fixture) uint32 { return func(*fixture) uint32 { return v } }
	plain := func(change func([]byte) []byte) func(f *fixture) func([]byte) []byte {
		return func(*fixture) func([]byte) []byte { return change }
	}
	local := func(f *fixture) uint32 { return uint32(f.recvMR.STag()) }
	foreign := func(f *fixture) uint32 { return uint32(f.foreign.STag()) }
	for _, c := range []struct {
		name           string
		op             string // of siw-peer
		change         func(f *fixture) func([]byte) []byte
		recvs, recvLen int
		want           triple
	}{
		{name: "Write, wrong STag (siw's own)", op: "badwrite", want: triple{1, 1, 0}},
		{name: "Write past the end (siw's own)", op: "oob", want: triple{1, 1, 1}},
		{name: "Read, wrong STag (siw's own)", op: "badread", want: triple{0, 1, 0}},
		{name: "Write, no right", op: "write:64", change: field(opWrite, offSTag, local), want: triple{1, 1, 0}},
		{name: "Write, STag of another PD", op: "write:64", change: field(opWrite, offSTag, foreign), want: triple{1, 1, 2}},
		{name: "Write, TO wraps", op: "write:64", change: plain(edit(opWrite, func(b []byte) { put(offTO, 0xffffffff)(b); put(offTO+4, 0xfffffff0)(b) })), want: triple{1, 1, 3}},
		{name: "Read, no right", op: "read:64", change: field(opReadReq, offReadSTag, local), want: triple{0, 1, 2}},
		{name: "Read, STag of another PD", op: "read:64", change: field(opReadReq, offReadSTag, foreign), want: triple{0, 1, 3}},
		{name: "Read, TO wraps", op: "read:64", change: plain(edit(opReadReq, func(b []byte) { put(offReadTO, 0xffffffff)(b); put(offReadTO+4, 0xfffffff0)(b) })), want: triple{0, 1, 4}},
		{name: "Read past the end", op: "read:64", change: field(opReadReq, offReadSize, constant(peerBuf+1)), want: triple{0, 1, 1}},
		{name: "Read Request of MSN 9", op: "read:64", change: field(opReadReq, offMSN, constant(9)), want: triple{1, 2, 3}},
		{name: "CRC", op: "write:64", change: plain(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), want: triple{2, 0, 2}},
		{name: "payload changed", op: "write:64", change: plain(func(b []byte) []byte { b[len(b)-8] ^= 1; return b }), want: triple{2, 0, 2}},
		{name: "DDP version, tagged", op: "write:64", change: plain(edit(opWrite, flip(offDDP, 0xc3))), want: triple{1, 1, 4}},
		{name: "DDP version, untagged", op: "send:64", change: plain(edit(opSend, flip(offDDP, 0x43))), want: triple{1, 2, 6}},
		{name: "RDMAP version", op: "send:64", change: plain(edit(opSend, flip(offRDMAP, 0x80|opSend))), want: triple{0, 2, 5}},
		{name: "opcode 15", op: "send:64", change: plain(edit(opSend, flip(offRDMAP, 0x40|15))), want: triple{0, 2, 6}},
		{name: "Immediate Data, which is off", op: "send:8", change: plain(edit(opSend, flip(offRDMAP, 0x40|8))), want: triple{0, 2, 6}},
		{name: "Read Response without a Read", op: "write:64", change: plain(edit(opWrite, flip(offRDMAP, 0x40|opReadResp))), want: triple{0, 2, 6}},
		{name: "queue 5", op: "send:64", change: field(opSend, offQN, constant(5)), want: triple{1, 2, 1}},
		{name: "MSN 7", op: "send:64", change: field(opSend, offMSN, constant(7)), want: triple{1, 2, 3}},
		{name: "MO 4 first", op: "send:64", change: field(opSend, offMO, constant(4)), want: triple{1, 2, 4}},
		{name: "Send longer than the receive", op: "send:101", recvs: 4, recvLen: 100, want: triple{1, 2, 5}},
		{name: "Send without a receive", op: "send:64", recvs: 0, recvLen: 64, want: triple{1, 2, 2}},
		{name: "Send with Invalidate of an unknown STag", op: "sendinv", change: field(opSendInv, offSTag, constant(0x12345678)), want: triple{0, 2, 9}},
		{name: "Send with Invalidate of a shared STag", op: "sendinv", change: field(opSendInv, offSTag, func(f *fixture) uint32 { return uint32(f.mr.STag()) }), want: triple{0, 1, 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := Boot(t)
			note := row(t, "siw-peer -c", "our Terminate: "+c.name)
			var m *mangler
			dev := open(t, iwarp.Config{Listen: func(ctx context.Context, addr string) (net.Listener, error) {
				l, err := net.Listen("tcp", addr)
				return &manglers{l, &m}, err
			}})
			if c.recvLen == 0 {
				c.recvs, c.recvLen = peerRecvs, peerRecv
			}
			f := &fixture{peer: newPeerRecvs(t, dev, c.recvs, c.recvLen)}
			pd, err := dev.AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			if f.foreign, err = pd.RegMR(make([]byte, peerBuf), iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead, &iwarp.MROptions{Base: f.mr.Base()}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(f.foreign.Dereg(), pd.Dealloc()); err != nil {
					t.Error(err)
				}
			})
			l, port := listen(t, dev)
			g.Run(t, "dmesg -c >/dev/null")
			j := g.Start(t, fmt.Sprintf("siw-peer -c %s -p %d %s reply:1", HostAddr, port, c.op), time.Minute)
			req := acceptOne(t, l)
			change := func([]byte) []byte { return nil }
			if c.change != nil {
				change = c.change(f)
			}
			// siw's Send, or Write, fails if our Terminate and FIN come before it has returned: siw then reads no more.
			m.in.set(func(fpdu []byte) []byte {
				letReturn(t.Context())
				return change(fpdu)
			})
			if err := f.accept(t.Context(), req, iwarp.ConnParam{}); err != nil {
				t.Fatal(err)
			}
			term := ended(t, f.peer)
			got := triple{term.Layer, term.Type, term.Code}
			if term.FromPeer || got != c.want {
				t.Errorf("got %v (from the peer: %v), want %v of ours", got, term.FromPeer, c.want)
			}
			if !same(f.buf, 1) {
				t.Error("something was written into our buffer")
			}
			// It may wait for 20 s yet for an answer: siw reads the Terminate as soon as the guest runs.
			log, _ := g.Exec(t, "for i in $(seq 500); do dmesg | grep 'got TERMINATE' && exit; usleep 20000; done", time.Minute)
			if j.wait(3*time.Second, j.done) {
				if out, status := j.Wait(t); status == 0 {
					t.Errorf("siw-peer is content:\n%s", out)
				}
			}
			*note = fmt.Sprintf("%v; siw logs %q", got, strings.TrimSpace(log[strings.Index(log, "]")+1:]))
			// siw takes the two halves of the first octet in the wrong order.
			if want := fmt.Sprintf("got TERMINATE. layer %d, type %d, code %d", c.want.etype, c.want.layer, c.want.code); !strings.Contains(log, want) {
				t.Errorf("siw's log has not %q:\n%s", want, log)
			}
		})
	}
}

// manglers is a listener whose connections go through a mangler.
type manglers struct {
	net.Listener
	last **mangler
}

func (l *manglers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	*l.last = &mangler{Conn: c, in: &frames{}, out: &frames{}}
	return *l.last, nil
}
