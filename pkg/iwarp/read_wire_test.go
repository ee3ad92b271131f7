package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// rawPeer is a QP, the responder, whose initiator is the test itself. It has the
// depth and extensions of p.
type rawPeer struct {
	*iwarptest.End
	t   *testing.T
	net *iwarptest.Network
	c   net.Conn
	rd  *mpa.Reader
}

func newRawPeer(t *testing.T, p *iwarp.ConnParam) *rawPeer {
	t.Helper()
	n := iwarptest.NewNetwork()
	e, l := listen(t, n, nil)
	r := &rawPeer{End: e, t: t, net: n, c: rawDial(t, n, l), rd: mpa.NewReader(true)}
	put(t, r.c, frame(t, mpa.Frame{CRC: true, Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{IRD: p.ORD, ORD: p.IRD}}))
	req, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Accept(t.Context(), e.QP, p); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r.c, make([]byte, 24)); err != nil {
		t.Fatal(err)
	}
	r.put(writeFrame(0, 0, 0)) // opens the gate
	return r
}

func (r *rawPeer) put(b []byte) {
	r.t.Helper()
	put(r.t, r.c, b)
}

// segment reads the next segment that the QP sends; nil at its FIN.
func (r *rawPeer) segment() []byte {
	r.t.Helper()
	for {
		u, err := r.rd.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		if u != nil {
			return bytes.Clone(u)
		}
		n, err := r.c.Read(r.rd.Want())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			r.t.Fatal(err)
		}
		r.rd.Filled(n)
	}
}

// terminate reads until the QP's Terminate and returns it, and the payload of Read
// Responses before it.
func (r *rawPeer) terminate() (t rdmap.Terminate, read int) {
	r.t.Helper()
	for {
		u := r.segment()
		switch {
		case u == nil:
			r.t.Fatalf("no Terminate came after %d bytes: %v", read, r.QP.Err())
		case u[1]&0xf == byte(rdmap.OpReadResponse):
			read += len(u) - ddp.TaggedSize
		case u[1]&0xf == byte(rdmap.OpTerminate):
			t, err := rdmap.ParseTerminate(u[ddp.UntaggedSize:], false)
			if err != nil {
				r.t.Fatal(err)
			}
			return t, read
		}
	}
}

// sendTerminate says that the QP has broken a rule.
func (r *rawPeer) sendTerminate(t *rdmap.Terminate) {
	r.t.Helper()
	r.put(untaggedFrame(ddp.Untagged{Last: true, QN: rdmap.QNTerminate, MSN: 1}, byte(rdmap.OpTerminate), t.Append(nil)))
}

func (r *rawPeer) reg(b []byte, a iwarp.Access) iwarp.MR { return r.Reg(r.t, b, a, nil) }

