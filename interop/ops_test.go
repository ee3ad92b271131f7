package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// open opens our device, with room for what siw-peer asks for.
func open(t *testing.T, cfg iwarp.Config) iwarp.Device {
	t.Helper()
	iwarptest.CheckGoroutines(t)
	dev, err := iwarp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s := dev.Stats(); s.QPs+s.CQs+s.MRs+s.PDs != 0 {
			t.Errorf("left on the device: %+v", s)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// listen opens a listener that the guest reaches at HostAddr.
func listen(t *testing.T, dev iwarp.Device) (l iwarp.Listener, port int) {
	t.Helper()
	l, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// wish is one combination of what start-up negotiates, and how the driver is loaded.
type wish struct {
	name  string
	load  string // arguments of siw-load; "" = the driver as it is
	param iwarp.ConnParam
}

// dials are the ways to connect to siw, accepts those to be connected to.
var (
	dials = []wish{
		{"revision 2, CRC, RTR Write", "", iwarp.ConnParam{RTR: iwarp.RTRWrite}},
		{"revision 2, CRC, RTR Read", "", iwarp.ConnParam{RTR: iwarp.RTRRead}},
		{"revision 2, CRC, RTR of siw's choice", "", iwarp.ConnParam{}},
		{"revision 2, CRC, no RTR", "", iwarp.ConnParam{ClientServer: true}},
		{"revision 2, no CRC, RTR Write", "", iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed, RTR: iwarp.RTRWrite}},
		{"revision 2, no CRC, no RTR", "", iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed, ClientServer: true}},
		{"revision 1, CRC", "", iwarp.ConnParam{Rev: 1}},
		{"revision 1, no CRC", "", iwarp.ConnParam{Rev: 1, CRC: iwarp.CRCOffIfAgreed}},
	}
	accepts = []wish{
		{"revision 2, CRC (ours), no RTR", "", iwarp.ConnParam{}},
		{"revision 2, no CRC, no RTR", "", iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}},
		{"revision 2, CRC (siw's), no RTR", "param mpa_crc_required=1", iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}},
		{"revision 2, CRC, siw asks for an RTR: Write", "param peer_to_peer=1", iwarp.ConnParam{RTR: iwarp.RTRWrite}},
		{"revision 2, no CRC, siw asks for an RTR: Read", "param peer_to_peer=1", iwarp.ConnParam{RTR: iwarp.RTRRead, CRC: iwarp.CRCOffIfAgreed}},
		{"revision 1, CRC", "param mpa_version=1", iwarp.ConnParam{}},
		{"revision 1, no CRC", "param mpa_version=1", iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}},
	}
)

// apply loads the driver for w.
func (w *wish) apply(t *testing.T, g *Guest) {
	t.Helper()
	if w.load != "" {
		g.Load(t, w.load)
	}
}

// crc is what start-up must agree on.
func (w *wish) crc() bool {
	return w.param.CRC == iwarp.CRCRequired || strings.Contains(w.load, "mpa_crc_required=1")
}

// opSizes are those of every operation: nothing, the paddings, one FPDU and just
// more than that, many.
var opSizes = []int{0, 1, 2, 3, 4, 64, 1424, 1428, 1429, 9000, 65536, 1 << 20}

