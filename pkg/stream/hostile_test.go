package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// liar is a peer that says what a test wants.
type liar struct {
	*iwarptest.End
	t    *testing.T
	ring iwarp.MR
	recv iwarp.MR
	got  []byte // of recv
	far  hello  // of the honest end
}

// lie returns an honest end, and a liar that has greeted it with h. Zero fields of h are what they should be.
func lie(t *testing.T, cfg Config, h hello) (*Conn, *liar) {
	t.Helper()
	iwarptest.CheckGoroutines(t)
	da, db, addr := providers["memory"](t)
	l := &liar{End: iwarptest.NewEnd(t, db, iwarp.QPInitAttr{}), t: t}
	l.ring = l.Reg(t, make([]byte, 1024), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	l.got = make([]byte, 64*maxMessage)
	l.recv = l.Reg(t, l.got, iwarp.LocalWrite, nil)
	for i := range uint64(64) {
		if err := l.QP.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{Addr: l.recv.Base() + i*maxMessage, Length: maxMessage, LKey: l.recv.STag()}}}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := NewEndpoint(da, cfg)
	if err != nil {
		t.Fatal(err)
	}
	info := iwarptest.Connect(t, &iwarptest.End{Dev: da, QP: e.QP()}, l.End, addr, nil, nil)
	if h.Depth == 0 {
		h.Depth = 64
	}
	if h.Size == 0 {
		h.Size = 1024
	}
	h.Ring = exs.Memory{STag: uint32(l.ring.STag()), TO: l.ring.Base()}
	l.say(message{kind: kindHello, hello: h})
	c, err := e.Start(iwarptest.Context(t), info.Local, info.Remote)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); <-c.Done() })
	m := l.hear()
	if m.kind != kindHello {
		t.Fatalf("the first message is of kind %d", m.kind)
	}
	l.far = m.hello
	return c, l
}

// say sends m.
func (l *liar) say(m message) { l.send(m.append(nil)) }

func (l *liar) send(b []byte) {
	l.t.Helper()
	for {
		err := l.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: b})
		switch {
		case err == nil || errors.Is(err, iwarp.ErrState):
			return
		case !errors.Is(err, iwarp.ErrQueueFull):
			l.t.Error(err)
			return
		}
		runtime.Gosched()
	}
}

// hear returns the next message of the honest end.
func (l *liar) hear() message {
	l.t.Helper()
	for {
		var wc [1]iwarp.WC
		if err := l.CQ.Wait(iwarptest.Context(l.t)); err != nil {
			l.t.Fatal(err)
		}
		if l.CQ.Poll(wc[:]); wc[0].Status != iwarp.StatusSuccess {
			l.t.Fatalf("the stream is over: %v", l.QP.Err())
		}
		if wc[0].Op != iwarp.OpRecv {
			continue
		}
		m, err := parse(l.bytes(wc[0]))
		if err != nil {
			l.t.Fatal(err)
		}
		return m
	}
}

func (l *liar) bytes(wc iwarp.WC) []byte {
	return l.got[wc.ID*maxMessage:][:wc.ByteLen]
}

// write writes to memory of the honest end.
func (l *liar) write(m exs.Memory, off uint64, n int) {
	l.t.Helper()
	mr := l.Reg(l.t, make([]byte, n), 0, nil)
	if err := l.QP.PostSend(&iwarp.SendWR{
		Op: iwarp.OpWrite, Flags: iwarp.Unsignaled, STag: iwarp.STag(m.STag), TO: m.TO + off,
		SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(n), LKey: mr.STag()}},
	}); err != nil {
		l.t.Fatal(err)
	}
}