// TestTerminateStatuses covers RDMAP-31 and RDMAP-41: the request that a Terminate
// of the peer is about has the status that tells, and all others are flushed.
func TestTerminateStatuses(t *testing.T) {
	const (
		readWR = iota
		writeWR
		sendInvWR
		sendWR
		atomicWR
		lastReadWR
		wrs
	)
	untagged := func(qn, msn uint32, op rdmap.Opcode) []byte {
		b := make([]byte, ddp.UntaggedSize)
		h := ddp.Untagged{Last: true, ULP: 0x40 | byte(op), QN: qn, MSN: msn}
		h.Put(b)
		return b
	}
	tagged := make([]byte, ddp.TaggedSize)
	(&ddp.Tagged{Last: true, ULP: 0x40}).Put(tagged)
	for _, x := range []struct {
		term   rdmap.Terminate
		wr     int // -1: none
		status iwarp.Status
		read   int // whose Read Request header to attach; -1: none
	}{
		{rdmap.Terminate{Type: 1, Code: 0, SegLen: 46, DDP: untagged(1, 1, 1)}, readWR, iwarp.StatusRemAccessErr, readWR},
		{rdmap.Terminate{Type: 1, Code: 2, SegLen: 46, DDP: untagged(1, 7, 1)}, lastReadWR, iwarp.StatusRemAccessErr, lastReadWR}, // siw: MSN wrong
		{rdmap.Terminate{Type: 1, Code: 1, SegLen: 70, DDP: untagged(1, 2, 10)}, atomicWR, iwarp.StatusRemAccessErr, -1},
		{rdmap.Terminate{Type: 1, Code: 4}, readWR, iwarp.StatusRemAccessErr, -1},
		{rdmap.Terminate{Type: 1, Code: 9}, sendInvWR, iwarp.StatusRemInvReqErr, -1},
		{rdmap.Terminate{Type: 2, Code: 9}, sendInvWR, iwarp.StatusRemInvReqErr, -1},
		{rdmap.Terminate{Layer: 1, Type: 1, Code: 1, SegLen: 30, DDP: tagged}, writeWR, iwarp.StatusRemAccessErr, -1},
		{rdmap.Terminate{Layer: 1, Type: 2, Code: 2}, sendInvWR, iwarp.StatusRemInvReqErr, -1},
		{rdmap.Terminate{Layer: 1, Type: 2, Code: 5}, sendInvWR, iwarp.StatusRemInvReqErr, -1},
		{rdmap.Terminate{Type: 2, Code: 6}, readWR, iwarp.StatusRemOpErr, -1},
		{rdmap.Terminate{Type: 2, Code: 7, SegLen: 70, DDP: untagged(1, 2, 10)}, atomicWR, iwarp.StatusRemOpErr, -1},
		{rdmap.Terminate{Layer: 2, Code: 2}, readWR, iwarp.StatusRemOpErr, -1},
		{rdmap.Terminate{}, readWR, iwarp.StatusFatalErr, -1},
		{rdmap.Terminate{Layer: 1}, readWR, iwarp.StatusFatalErr, -1},
	} {
		t.Run(fmt.Sprintf("%d-%d-%02x_%d", x.term.Layer, x.term.Type, x.term.Code, x.wr), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRawPeer(t, &iwarp.ConnParam{ORD: 4, Extensions: true})
				sink := r.reg(make([]byte, 64), iwarp.LocalWrite)
				sgl := []iwarp.SGE{{Length: 8, LKey: sink.STag()}}
				for id, wr := range []*iwarp.SendWR{
					readWR:     {Op: iwarp.OpRead, STag: 77, SGL: sgl},
					writeWR:    {Op: iwarp.OpWrite, STag: 77, SGL: sgl},
					sendInvWR:  {Op: iwarp.OpSendInv, InvSTag: 77, SGL: sgl},
					sendWR:     {Op: iwarp.OpSend, SGL: sgl},
					atomicWR:   {Op: iwarp.OpFetchAdd, STag: 77, SGL: sgl},
					lastReadWR: {Op: iwarp.OpRead, STag: 78, SGL: sgl},
				} {
					wr.ID = uint64(id)
					r.Post(t, wr)
				}
				r.Recv(t, wrs, 8)
				requests := map[int][]byte{}
				for id := range wrs { // all are on the wire, and none is complete
					u := r.segment()
					if id == readWR || id == lastReadWR {
						requests[id] = u[ddp.UntaggedSize:]
					}
				}
				term := x.term
				if x.read >= 0 {
					term.ReadRequest = requests[x.read]
				}
				r.sendTerminate(&term)
				var te *iwarp.TerminateError
				if err := r.WaitDone(t); !errors.As(err, &te) || !te.FromPeer || te.Layer != term.Layer || te.Type != term.Type || te.Code != term.Code {
					t.Fatalf("ended with %v", err)
				}
				if !bytes.Equal(te.DDP, term.DDP) || !bytes.Equal(te.ReadRequest, term.ReadRequest) || !bytes.Equal(te.Raw, term.Append(nil)) || te.PeerLayout {
					t.Errorf("the Terminate is reported as %+v", te)
				}
				for id := range wrs + 1 {
					want := iwarp.StatusWRFlushErr
					if id == x.wr {
						want = x.status
					}
					if wc := r.Wait(t); wc.ID != uint64(id) || wc.Status != want {
						t.Errorf("completion %+v, want id %d, %s", wc, id, want)
					}
				}
			})
		})
	}
}

