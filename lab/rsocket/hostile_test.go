package rsocket

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// hostile is a peer that is made by hand: it has a table and a buffer, and says what a test wants.
type hostile struct {
	*iwarptest.End
	t    testing.TB
	own  proto.ConnData
	peer proto.ConnData
}

func newHostile(t testing.TB, dev iwarp.Device) *hostile {
	h := &hostile{End: iwarptest.NewEnd(t, dev, iwarp.QPInitAttr{MaxSend: 64, MaxRecv: 64}), t: t}
	mem := h.Reg(t, make([]byte, 8192), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	h.own = proto.ConnData{
		Credits: 32, IOMaps: 1, Table: proto.SGE{Addr: mem.Base(), Key: uint32(mem.STag()), Length: 2},
		Buffer: proto.SGE{Addr: mem.Base() + 4096, Key: uint32(mem.STag()), Length: 2048},
	}
	for i := range 64 {
		h.Recv(t, uint64(i), proto.MessageSize)
	}
	return h
}

func (h *hostile) dial(addr string, private []byte) error {
	info, err := h.Dev.Dial(iwarptest.Context(h.t), addr, h.QP, &iwarp.ConnParam{PrivateData: private})
	if err != nil {
		return err
	}
	h.peer, err = proto.ParseConnData(info.PrivateData)
	return err
}

// post posts what may fail, as the connection may have ended.
func (h *hostile) post(wr *iwarp.SendWR) {
	if err := h.QP.PostSend(wr); err != nil && !errors.Is(err, iwarp.ErrState) && !errors.Is(err, iwarp.ErrQueueFull) {
		h.t.Fatal(err)
	}
}

func (h *hostile) send(p ...byte) {
	h.post(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: p})
}

func (h *hostile) say(op proto.Op, arg uint32) {
	h.send(proto.Message{Op: op, Arg: arg}.Append(nil, binary.LittleEndian)...)
}

// write writes p at an offset from the peer's table or buffer.
func (h *hostile) write(to proto.SGE, at uint64, p []byte) {
	h.post(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled, STag: iwarp.STag(to.Key), TO: to.Addr + at, Data: p})
}

func (h *hostile) data(n int) {
	h.write(h.peer.Buffer, 0, make([]byte, min(n, 64)))
	h.say(proto.OpData, uint32(n))
}

