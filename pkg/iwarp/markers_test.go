package iwarp_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// TestMarkersAsAgreed covers MPA-04, MPA-05, MPA-06 and MPA-43: markers stand in
// exactly the directions whose receiver has asked for them, from the first octet
// on, and data arrives whole in both.
func TestMarkersAsAgreed(t *testing.T) {
	for _, x := range []struct{ a, b bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			n := iwarptest.NewNetwork()
			var toB, toA bytes.Buffer // what each direction carries, start-up included
			cfg := n.Config()
			cfg.Dial = iwarptest.Tap(n.Dial, &toB, &toA)
			a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
			b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
			const size = 100_000
			src := bytes.Repeat([]byte("markers!"), size/8)
			atB, atA := b.Recv(t, 1, size), a.Recv(t, 2, size)
			info := iwarptest.Connect(t, a, b, "127.0.0.1:0", &iwarp.ConnParam{Markers: x.a}, &iwarp.ConnParam{Markers: x.b})
			if info.MarkersIn != x.a || info.MarkersOut != x.b {
				t.Errorf("%+v: agreed on %+v", x, info)
			}
			for i, e := range []*iwarptest.End{a, b} {
				mr := e.Reg(t, src, 0, nil)
				e.Post(t, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: size, LKey: mr.STag()}}})
				e.WaitOK(t, 3)
				[]*iwarptest.End{b, a}[i].WaitOK(t, uint64(1+i))
			}
			if !bytes.Equal(atA, src) || !bytes.Equal(atB, src) {
				t.Errorf("%+v: data arrived changed", x)
			}
			// As another implementation would read it: the Reader, told what was agreed.
			for _, d := range []struct {
				name    string
				b       []byte
				markers bool
			}{{"to the responder", toB.Bytes()[24:], x.b}, {"to the initiator", toA.Bytes()[24:], x.a}} {
				r := mpa.NewReader(true)
				if d.markers {
					r.ExpectMarkers()
				}
				if lead := bytes.HasPrefix(d.b, []byte{0, 0, 0, 0}); lead != d.markers {
					t.Errorf("%+v, %s: begins with %x", x, d.name, d.b[:8])
				}
				for p := d.b; len(p) > 0; {
					k := copy(r.Want(), p)
					p = p[k:]
					r.Filled(k)
					for {
						u, err := r.Next()
						if err != nil {
							t.Fatalf("%+v, %s: %v after %d FPDUs", x, d.name, err, r.FPDUs)
						}
						if u == nil {
							break
						}
					}
				}
				if r.Partial() || r.FPDUs < 4 {
					t.Errorf("%+v, %s: %d FPDUs, and a part of one: %v", x, d.name, r.FPDUs, r.Partial())
				}
			}
		})
	}
}

// TestMarkersRefused: siw answers a Request with M by a rejection, and its Reply
// never has M.
func TestMarkersRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		addr, conn := serve(t, n, frame(t, mpa.Frame{Reply: true, Reject: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true}}))
		go func() {
			c := <-conn
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}()
		e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		_, err := e.Dev.Dial(t.Context(), addr, e.QP, &iwarp.ConnParam{Markers: true})
		if rej := (*iwarp.RejectedError)(nil); !errors.As(err, &rej) {
			t.Errorf("Dial: %v, want a rejection", err)
		}
	})
}

// TestMarkersDemanded: a peer of bytes that demands markers finds them in the RTR
// already, and in a Terminate of start-up.
func TestMarkersDemanded(t *testing.T) {
	for name, reply := range map[string]*mpa.Enhanced{
		"RTR":       {PeerToPeer: true, RTR: mpa.RTRWrite},
		"Terminate": {PeerToPeer: true}, // no RTR that fits
	} {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			addr, conn := serve(t, n, frame(t, mpa.Frame{Reply: true, CRC: true, Markers: true, Rev: 2, Enhanced: reply}))
			got := make(chan []byte)
			go func() {
				c := <-conn
				b := make([]byte, 24) // a marker and an empty Write
				_, _ = io.ReadFull(c, b)
				_ = c.Close()
				got <- b
			}()
			e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
			_, err := e.Dev.Dial(t.Context(), addr, e.QP, nil)
			if (err == nil) != (name == "RTR") {
				t.Errorf("%s: Dial: %v", name, err)
			}
			b := <-got
			if !bytes.HasPrefix(b, []byte{0, 0, 0, 0, 0}) || b[5] == 0 {
				t.Errorf("%s: got %x, want a marker and an FPDU", name, b)
			}
		})
	}
}

// TestWrongMarkerTerminates covers MPA-42 and MPA-51 in a connection: MPA reports,
// and RDMAP says a last word.
func TestWrongMarkerTerminates(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, mpa.Frame{CRC: true, Rev: 1}))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.Recv(t, 1, 8)
		if err := r.Accept(t.Context(), e.QP, &iwarp.ConnParam{Markers: true}); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, mpa.FrameSize)
		if _, err := io.ReadFull(c, reply); err != nil || reply[16] != 0xc0 {
			t.Fatalf("Reply %x, %v; want M and C", reply, err)
		}
		b := append([]byte{0, 0, 0, 8}, fpdu(unhex(t, "414300000000000000000000000100000000"))...)
		crc := mpa.CRC(0, b[:len(b)-4])
		for i := range 4 {
			b[len(b)-4+i] = byte(crc >> (8 * i))
		}
		put(t, c, b)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Contains(got, []byte{0x20, 0x03, 0, 0}) || got[3] != 0x47 {
			t.Errorf("got %x, %v; want a Terminate 2/0/03", got, err)
		}
		var te *iwarp.TerminateError
		if err := e.WaitDone(t); !errors.As(err, &te) || te.FromPeer || te.Layer != 2 || te.Code != 3 {
			t.Errorf("ended with %v", err)
		}
		if wc := e.Wait(t); wc.Status != iwarp.StatusWRFlushErr {
			t.Errorf("the receive: %+v", wc)
		}
	})
}