// TestAdvancedReadRequest covers RDMAP-38 and SEC-06: a region that is deregistered
// while it is being read stops there, and the Terminate says how far it got.
func TestAdvancedReadRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8 << 20 // more than the connection and a batch hold
		r := newRawPeer(t, &iwarp.ConnParam{IRD: 2})
		mr := r.reg(bytes.Repeat([]byte{1}, size), iwarp.RemoteRead)
		req := readFrame(1, mr.STag(), 0, size)
		r.put(req)
		synctest.Wait()
		dereg := make(chan error)
		go func() { dereg <- mr.Dereg() }()
		synctest.Wait()
		got := 0
		for deregistered := false; !deregistered; {
			u := r.segment() // room for the write that blocks
			got += len(u) - ddp.TaggedSize
			synctest.Wait()
			select {
			case err := <-dereg:
				if err != nil {
					t.Fatal(err)
				}
				deregistered = true
			default:
			}
		}
		term, rest := r.terminate()
		if got += rest; got == 0 || got >= size {
			t.Fatalf("%d of %d bytes came: it was not stopped on its way", got, size)
		}
		u := req[mpa.LengthSize : len(req)-4]
		if s := fmt.Sprintf("%d/%d/%02x", term.Layer, term.Type, term.Code); s != "0/1/00" || !bytes.HasPrefix(u, term.DDP) || term.SegLen != rdmap.ReadRequestSegment {
			t.Errorf("Terminate %+v", term)
		}
		want := rdmap.ParseReadRequest(u[ddp.UntaggedSize:])
		want.SinkTO, want.SrcTO, want.Size = want.SinkTO+uint64(got), want.SrcTO+uint64(got), want.Size-uint32(got)
		if now := rdmap.ParseReadRequest(term.ReadRequest); now != want {
			t.Errorf("Read Request header %+v, want %+v", now, want)
		}
	})
}

// TestDeregDoesNotWaitForever: a peer that stops to read in the middle of a response
// keeps its source for LingerTimeout, and no longer.
func TestDeregDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{IRD: 2})
		mr := r.reg(make([]byte, 8<<20), iwarp.RemoteRead)
		r.put(readFrame(1, mr.STag(), 0, 8<<20))
		synctest.Wait()
		start := time.Now()
		if err := mr.Dereg(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("Dereg took %v, want LingerTimeout, 2 s", d)
		}
		if err := r.WaitDone(t); err == nil {
			t.Error("the stream ended gracefully")
		}
	})
}

// TestSendCompletesAmidRead covers RDMAP-46: a Send after a Read Request is delivered while the response is
// still under way.
func TestSendCompletesAmidRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{IRD: 2})
		mr := r.reg(make([]byte, 8<<20), iwarp.RemoteRead)
		r.Recv(t, 1, 8)
		r.put(append(readFrame(1, mr.STag(), 0, 8<<20), sendFrame(1, 0, true, 8)...))
		r.WaitOK(t, 1) // no byte of the response has been read
		if s := r.QP.Stats(); s.ReadsReceived != 1 || s.BytesSent != 0 {
			t.Errorf("%+v: the response is complete already", s)
		}
	})
}

// TestInboundDepth covers RDMAP-21 and SEC-12: a peer that asks and does not read
// has IRD requests held, and with one more loses its stream.
func TestInboundDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ird = 4
		r := newRawPeer(t, &iwarp.ConnParam{IRD: ird})
		mr := r.reg(make([]byte, 8<<20), iwarp.RemoteRead)
		for i := range uint32(ird) {
			r.put(readFrame(i+1, mr.STag(), 0, 8<<20))
		}
		synctest.Wait()
		if s := r.QP.State(); s != iwarp.StateRTS {
			t.Fatalf("state %s with IRD requests held: %v", s, r.QP.Err())
		}
		// Whose stream alone it is: another one of the device reads on (SEC-13).
		a, b := iwarptest.NewEnd(t, iwarptest.Open(t, r.net.Config()), iwarp.QPInitAttr{}), iwarptest.NewEnd(t, r.Dev, iwarp.QPInitAttr{})
		p := &iwarp.ConnParam{ORD: 1, IRD: 1}
		iwarptest.Connect(t, a, b, "127.0.0.1:0", p, p)
		src, dst := b.Reg(t, []byte("read by the other"), iwarp.RemoteRead, nil), make([]byte, 17)
		dm := a.Reg(t, dst, iwarp.LocalWrite, nil)
		start := time.Now()
		for range 3 {
			a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: src.STag(), SGL: []iwarp.SGE{{Length: 17, LKey: dm.STag()}}})
			a.WaitOK(t, 1)
		}
		if string(dst) != "read by the other" || time.Since(start) != 0 {
			t.Errorf("another stream read %q after %v", dst, time.Since(start))
		}
		r.put(readFrame(ird+1, mr.STag(), 0, 8<<20))
		var te *iwarp.TerminateError
		if err := r.WaitDone(t); !errors.As(err, &te) || te.FromPeer || te.Layer != 1 || te.Type != 2 || te.Code != 2 {
			t.Errorf("one more than IRD: %v, want 1/2/02", err)
		}
	})
}