// A peer that breaks the protocol gets its connection ended, with one error that says why. What it
// had sent in good order before is still read.
func TestHostilePeer(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(h *hostile)
		says string
	}{
		"credits overdrawn": {func(h *hostile) {
			for range 5 {
				h.data(1)
			}
		}, "data message 5 without a credit"},
		"too much data":     {func(h *hostile) { h.data(129) }, "129 bytes of data, with room for"},
		"no data":           {func(h *hostile) { h.data(0) }, "0 bytes of data"},
		"data after end":    {func(h *hostile) { h.say(proto.OpControl, proto.Shutdown); h.data(1) }, "data after the end"},
		"reserved type":     {func(h *hostile) { h.say(5, 0) }, "reserved type 5"},
		"internal type":     {func(h *hostile) { h.say(proto.OpWrite, 4) }, "reserved type 2"},
		"control":           {func(h *hostile) { h.say(proto.OpControl, 3) }, "control message 3"},
		"short message":     {func(h *hostile) { h.send(1, 0, 0) }, "message of 3 bytes"},
		"empty message":     {func(h *hostile) { h.send() }, "message of 0 bytes"},
		"credits withdrawn": {func(h *hostile) { h.say(proto.OpCredit, 31) }, "credit up to message 31"},
		"excessive credits": {func(h *hostile) { h.say(proto.OpCredit, 33) }, "credit up to message 33"},
		"map out of bounds": {func(h *hostile) { h.say(proto.OpIOMap, 2) }, "map 2 of 2"},
		"buffer wraps": {func(h *hostile) {
			h.write(h.peer.Table, proto.SGESize, proto.SGE{Addr: 1<<64 - 8, Key: 1, Length: 9}.Append(nil, binary.LittleEndian))
			h.say(proto.OpCredit, 32)
		}, "wraps around"},
		"map wraps": {func(h *hostile) {
			m := proto.IOMap{Offset: 1<<64 - 1, Mem: proto.SGE{Length: 9}}
			h.write(h.peer.Table, 2*proto.SGESize, m.Append(nil, binary.LittleEndian))
			h.say(proto.OpIOMap, 0)
		}, "wraps around"},
		// The stack below ends these.
		"long message":        {func(h *hostile) { h.send(1, 0, 0, 0, 0) }, "too long"},
		"beyond our memory":   {func(h *hostile) { h.write(h.peer.Buffer, 128, []byte{1}) }, "bounds"},
		"before our memory":   {func(h *hostile) { h.write(h.peer.Table, 1<<64-1, []byte{1}) }, "bounds"},
		"into what we send":   {func(h *hostile) { h.write(proto.SGE{Key: h.peer.Buffer.Key + 256}, 0, []byte{1}) }, "STag"},
		"an immediate end":    {func(h *hostile) { h.QP.Abort() }, "reset"},
		"an end without word": {func(h *hostile) { h.QP.Disconnect(iwarptest.Context(h.t)) }, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			n := iwarptest.NewNetwork()
			l, err := Listen(t.Context(), iwarptest.Open(t, n.Config()), "127.0.0.1:0", &Options{RecvBuffer: 128, Credits: 4, IOMaps: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			h := newHostile(t, iwarptest.Open(t, n.Config()))
			if err := h.dial(l.Addr().String(), h.own.Append(nil)); err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			x.do(h)
			select {
			case <-c.(*Conn).ended:
			case <-time.After(iwarptest.Timeout):
				t.Fatal("the connection goes on")
			}
			good := map[string]int{"credits overdrawn": 4}[name]
			if got, err := io.ReadAll(c); len(got) != good || err == nil || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %d bytes, %v; want %d, %q", len(got), err, good, x.says)
			}
			if _, err := c.Write([]byte{1}); err == nil {
				t.Error("Write works")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A responder is silent until the initiator has sent something: siw's initiator takes what comes
// right behind the Reply for a broken one.
func TestResponderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		l, err := Listen(t.Context(), iwarptest.Open(t, n.Config()), "127.0.0.1:0", &Options{KeepAlive: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		h := newHostile(t, iwarptest.Open(t, n.Config()))
		if err := h.dial(l.Addr().String(), h.own.Append(nil)); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("hello"))
			written <- err
		}()
		time.Sleep(5 * time.Second)
		if s := h.QP.Stats(); s.SendsReceived+s.WritesReceived != 0 || len(written) != 0 {
			t.Errorf("it has sent: %+v", s)
		}
		h.say(proto.OpControl, proto.KeepAlive)
		if err := <-written; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if s := h.QP.Stats(); s.SendsReceived != 2 { // a grant, and data
			t.Errorf("after the first message it has sent: %+v", s)
		}
		h.QP.Abort()
		c.Close()
	})
}

// Messages that mean nothing to us disturb nothing: keepalives that are sent, and what comes after a
// Disconnect.
func TestHarmlessMessages(t *testing.T) {
	n := iwarptest.NewNetwork()
	l, err := Listen(t.Context(), iwarptest.Open(t, n.Config()), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newHostile(t, iwarptest.Open(t, n.Config()))
	if err := h.dial(l.Addr().String(), h.own.Append(nil)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h.say(proto.OpControl, proto.KeepAlive)
	h.data(7)
	h.say(proto.OpControl, proto.Disconnect)
	h.say(proto.OpCredit, 32)
	h.say(proto.OpControl, proto.KeepAlive)
	if err := h.QP.Disconnect(iwarptest.Context(t)); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(c); len(got) != 7 || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A peer that does not speak the protocol is rejected, and the next one is served.
func TestPrivateDataRefused(t *testing.T) {
	n := iwarptest.NewNetwork()
	da, db := iwarptest.Open(t, n.Config()), iwarptest.Open(t, n.Config())
	l, err := Listen(t.Context(), db, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, bend := range map[string]func(p []byte) []byte{
		"nothing":    func([]byte) []byte { return nil },
		"version 2":  func(p []byte) []byte { p[0] = 2; return p },
		"cut":        func(p []byte) []byte { return p[:39] },
		"no credits": func(p []byte) []byte { p[2], p[3] = 0, 0; return p },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, iwarptest.Open(t, n.Config()))
			var rejected *iwarp.RejectedError
			if err := h.dial(l.Addr().String(), bend(h.own.Append(nil))); !errors.As(err, &rejected) {
				t.Errorf("got %v", err)
			}
		})
	}
	a, err := Dial(iwarptest.Context(t), da, l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	closeBoth(a, b.(*Conn))
	if s := db.Stats(); s.QPs != 0 || s.MRs != 0 {
		t.Errorf("%d QPs and %d regions are left", s.QPs, s.MRs)
	}
}

// Dial ends with an error if the other side does not speak the protocol.
func TestReplyRefused(t *testing.T) {
	n := iwarptest.NewNetwork()
	h := newHostile(t, iwarptest.Open(t, n.Config()))
	l, err := h.Dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			r.Accept(t.Context(), h.QP, nil)
		}
	}()
	dev := iwarptest.Open(t, n.Config())
	if _, err := Dial(iwarptest.Context(t), dev, l.Addr().String(), nil); !errors.Is(err, proto.ErrProtocol) {
		t.Errorf("got %v", err)
	}
	if s := dev.Stats(); s.QPs != 0 || s.MRs != 0 {
		t.Errorf("%d QPs and %d regions are left", s.QPs, s.MRs)
	}
}

// A peer whose start-up takes its time does not keep others out, nor does one that Accept has not
// returned keep the listener from closing.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		l, err := Listen(t.Context(), iwarptest.Open(t, n.Config()), "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		dial := func(settle time.Duration) *Conn {
			c, err := Dial(t.Context(), iwarptest.Open(t, n.Config()), l.Addr().String(), &Options{Param: iwarp.ConnParam{Settle: settle}})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		slow := make(chan *Conn)
		go func() { slow <- dial(3 * time.Second) }()
		synctest.Wait()
		begin := time.Now()
		quick := dial(0)
		c, err := l.Accept()
		if err != nil || time.Since(begin) > time.Second || c.RemoteAddr().String() != quick.LocalAddr().String() {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		closeBoth(c.(*Conn), quick)
		s := <-slow
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection that was not accepted: %v", err)
		}
		s.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	dev := iwarptest.Open(t, iwarptest.NewNetwork().Config())
	for _, o := range []Options{
		{RecvBuffer: -2}, {RecvBuffer: 3}, {RecvBuffer: 1 << 30}, {SendBuffer: -1}, {Credits: 1 << 16}, {Credits: -1}, {IOMaps: -1}, {IOMaps: 1 << 16},
	} {
		if _, err := Dial(t.Context(), dev, "127.0.0.1:1", &o); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := Listen(t.Context(), dev, "127.0.0.1:0", &o); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
