package iwarp_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// covers INT-07: a conversation with every message that we send, in sizes around
// the limits of a segment, decodes in Wireshark: each FPDU is seen, each CRC is
// good, nothing is malformed.
func TestTsharkDecodesConversation(t *testing.T) {
	for _, c := range []struct {
		name  string
		param iwarp.ConnParam
	}{
		{"revision 2 peer-to-peer", iwarp.ConnParam{}},
		{"revision 2 client-server", iwarp.ConnParam{ClientServer: true}},
		{"revision 1", iwarp.ConnParam{Rev: 1}},
		{"segments of an Ethernet", iwarp.ConnParam{MaxULPDU: 1442}}, // 250 FPDUs in a packet are too many for tshark
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "conversation.pcap")
			want := converse(t, path, c.param)
			r := iwarptest.Tshark(t, path)
			r.Clean(t, want)
			if r.Requests != 1 || r.Replies != 1 {
				t.Errorf("%d Requests and %d Replies", r.Requests, r.Replies)
			}
			for _, op := range []string{"Write", "Send", "Send with Invalidate", "Send with SE", "Terminate"} {
				if r.Opcodes[op] == 0 {
					t.Errorf("no %s among %v", op, r.Opcodes)
				}
			}
		})
	}
}

// side is one end of a test connection.
type side struct {
	dev  iwarp.Device
	cq   iwarp.CQ
	qp   iwarp.QP
	mr   iwarp.MR // local memory, for sending and receiving
	mem  []byte
	win  iwarp.MR // what the peer may write
	wmem []byte
}

const sideMemory = 256 << 10

func newSide(t *testing.T) *side {
	t.Helper()
	s := &side{mem: make([]byte, sideMemory), wmem: make([]byte, sideMemory)}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.dev, err = iwarp.Open(iwarp.Config{})
	check()
	t.Cleanup(func() { _ = s.dev.Close() })
	pd, err := s.dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	s.cq, err = s.dev.CreateCQ(256)
	check()
	s.qp, err = pd.CreateQP(iwarp.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq})
	check()
	for i := range s.mem {
		s.mem[i] = byte(i * 31)
	}
	s.mr, err = pd.RegMR(s.mem, iwarp.LocalWrite, nil)
	check()
	s.win, err = pd.RegMR(s.wmem, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: s.qp})
	check()
	return s
}

// wait takes completions until n have come.
func (s *side) wait(t *testing.T, n int) []iwarp.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []iwarp.WC
	for len(all) < n {
		wcs := make([]iwarp.WC, n-len(all))
		k := s.cq.Poll(wcs)
		all = append(all, wcs[:k]...)
		if k > 0 {
			continue
		}
		if err := s.cq.Wait(ctx); err != nil {
			t.Fatalf("%d of %d completions: %v", len(all), n, err)
		}
	}
	return all
}

// connected connects two sides through a recording proxy.
func connected(t *testing.T, pcap *iwarptest.PcapWriter, p iwarp.ConnParam) (a, b *side, proxy *iwarptest.Proxy) {
	t.Helper()
	a, b = newSide(t), newSide(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ln, err := b.dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	proxy, err = iwarptest.NewProxy(ln.Addr().String(), pcap)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			err = req.Accept(ctx, b.qp, &iwarp.ConnParam{MaxULPDU: p.MaxULPDU})
		}
		accepted <- err
	}()
	if _, err := a.dev.Dial(ctx, proxy.Addr(), a.qp, &p); err != nil {
		t.Fatal(err)
	}
	// A responder may send once the initiator has spoken: in client-server mode
	// that is the first Send, which the caller makes.
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return a, b, proxy
}

// converse records a conversation in a file and returns how many FPDUs it took.
func converse(t *testing.T, path string, p iwarp.ConnParam) (fpdus int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, b, proxy := connected(t, iwarptest.NewPcapWriter(f), p)

	sizes := []int{5, 0, 1, 2, 3, 4, 63, 1000, 5000, 64750, 64751, 200000}
	for _, s := range []struct{ from, to *side }{{a, b}, {b, a}} {
		for _, n := range sizes {
			exchange(t, s.from, s.to, iwarp.SendWR{Op: iwarp.OpSend}, n)
		}
		exchange(t, s.from, s.to, iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Solicited}, 100)
		for _, n := range sizes {
			write(t, s.from, s.to, n)
			exchange(t, s.from, s.to, iwarp.SendWR{Op: iwarp.OpSend}, 1) // the Write before it is there now
			if !bytes.Equal(s.to.wmem[8:8+n], s.from.mem[:n]) {
				t.Fatalf("a Write of %d octets did not arrive", n)
			}
		}
		wc := exchange(t, s.from, s.to, iwarp.SendWR{Op: iwarp.OpSendInv, InvSTag: s.to.win.STag()}, 77)
		if !wc.Inv || wc.InvSTag != s.to.win.STag() {
			t.Fatalf("Send with Invalidate: %+v", wc)
		}
	}
	// The window is shut: one more Write ends the stream with a Terminate.
	if err := a.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, STag: b.win.STag(), SGL: []iwarp.SGE{{Length: 8, LKey: a.mr.STag()}}}); err != nil {
		t.Fatal(err)
	}
	<-a.qp.Done()
	<-b.qp.Done()
	var te *iwarp.TerminateError
	if err := a.qp.Err(); !errors.As(err, &te) || !te.FromPeer || te.Layer != 1 || te.Type != 1 || te.Code != 0 {
		t.Fatalf("Write to a shut window: got %v, want the peer's Terminate 1/1/00", err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	return int(a.dev.Stats().FPDUsSent + b.dev.Stats().FPDUsSent)
}

// exchange sends n octets and waits until they have arrived.
func exchange(t *testing.T, from, to *side, wr iwarp.SendWR, n int) iwarp.WC {
	t.Helper()
	if err := to.qp.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{{Length: sideMemory, LKey: to.mr.STag()}}}); err != nil {
		t.Fatal(err)
	}
	if n > 0 {
		wr.SGL = []iwarp.SGE{{Length: uint32(n), LKey: from.mr.STag()}}
	}
	if err := from.qp.PostSend(&wr); err != nil {
		t.Fatal(err)
	}
	sent, got := from.wait(t, 1)[0], to.wait(t, 1)[0]
	if sent.Status != iwarp.StatusSuccess || got.Status != iwarp.StatusSuccess || int(got.ByteLen) != n {
		t.Fatalf("Send of %d octets: %+v, %+v", n, sent, got)
	}
	if got.Solicited != (wr.Flags&iwarp.Solicited != 0) {
		t.Errorf("Send of %d octets: solicited %v", n, got.Solicited)
	}
	return got
}

func write(t *testing.T, from, to *side, n int) {
	t.Helper()
	wr := iwarp.SendWR{Op: iwarp.OpWrite, STag: to.win.STag(), TO: 8}
	if n > 0 {
		wr.SGL = []iwarp.SGE{{Length: uint32(n), LKey: from.mr.STag()}}
	}
	if err := from.qp.PostSend(&wr); err != nil {
		t.Fatal(err)
	}
	if wc := from.wait(t, 1)[0]; wc.Status != iwarp.StatusSuccess {
		t.Fatalf("Write of %d octets: %+v", n, wc)
	}
}