// TestSinkSTagGivesNothing covers SEC-09: what a peer learns from a Read Request
// serves for its response alone, while that is due.
func TestSinkSTagGivesNothing(t *testing.T) {
	response := func(stag iwarp.STag, to uint64, n int) []byte {
		return taggedFrame(byte(rdmap.OpReadResponse), stag, to, bytes.Repeat([]byte{0xee}, n))
	}
	for _, x := range []struct {
		name   string
		say    func(stag iwarp.STag, to uint64) []byte
		code   string
		status iwarp.Status
	}{
		{"Write", func(s iwarp.STag, to uint64) []byte { return writeFrame(s, to, 8) }, "1/1/00", iwarp.StatusWRFlushErr},
		{"Read", func(s iwarp.STag, to uint64) []byte { return readFrame(1, s, to, 8) }, "0/1/00", iwarp.StatusWRFlushErr},
		{"other STag", func(s iwarp.STag, to uint64) []byte { return response(s+1, to, 64) }, "1/1/00", iwarp.StatusBadRespErr},
		{"shifted", func(s iwarp.STag, to uint64) []byte { return response(s, to+8, 56) }, "1/1/01", iwarp.StatusBadRespErr},
		{"long", func(s iwarp.STag, to uint64) []byte { return response(s, to, 65) }, "1/1/01", iwarp.StatusBadRespErr},
		{"short", func(s iwarp.STag, to uint64) []byte { return response(s, to, 63) }, "1/1/01", iwarp.StatusBadRespErr},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRawPeer(t, &iwarp.ConnParam{ORD: 1, IRD: 1})
				memory := make([]byte, 64+16)
				mr := r.reg(memory[8:72], iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead)
				r.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: 77, SGL: []iwarp.SGE{{Length: 64, LKey: mr.STag()}}})
				req := rdmap.ParseReadRequest(r.segment()[ddp.UntaggedSize:])
				if req.SinkSTag == mr.STag() || req.SinkSTag == 0 {
					t.Errorf("sink STag %#x: the region's own is %#x", req.SinkSTag, mr.STag())
				}
				r.put(x.say(req.SinkSTag, req.SinkTO))
				term, _ := r.terminate()
				if s := fmt.Sprintf("%d/%d/%02x", term.Layer, term.Type, term.Code); s != x.code {
					t.Errorf("Terminate %s, want %s", s, x.code)
				}
				if wc := r.Wait(t); wc.ID != 1 || wc.Status != x.status {
					t.Errorf("%+v, want %s", wc, x.status)
				}
				if !bytes.Equal(memory, make([]byte, len(memory))) {
					t.Error("memory has changed")
				}
			})
		})
	}
	t.Run("afterwards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRawPeer(t, &iwarp.ConnParam{ORD: 1})
			memory := make([]byte, 64)
			mr := r.reg(memory, iwarp.LocalWrite|iwarp.RemoteWrite)
			r.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: 77, SGL: []iwarp.SGE{{Length: 64, LKey: mr.STag()}}})
			req := rdmap.ParseReadRequest(r.segment()[ddp.UntaggedSize:])
			r.put(response(req.SinkSTag, req.SinkTO, 64))
			r.WaitOK(t, 1)
			clear(memory)
			r.put(response(req.SinkSTag, req.SinkTO, 64))
			if term, _ := r.terminate(); term.Layer != 0 || term.Type != 2 || term.Code != 6 || !bytes.Equal(memory, make([]byte, 64)) {
				t.Errorf("a second response: %+v, memory %x", term, memory[:8])
			}
		})
	})
}