// TestLies: whatever the peer says against the rules, it ends the connection with an error that says what, and a Read that waits
// has its memory back.
func TestLies(t *testing.T) {
	data := func(direct bool, phase uint32, seq, n, id uint64) message {
		k := kindIndirect
		if direct {
			k = kindDirect
		}
		return message{kind: k, data: exs.Data{Direct: direct, Phase: phase, Seq: seq, Len: n, ID: id}}
	}
	for name, c := range map[string]struct {
		say  []message
		raw  []byte
		want string
	}{
		"no kind":                       {raw: []byte{200, 0, 0, 0}, want: "of no kind"},
		"too short":                     {raw: []byte{1, 0}, want: "of no kind"},
		"unknown flags":                 {raw: []byte{byte(kindCredits), 9, 0, 0}, want: "unknown flags"},
		"a second greeting":             {say: []message{{kind: kindHello, hello: hello{Depth: 8, Size: 1}}}, want: "out of turn"},
		"too many receives":             {say: []message{{kind: kindCredits, credits: 60000}}, want: "more receives than it has"},
		"more than the ring":            {say: []message{data(false, 1, 0, 1<<40, 0)}, want: "with room for"},
		"a gap":                         {say: []message{data(false, 1, 5, 1, 0)}, want: "and 0 are there"},
		"nothing":                       {say: []message{data(false, 1, 0, 0, 0)}, want: "0 bytes at 0"},
		"indirect in a direct phase":    {say: []message{data(false, 2, 0, 1, 0)}, want: "wrong kind"},
		"a far phase":                   {say: []message{data(false, 7, 0, 1, 0)}, want: "phase 7"},
		"direct to no receive":          {say: []message{data(true, 0, 0, 1, 77)}, want: "not the one to be filled"},
		"direct past the end":           {say: []message{data(true, 0, 0, 1<<20, 1)}, want: "with room for"},
		"direct in an old phase":        {say: []message{data(false, 1, 0, 1, 0), data(true, 0, 1, 1, 1)}, want: "not the one to be filled"},
		"an end that is not there":      {say: []message{{kind: kindFin, n: 3}}, want: "the stream ends at 3"},
		"data behind the end":           {say: []message{{kind: kindFin}, data(false, 1, 0, 1, 0)}, want: "behind the end"},
		"ended twice":                   {say: []message{{kind: kindFin}, {kind: kindFin}}, want: "the stream ends"},
		"receives given back unasked":   {say: []message{{kind: kindWithdrawn}}, want: "was not asked"},
		"an acknowledgement of nothing": {say: []message{{kind: kindAck, n: 1}}, want: "given back"},
		"an advert of nothing":          {say: []message{{kind: kindAdvert}}, want: "an advert of 0 bytes"},
		"an advert that wraps":          {say: []message{{kind: kindAdvert, advert: exs.Advert{Exact: true, Off: 1 << 63, Len: 1 << 63}}}, want: "an advert of"},
		"an advert from the future":     {say: []message{{kind: kindAdvert, advert: exs.Advert{Exact: true, Seq: 9, Len: 1}}}, want: "of which 0 are sent"},
		"an advert of a far phase":      {say: []message{{kind: kindAdvert, advert: exs.Advert{Phase: 4, Len: 1}}}, want: "phase 4"},
		"an advert of an odd phase":     {say: []message{{kind: kindAdvert, advert: exs.Advert{Phase: 1, Len: 1}}}, want: "indirect"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, l := lie(t, Config{}, hello{})
			read := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 64<<10))
				for err == nil {
					_, err = conn.Read(make([]byte, 64<<10))
				}
				read <- err
			}()
			if m := l.hear(); m.kind != kindAdvert || m.advert.ID != 1 {
				t.Fatalf("the read is not offered: %+v", m)
			}
			for _, m := range c.say {
				l.say(m)
			}
			if c.raw != nil {
				l.send(c.raw)
			}
			err := <-read
			if errors.Is(err, io.EOF) { // a stream can end before what breaks the rules is said
				<-conn.ended
				conn.mu.Lock()
				err = conn.err
				conn.mu.Unlock()
			}
			if !errors.Is(err, exs.ErrPeer) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want something with %q", err, c.want)
			}
			if _, err := conn.Write([]byte{1}); err == nil {
				t.Error("a write succeeds on a connection that has ended")
			}
		})
	}
}

// TestFlood: a peer whose adverts nobody uses is stopped when they are too many.
func TestFlood(t *testing.T) {
	conn, l := lie(t, Config{}, hello{})
	go func() {
		for range exs.MaxAdverts + 1 { // it takes no notice of what the honest end can hold
			select {
			case <-l.QP.Done():
				return
			default:
				l.say(message{kind: kindAdvert, advert: exs.Advert{Len: 1}})
			}
		}
	}()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("nothing ends the flood")
	}
}

