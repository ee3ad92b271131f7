package iwarptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var connectCases = []suiteCase{
	{"PrivateDataBothWays", (*conn).privateData},
	{"PrivateDataOfWhatIsAgreed", (*conn).privateMade},
	{"Reject", (*conn).reject},
	{"RejectSizes", (*conn).rejectSizes},
	{"Revision1", (*conn).revision1},
	{"ClientServer", (*conn).clientServer},
	{"WithoutCRC", (*conn).withoutCRC},
	{"OptionMatrix", (*conn).optionMatrix},
	{"Depths", (*conn).depths},
	{"DepthsOnRejection", (*conn).depthsOnRejection},
	{"MinORD", (*conn).minORD},
	{"RTRIsNobodys", (*conn).rtrIsNobodys},
	{"SegmentSizes", (*conn).segmentSizes},
	{"ManyAtOnce", (*conn).manyAtOnce},
	{"NobodyListens", (*conn).nobodyListens},
	{"DialCancelled", (*conn).dialCancelled},
}

// startsUp skips the case for devices whose start-up we cannot choose: the connection managers of
// kernel and hardware have options of their own.
func (c *conn) startsUp() {
	c.Helper()
	c.need("options of MPA start-up", func(a iwarp.DeviceAttr) bool { return a.Provider == "soft" || a.Provider == "inproc" })
}

// soft skips the case for devices without framing of their own.
func (c *conn) soft() {
	c.Helper()
	c.need("framing of its own", func(a iwarp.DeviceAttr) bool { return a.Provider == "soft" })
}

func (c *conn) privateData() {
	sizes := []int{0, 1, 252, 508}
	if !c.da.Attr().StartUp || !c.db.Attr().StartUp {
		sizes = []int{0, 1, 200} // siw keeps the length, including its own four bytes, in one byte
	}
	for _, n := range sizes {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		ctx := Context(c)
		l, err := c.db.Listen(ctx, c.addr, nil)
		if err != nil {
			c.Fatal(err)
		}
		there, back := pattern(n, 1), pattern(n, 2)
		accepted := make(chan error, 1)
		var seen iwarp.ConnInfo
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				seen = r.Info()
				err = r.Accept(ctx, b.QP, &iwarp.ConnParam{PrivateData: back})
			}
			accepted <- err
		}()
		info, err := c.da.Dial(ctx, l.Addr().String(), a.QP, &iwarp.ConnParam{PrivateData: there})
		if err := errors.Join(err, <-accepted, l.Close()); err != nil {
			c.Fatal(err)
		}
		if !bytes.Equal(seen.PrivateData, there) || !bytes.Equal(info.PrivateData, back) {
			c.Errorf("%d bytes of private data did not arrive unchanged", n)
		}
		if c.da.Attr().StartUp && (info.Rev != 2 || !info.PeerToPeer || !info.CRC) {
			c.Errorf("start-up by default: got %+v, want revision 2, peer to peer, CRC", info)
		}
		if a.QP.State() != iwarp.StateRTS || b.QP.State() != iwarp.StateRTS {
			c.Errorf("states %s and %s, want RTS", a.QP.State(), b.QP.State())
		}
	}
}

// privateMade: a responder makes its private data from the outcome of start-up, and both sides know
// the same heads of the frames, or none.
func (c *conn) privateMade() {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	accepted := make(chan error, 1)
	var made []iwarp.ConnInfo
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.QP, &iwarp.ConnParam{ORD: 3, IRD: 7, PrivateData: []byte("not this"), Private: func(i iwarp.ConnInfo) []byte {
				made = append(made, i)
				return append([]byte("to "), i.PrivateData...)
			}})
		}
		accepted <- err
	}()
	info, err := c.da.Dial(ctx, l.Addr().String(), a.QP, &iwarp.ConnParam{ORD: 5, IRD: 2, PrivateData: []byte("ask")})
	if err := errors.Join(err, <-accepted, l.Close()); err != nil {
		c.Fatal(err)
	}
	if len(made) != 1 {
		c.Fatalf("Private was called %d times, want once", len(made))
	}
	if got := string(info.PrivateData); got != "to ask" {
		c.Errorf("the initiator got %q, want \"to ask\"", got)
	}
	var none iwarp.FrameHead
	if m := made[0]; m.Request != none && info.Request != none && (m.Request != info.Request || m.Reply != info.Reply || m.Reply == none) {
		c.Errorf("heads: the responder has %x and %x, the initiator %x and %x", m.Request, m.Reply, info.Request, info.Reply)
	}
	if c.da.Attr().Provider == "soft" && info.Request == none || c.db.Attr().Provider == "soft" && made[0].Request == none {
		c.Error("the software device does not tell the frames' heads")
	}
}