// Every verb, issued by us: to a server of siw, and it to us.
func TestOperationsOurClient(t *testing.T) {
	for i, w := range dials {
		t.Run(w.name, func(t *testing.T) {
			g := Boot(t)
			note := row(t, "siw-peer -s", "every operation, our client, "+w.name)
			dev := open(t, iwarp.Config{})
			p := newPeer(t, dev)
			w.apply(t, g)
			port, addr := g.Port()
			j := g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d", GuestAddr, port), port, time.Minute)
			if err := p.dial(t.Context(), addr, w.param); err != nil {
				t.Fatal(err)
			}
			checkInfo(t, p.info, &w)
			for _, n := range opSizes {
				for _, op := range []string{"write", "fread", "swrite", "sread", "csend", "reply", "send", "sendse"} {
					if strings.Contains(op, "se") && n > 5000 || n > peerRecv && (op == "csend" || op == "reply") {
						continue // the server holds 16 of them uncounted
					}
					if op == "fread" && n == 0 {
						continue // siw answers some Reads of nothing with octets of before
					}
					if err := p.do(t.Context(), op, n, uint32(n)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := p.reads(t.Context(), peerReads, 5000); err != nil {
				t.Fatal(err)
			}
			// It invalidates: the region can be written before, and not after. Nothing
			// that siw's programs see tells of it.
			if err := p.post(t.Context(), "write", p.invWR()); err != nil {
				t.Fatal(err)
			}
			op := map[bool]string{true: "sendinv", false: "sendinvse"}[i%2 == 0]
			if err := p.do(t.Context(), op, 12, 0); err != nil {
				t.Fatal(err)
			}
			if err := p.do(t.Context(), "reply", 1, 0); err != nil {
				t.Fatal(err)
			}
			if i%4 < 2 {
				if err := p.close(t.Context()); err != nil {
					t.Error(err)
				}
				if out, _ := j.Wait(t); !strings.Contains(out, "RDMA_CM_EVENT_DISCONNECTED") && !strings.Contains(out, "Flushed") {
					t.Error("siw-peer has not seen the connection end")
				}
				return
			}
			tellTerminates(t, g)
			letReturn(t.Context())
			if err := p.qp.PostSend(p.invWR()); err != nil {
				t.Fatal(err)
			}
			if end(t, p) == nil && heldBack(t, g) {
				*note = "siw ends the stream at a Write to what was invalidated, and held its Terminate back"
				return
			}
			if term := ended(t, p); !term.FromPeer || term.Layer != 1 || term.Type != 1 || term.Code != 0 {
				t.Errorf("a Write to what was invalidated: %v", term)
			}
		})
	}
}

func checkInfo(t *testing.T, info *iwarp.ConnInfo, w *wish) {
	t.Helper()
	if info.CRC != w.crc() {
		t.Errorf("CRC agreed: %v, want %v", info.CRC, w.crc())
	}
	if rev := max(1, w.param.Rev); w.param.Rev != 0 && info.Rev != rev || w.param.Rev == 0 && info.Rev != 2 {
		t.Errorf("MPA revision %d agreed", info.Rev)
	}
	if info.Rev == 2 && (info.PeerIRD != peerReads || info.ORD != peerReads || info.IRD != peerReads) {
		t.Errorf("depths: %+v", info)
	}
	if p2p := info.Rev == 2 && !w.param.ClientServer; info.PeerToPeer != p2p {
		t.Errorf("peer to peer: %v, want %v", info.PeerToPeer, p2p)
	}
	if want := w.param.RTR; want != 0 && info.RTR != want {
		t.Errorf("RTR: %v, want %v", info.RTR, want)
	}
}

// Every verb, issued by siw: to our server, and us to it.
func TestOperationsOurServer(t *testing.T) {
	var ops []string
	for _, n := range opSizes {
		for _, op := range []string{"write", "fread", "swrite", "sread", "csend", "reply", "send", "sendse"} {
			if strings.Contains(op, "se") && n > 5000 || n > peerRecv && (op == "csend" || op == "reply") || op == "sread" && n == 0 {
				continue // as above
			}
			ops = append(ops, fmt.Sprintf("%s:%d", op, n))
		}
	}
	ops = append(ops, "reads:16:5000", "sendinv", "reply:1")
	for _, w := range accepts {
		t.Run(w.name, func(t *testing.T) {
			g := Boot(t)
			note := row(t, "siw-peer -c", "every operation, our server, "+w.name)
			for again := 1; ; again++ {
				err := operations(t, g, &w, ops)
				if err == nil {
					return
				}
				if !spoilt(err.Error(), again, note) {
					t.Fatal(err)
				}
			}
		})
	}
}

// operations has siw do all of ops to a server of ours that accepts as w says. It returns why
// our side's stream ended, if that was by an error.
func operations(t *testing.T, g *Guest, w *wish, ops []string) error {
	t.Helper()
	dev := open(t, iwarp.Config{})
	p := newPeer(t, dev)
	w.apply(t, g)
	l, port := listen(t, dev)
	j := g.Start(t, fmt.Sprintf("siw-peer -c %s -p %d %s", HostAddr, port, strings.Join(ops, " ")), time.Minute)
	req := acceptOne(t, l)
	if info := req.Info(); strings.Contains(w.load, "mpa_version=1") != (info.Rev == 1) || info.Rev == 2 && (info.PeerIRD != peerReads || info.PeerORD != peerReads) {
		t.Errorf("Request: %+v", info)
	}
	if err := p.accept(t.Context(), req, w.param); err != nil {
		t.Fatal(err)
	}
	if err := p.serve(t.Context()); err != nil {
		p.qp.Abort() // siw-peer need not wait
		j.Wait(t)
		return err
	}
	out, status := j.Wait(t)
	if status != 0 || !strings.Contains(out, "all done") {
		t.Errorf("siw-peer: exit status %d", status)
	}
	if !p.invalidated {
		t.Error("siw's Send with Invalidate has not arrived")
	}
	return nil
}

func acceptOne(t *testing.T, l iwarp.Listener) iwarp.ConnRequest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), peerTime)
	defer cancel()
	req, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// An application that refuses, with private data, in both directions.
func TestReject(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		g := Boot(t)
		row(t, "siw-peer -c", "our server rejects with private data")
		l, port := listen(t, open(t, iwarp.Config{}))
		j := g.Start(t, fmt.Sprintf("siw-peer -c %s -p %d", HostAddr, port), time.Minute)
		if err := acceptOne(t, l).Reject([]byte("not tomorrow either")); err != nil {
			t.Fatal(err)
		}
		if out, _ := j.Wait(t); !strings.Contains(out, "RDMA_CM_EVENT_REJECTED") || !strings.Contains(out, "19 bytes of private data") {
			t.Errorf("siw-peer says:\n%s", out)
		}
	})
	t.Run("siw's", func(t *testing.T) {
		g := Boot(t)
		row(t, "siw-peer -s -x", "our client is rejected with private data")
		p := newPeer(t, open(t, iwarp.Config{}))
		port, addr := g.Port()
		g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d -x", GuestAddr, port), port, time.Minute)
		rejected := new(iwarp.RejectedError)
		if err := p.dial(t.Context(), addr, iwarp.ConnParam{}); !errors.As(err, &rejected) || string(rejected.PrivateData) != "not today" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("markers", func(t *testing.T) {
		g := Boot(t)
		row(t, "siw-peer -s", "our client demands markers: siw itself rejects")
		p := newPeer(t, open(t, iwarp.Config{}))
		port, addr := g.Port()
		g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d", GuestAddr, port), port, time.Minute)
		rejected := new(iwarp.RejectedError)
		if err := p.dial(t.Context(), addr, iwarp.ConnParam{Markers: true}); !errors.As(err, &rejected) {
			t.Errorf("got %v", err)
		}
	})
}