// TestBadGreetings: a greeting that makes no sense is refused.
func TestBadGreetings(t *testing.T) {
	for name, h := range map[string]hello{
		"no ring":        {Depth: 64},
		"too big a ring": {Depth: 64, Size: maxRing + 1},
		"too shallow":    {Depth: 1, Size: 1},
		"too deep":       {Depth: 60000, Size: 1},
		"no such policy": {Depth: 64, Size: 1, Policy: 9},
	} {
		t.Run(name, func(t *testing.T) {
			da, db, addr := providers["memory"](t)
			l := iwarptest.NewEnd(t, db, iwarp.QPInitAttr{})
			mr := l.Reg(t, make([]byte, maxMessage), iwarp.LocalWrite, nil)
			if err := l.QP.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{{Addr: mr.Base(), Length: maxMessage, LKey: mr.STag()}}}); err != nil {
				t.Fatal(err)
			}
			e, err := NewEndpoint(da, Config{})
			if err != nil {
				t.Fatal(err)
			}
			iwarptest.Connect(t, &iwarptest.End{Dev: da, QP: e.QP()}, l, addr, nil, nil)
			m := message{kind: kindHello, hello: h}
			if err := l.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: m.append(nil)}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Start(iwarptest.Context(t), nil, nil); !errors.Is(err, exs.ErrPeer) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWritesOutOfPlace: RDMA Writes reach the ring and a Read that waits, and neither before, behind nor after them.
func TestWritesOutOfPlace(t *testing.T) {
	for name, write := range map[string]func(l *liar, a exs.Advert){
		"past the read": func(l *liar, a exs.Advert) { l.write(a.Mem, a.Len-1, 2) },
		"past the ring": func(l *liar, _ exs.Advert) { l.write(l.far.Ring, l.far.Size-1, 2) },
		"after the read": func(l *liar, a exs.Advert) {
			l.write(a.Mem, 0, 1)
			l.say(message{kind: kindDirect, data: exs.Data{Direct: true, Len: 1, ID: a.ID}})
			if m := l.hear(); m.kind != kindAdvert { // the next read: the first one has ended
				l.t.Errorf("message of kind %d", m.kind)
			}
			l.write(a.Mem, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, l := lie(t, Config{}, hello{})
			read := make(chan error, 1)
			go func() {
				var err error
				for err == nil {
					_, err = conn.Read(make([]byte, 64<<10))
				}
				read <- err
			}()
			m := l.hear()
			write(l, m.advert)
			var end *iwarp.TerminateError
			if err := <-read; !errors.As(err, &end) || end.FromPeer {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestKeepsMemory: a peer that does not give the memory of a Read back loses the connection, and the Read returns.
func TestKeepsMemory(t *testing.T) {
	conn, l := lie(t, Config{Grace: time.Millisecond}, hello{})
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 64<<10))
		read <- err
	}()
	if m := l.hear(); m.kind != kindAdvert {
		t.Fatalf("message of kind %d", m.kind)
	}
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the read: %v", err)
	}
	<-conn.ended
	if _, err := conn.Write([]byte{1}); !errors.Is(err, errGrace) {
		t.Errorf("a write: %v", err)
	}
}

// TestDies: a peer that is gone between a Write and the message about it, or before it takes anything, ends Reads and Writes, and
// what has arrived is read first.
func TestDies(t *testing.T) {
	conn, l := lie(t, Config{}, hello{})
	l.write(l.far.Ring, 0, 8)
	l.say(message{kind: kindIndirect, data: exs.Data{Phase: 1, Len: 5}})
	l.write(l.far.Ring, 8, 8)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, 1<<20))
		written <- err
	}()
	for l.hear().kind != kindIndirect { // its ring is full, and it takes nothing out
	}
	if _, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	l.QP.Abort()
	if err := <-written; err == nil {
		t.Error("the write succeeds")
	}
	if _, err := io.ReadFull(conn, make([]byte, 3)); err != nil {
		t.Errorf("what has arrived: %v", err)
	}
	var op *net.OpError
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &op) || errors.Is(err, io.EOF) {
		t.Errorf("behind it: %v", err)
	}
}

// FuzzMessage: any bytes are a message that is encoded as they are, or an error.
func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{kind: kindHello, hello: hello{Policy: 1, Depth: 32, Size: 1 << 18, Ring: exs.Memory{STag: 7, TO: 9}}},
		{kind: kindDirect, credits: 3, data: exs.Data{Direct: true, Phase: 2, Seq: 3, Len: 4, ID: 5}},
		{kind: kindIndirect, data: exs.Data{Phase: 1, Seq: 3, Len: 4}},
		{kind: kindAdvert, advert: exs.Advert{Phase: 2, Seq: 3, Exact: true, ID: 4, Off: 5, Len: 6, WaitAll: true, Mem: exs.Memory{STag: 7, TO: 8}}},
		{kind: kindFin, n: 4}, {kind: kindAck, n: 5}, {kind: kindWithdraw}, {kind: kindWithdrawn}, {kind: kindDeaf}, {kind: kindCredits, credits: 9},
	} {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		if again := m.append(nil); string(again) != string(b) {
			t.Errorf("% x is read as %+v and written as % x", b, m, again)
		}
	})
}