func (c *conn) reject() {
	a := NewEnd(c, c.da, iwarp.QPInitAttr{})
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	rejected := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Reject([]byte("not today"))
		}
		rejected <- err
	}()
	_, err = c.da.Dial(ctx, l.Addr().String(), a.QP, nil)
	var re *iwarp.RejectedError
	if !errors.As(err, &re) || string(re.PrivateData) != "not today" {
		c.Errorf("Dial: got %v, want a RejectedError with the reason", err)
	}
	if err := <-rejected; err != nil {
		c.Error(err)
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
}

func (c *conn) variant(pa, pb *iwarp.ConnParam, check func(*iwarp.ConnInfo) bool) {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	b.Recv(c, 1, 100)
	a.Recv(c, 2, 100)
	info := Connect(c, a, b, c.addr, pa, pb)
	if !check(info) {
		c.Errorf("agreed on %+v", info)
	}
	a.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("there")})
	a.WaitOK(c, 3)
	b.WaitOK(c, 1)
	b.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("back")})
	b.WaitOK(c, 4)
	a.WaitOK(c, 2)
}

func startUp(a iwarp.DeviceAttr) bool { return a.StartUp }

func (c *conn) revision1() {
	c.need("choice of the revision", startUp)
	c.variant(&iwarp.ConnParam{Rev: 1, PrivateData: pattern(512, 0)}, nil,
		func(i *iwarp.ConnInfo) bool { return i.Rev == 1 && !i.PeerToPeer && i.CRC })
}

func (c *conn) clientServer() {
	c.need("choice of the RTR", startUp)
	c.variant(&iwarp.ConnParam{ClientServer: true}, nil,
		func(i *iwarp.ConnInfo) bool { return i.Rev == 2 && !i.PeerToPeer && i.CRC })
}

func (c *conn) withoutCRC() {
	c.need("choice of the CRC", startUp)
	off := &iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}
	c.variant(off, off, func(i *iwarp.ConnInfo) bool { return !i.CRC })
	c.variant(off, nil, func(i *iwarp.ConnInfo) bool { return i.CRC })
	c.variant(nil, off, func(i *iwarp.ConnInfo) bool { return i.CRC })
}

func (c *conn) nobodyListens() {
	a := NewEnd(c, c.da, iwarp.QPInitAttr{})
	l, err := c.db.Listen(Context(c), c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		c.Fatal(err)
	}
	if _, err := c.da.Dial(Context(c), addr, a.QP, nil); err == nil {
		c.Error("Dial to a closed listener succeeded")
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
}

// rejectSizes: the initiator gets whatever private data an application rejects it with.
func (c *conn) rejectSizes() {
	for _, n := range []int{0, 1, 148} {
		info, err := c.rejected(nil, func(r iwarp.ConnRequest, _ *End) error { return r.Reject(pattern(n, 3)) })
		var re *iwarp.RejectedError
		if !errors.As(err, &re) || !bytes.Equal(re.PrivateData, pattern(n, 3)) {
			c.Errorf("%d bytes: got %+v, %v", n, info, err)
		}
	}
}

// rejected dials a listener whose application calls decide.
func (c *conn) rejected(p *iwarp.ConnParam, decide func(iwarp.ConnRequest, *End) error) (*iwarp.ConnInfo, error) {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = decide(r, b)
		}
		done <- err
	}()
	info, err := c.da.Dial(ctx, l.Addr().String(), a.QP, p)
	if derr := <-done; derr != nil {
		c.Errorf("the responder: %v", derr)
	}
	return info, err
}

// connect is Connect, and returns both sides' view of the outcome.
func (c *conn) connect(a, b *End, pa, pb *iwarp.ConnParam) (seen, agreed *iwarp.ConnInfo) {
	c.Helper()
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	seen = new(iwarp.ConnInfo)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			*seen = r.Info()
			err = r.Accept(ctx, b.QP, pb)
		}
		accepted <- err
	}()
	agreed, err = c.da.Dial(ctx, l.Addr().String(), a.QP, pa)
	if err := errors.Join(err, <-accepted); err != nil {
		c.Fatal(err)
	}
	return seen, agreed
}