// TestSinkGoneAmidResponse: a sink that its owner takes away ends the Read, and not
// a byte comes later.
func TestSinkGoneAmidResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{ORD: 1})
		memory := make([]byte, 64)
		mr := r.reg(memory, iwarp.LocalWrite)
		r.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: 77, SGL: []iwarp.SGE{{Length: 64, LKey: mr.STag()}}})
		req := rdmap.ParseReadRequest(r.segment()[ddp.UntaggedSize:])
		if err := mr.Dereg(); err != nil {
			t.Fatal(err)
		}
		r.put(taggedFrame(byte(rdmap.OpReadResponse), req.SinkSTag, req.SinkTO, bytes.Repeat([]byte{0xee}, 64)))
		if term, _ := r.terminate(); term.Layer != 1 || term.Type != 1 || term.Code != 0 {
			t.Errorf("Terminate %+v", term)
		}
		if wc := r.Wait(t); wc.ID != 1 || wc.Status != iwarp.StatusLocProtErr || !bytes.Equal(memory, make([]byte, 64)) {
			t.Errorf("%+v, memory %x", wc, memory[:8])
		}
	})
}

// TestFINAmidReads: Reads that the peer can no longer answer are flushed, and the
// end is no graceful one.
func TestFINAmidReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{ORD: 1})
		mr := r.reg(make([]byte, 64), iwarp.LocalWrite)
		sgl := []iwarp.SGE{{Length: 64, LKey: mr.STag()}}
		r.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead, STag: 77, SGL: sgl})
		r.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: sgl})
		r.Post(t, &iwarp.SendWR{ID: 3, Op: iwarp.OpRead, STag: 77, SGL: sgl})
		synctest.Wait()
		if err := r.c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitDone(t); err == nil || !strings.Contains(err.Error(), "before it answered") {
			t.Errorf("Err is %v", err)
		}
		for id := uint64(1); id <= 3; id++ {
			if wc := r.Wait(t); wc.ID != id || wc.Status != iwarp.StatusWRFlushErr {
				t.Errorf("%+v", wc)
			}
		}
	})
}

// TestEmptyReadNamesAnSTag covers INT-13.
func TestEmptyReadNamesAnSTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{ORD: 1})
		r.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpRead})
		req := rdmap.ParseReadRequest(r.segment()[ddp.UntaggedSize:])
		if req.SinkSTag == 0 || req.SrcSTag == 0 || req.Size != 0 {
			t.Errorf("%+v", req)
		}
		r.put(taggedFrame(byte(rdmap.OpReadResponse), 0, 99, nil)) // neither is checked
		r.WaitOK(t, 1)
	})
}

// TestBadRequestAfterGoodOnes: what came before a request at fault is answered
// before the Terminate goes.
func TestBadRequestAfterGoodOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{IRD: 4, Extensions: true})
		mr := r.reg(make([]byte, 1000), iwarp.RemoteRead)
		b := append(readFrame(1, mr.STag(), 0, 1000), readFrame(2, mr.STag(), 500, 500)...)
		r.put(append(b, readFrame(3, mr.STag(), 501, 500)...))
		term, read := r.terminate()
		if read != 1500 || term.Layer != 0 || term.Type != 1 || term.Code != 1 || binary.BigEndian.Uint64(term.ReadRequest[20:]) != 501 {
			t.Errorf("%d bytes, then %+v", read, term)
		}
	})
}

// TestAtomicIsMisaligned covers EXT-12 for a region whose memory, rather than its TO, is misaligned.
func TestAtomicIsMisaligned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRawPeer(t, &iwarp.ConnParam{IRD: 1, Extensions: true})
		memory := make([]byte, 64)
		mr := r.reg(memory[4:], iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteAtomic)
		var head [rdmap.AtomicRequestSize]byte
		(&rdmap.AtomicRequest{Op: rdmap.FetchAdd, STag: mr.STag(), Data: 5}).Put(head[:])
		r.put(untaggedFrame(ddp.Untagged{Last: true, QN: 1, MSN: 1}, byte(rdmap.OpAtomicRequest), head[:]))
		term, _ := r.terminate()
		if term.Layer != 0 || term.Type != 2 || term.Code != 7 || term.ReadRequest != nil || len(term.DDP) != ddp.UntaggedSize {
			t.Errorf("Terminate %+v", term)
		}
		if !bytes.Equal(memory, make([]byte, 64)) {
			t.Error("memory has changed")
		}
	})
}