// carries moves data both ways: Sends, and Writes announced by a Send. With A=0 only a Send opens
// the way back.
func (c *conn) carries(a, b *End, n int) {
	c.Helper()
	for i, e := range []struct{ from, to *End }{{a, b}, {b, a}} {
		src := pattern(n, byte(i))
		mr := e.from.Reg(c, src, 0, nil)
		window := make([]byte, n)
		wmr := e.to.Reg(c, window, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
		got := e.to.Recv(c, 1, n)
		e.to.Recv(c, 2, 8)
		sgl := []iwarp.SGE{{Addr: mr.Base(), Length: uint32(n), LKey: mr.STag()}}
		e.from.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, SGL: sgl})
		e.from.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpWrite, SGL: sgl, STag: wmr.STag(), TO: wmr.Base()})
		e.from.Post(c, &iwarp.SendWR{ID: 5, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("written")})
		for id := range uint64(3) {
			e.from.WaitOK(c, 3+id)
		}
		e.to.WaitOK(c, 1)
		e.to.WaitOK(c, 2)
		if !bytes.Equal(got, src) || !bytes.Equal(window, src) {
			c.Errorf("%d bytes did not arrive as they were", n)
		}
		for _, m := range []iwarp.MR{mr, wmr} {
			if err := m.Dereg(); err != nil {
				c.Error(err)
			}
		}
	}
}

// optionMatrix covers INT-11, MPA-06, MPA-07 and CM-04 to CM-06: every combination of the options
// of start-up connects, agrees on what it should, and carries data.
func (c *conn) optionMatrix() {
	c.startsUp()
	bools := []bool{false, true}
	forms := []iwarp.RTRSet{0, iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend} // 0: client-server
	mode := map[bool]iwarp.CRCMode{true: iwarp.CRCRequired, false: iwarp.CRCOffIfAgreed}
	reads := c.da.Attr().RDMARead && c.db.Attr().RDMARead
	for _, rev := range []int{1, 2} {
		for _, form := range forms {
			if rev == 1 && form != 0 || form == iwarp.RTRRead && !reads {
				continue
			}
			for _, crcA := range bools {
				for _, crcB := range bools {
					for _, markA := range bools {
						for _, markB := range bools {
							for _, ext := range bools {
								c.combination(&iwarp.ConnParam{
									Rev: rev, ClientServer: form == 0, RTR: form, CRC: mode[crcA], Markers: markA, Extensions: ext, MaxULPDU: 700,
								}, &iwarp.ConnParam{CRC: mode[crcB], Markers: markB, Extensions: ext})
							}
						}
					}
				}
			}
		}
	}
}

func (c *conn) combination(pa, pb *iwarp.ConnParam) {
	c.Helper()
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	seen, info := c.connect(a, b, pa, pb)
	name := fmt.Sprintf("%+v and %+v", *pa, *pb)
	crc := pa.CRC == iwarp.CRCRequired || pb.CRC == iwarp.CRCRequired
	if info.Rev != pa.Rev || info.CRC != crc || info.PeerToPeer == (pa.ClientServer || pa.Rev == 1) || info.RTR != pa.RTR {
		c.Errorf("%s: agreed on %+v", name, info)
	}
	if info.MarkersIn != pa.Markers || info.MarkersOut != pb.Markers {
		c.Errorf("%s: markers in %v, out %v", name, info.MarkersIn, info.MarkersOut)
	}
	if seen.Rev != pa.Rev || seen.RTR != pa.RTR || seen.CRC != (pa.CRC == iwarp.CRCRequired) || seen.ORD != 0 || seen.IRD != 0 {
		c.Errorf("%s: the responder saw %+v", name, seen)
	}
	c.carries(a, b, 2001)
	if immediate := c.da.Attr().Immediate && c.db.Attr().Immediate; immediate && pa.Extensions {
		b.Recv(c, 1, 8)
		a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpImmediate, Imm: [iwarp.ImmSize]byte{1, 2, 3, 4}})
		a.WaitOK(c, 2)
		if wc := b.WaitOK(c, 1); !wc.HasImm || wc.Imm[3] != 4 {
			c.Errorf("%s: %+v", name, wc)
		}
	} else if immediate {
		if err := a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpImmediate}); err == nil {
			c.Errorf("%s: Immediate Data without the extensions", name)
		}
	}
	for _, e := range []*End{a, b} {
		if err := e.QP.Destroy(); err != nil {
			c.Error(err)
		}
	}
}

// rtrIsNobodys covers CM-19, CM-20, CM-23 and CM-24: whichever message opens a stream, it takes no
// request and no receive, and completes nothing; the responder may then send first.
func (c *conn) rtrIsNobodys() {
	c.startsUp()
	for _, form := range []iwarp.RTRSet{iwarp.RTRWrite, iwarp.RTRRead, iwarp.RTRSend} {
		if form == iwarp.RTRRead && !(c.da.Attr().RDMARead && c.db.Attr().RDMARead) {
			continue
		}
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{MaxSend: 1}), NewEnd(c, c.db, iwarp.QPInitAttr{MaxRecv: 1})
		got := b.Recv(c, 1, 8)
		back := a.Recv(c, 2, 8)
		_, info := c.connect(a, b, &iwarp.ConnParam{RTR: form}, nil)
		if info.RTR != form || !info.PeerToPeer {
			c.Errorf("RTR %d: agreed on %+v", form, info)
		}
		b.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("first")})
		b.WaitOK(c, 3)
		a.WaitOK(c, 2)
		a.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("second")})
		a.WaitOK(c, 4)
		if wc := b.WaitOK(c, 1); wc.ByteLen != 6 || string(got[:6]) != "second" || string(back[:5]) != "first" {
			c.Errorf("RTR %d: %+v, %q, %q", form, wc, got, back)
		}
		if x, y := a.QP.Stats(), b.QP.Stats(); x.SendsSent != 1 || y.SendsReceived != 1 || x.WritesSent+y.WritesReceived+x.ReadsSent+y.ReadsReceived != 0 {
			c.Errorf("RTR %d was counted as a message: %+v, %+v", form, x, y)
		}
	}
}

// segmentSizes covers MPA-29 to MPA-31: any MaxULPDU, with markers and without.
func (c *conn) segmentSizes() {
	c.soft()
	for _, markers := range []bool{false, true} {
		for _, n := range []int{0, 1, 128, 129, 509, 1454, 8942, 64768, 100_000} {
			a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
			p := &iwarp.ConnParam{MaxULPDU: n, Markers: markers}
			c.connect(a, b, p, p)
			c.carries(a, b, 150_001)
		}
	}
}

// manyAtOnce: connections are set up side by side.
func (c *conn) manyAtOnce() {
	const n = 12
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	var as, bs [n]*End
	for i := range n {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		as[i], bs[i] = a, b
		b.Recv(c, 1, 8)
		wg.Go(func() {
			r, err := l.Accept(ctx)
			if err == nil {
				err = r.Accept(ctx, b.QP, nil)
			}
			if err != nil {
				c.Errorf("accept: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := c.da.Dial(ctx, l.Addr().String(), a.QP, nil); err != nil {
				c.Errorf("dial: %v", err)
			}
		})
	}
	wg.Wait()
	if c.Failed() {
		return
	}
	for _, a := range as { // whichever responder it has
		a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hello")})
		a.WaitOK(c, 2)
	}
	for _, b := range bs {
		b.WaitOK(c, 1)
	}
}

// dialCancelled: a listener whose application never decides does not hold an
// initiator that has given up.
func (c *conn) dialCancelled() {
	a := NewEnd(c, c.da, iwarp.QPInitAttr{})
	ctx, cancel := context.WithCancel(Context(c))
	defer cancel()
	l, err := c.db.Listen(Context(c), c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	seen := make(chan error, 1)
	go func() {
		_, err := l.Accept(Context(c))
		seen <- err
		cancel()
	}()
	if _, err := c.da.Dial(ctx, l.Addr().String(), a.QP, nil); err == nil {
		c.Error("Dial succeeded without an answer")
	}
	if err := <-seen; err != nil {
		c.Error(err)
	}
	if s := a.QP.State(); s != iwarp.StateError {
		c.Errorf("state %s, want ERROR", s)
	}
}
