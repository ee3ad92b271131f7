package iwarptest

import (
	"bytes"
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func (c *conn) needWindows() {
	c.Helper()
	c.need("memory windows", func(a iwarp.DeviceAttr) bool { return a.MemoryWindow })
}

// window allocates a window on e.
func (e *End) window(c *conn) iwarp.MW {
	c.Helper()
	mw, err := e.PD.AllocMW()
	if err != nil {
		c.Fatal(err)
	}
	return mw
}

// bind opens mw for n bytes of mr from byte at on, and waits until that is done.
func (e *End) bind(c *conn, mw iwarp.MW, mr iwarp.MR, at, n int, a iwarp.Access) iwarp.STag {
	c.Helper()
	e.Post(c, &iwarp.SendWR{ID: 55, Op: iwarp.OpBindMW,
		Bind: &iwarp.BindMW{MW: mw, MR: mr, Addr: mr.Base() + uint64(at), Len: uint64(n), Access: a}})
	stag := mw.STag()
	if wc := e.WaitOK(c, 55); wc.Op != iwarp.OpBindMW {
		c.Errorf("completion of a bind: %+v", wc)
	}
	return stag
}

func (c *conn) windowPart() {
	c.needWindows()
	a, b := c.pair()
	memory := make([]byte, 64)
	mr := b.Reg(c, memory, iwarp.LocalWrite, nil) // no remote right of its own
	mw := b.window(c)
	if s := mw.STag(); s != 0 {
		c.Errorf("a window that was never opened has STag %#x", s)
	}
	stag := b.bind(c, mw, mr, 8, 16, iwarp.RemoteWrite)
	if stag == 0 || stag == mr.STag() {
		c.Fatalf("STag %#x of the window, %#x of the region", stag, mr.STag())
	}
	base := mr.Base()
	c.write(a, b, "first", stag, base+8)
	c.write(a, b, "last", stag, base+20)
	want := make([]byte, 64)
	copy(want[8:], "first")
	copy(want[20:], "last")
	if !bytes.Equal(memory, want) {
		c.Errorf("memory is %q", memory)
	}
	c.refuse(a, b, stag, base+21, 1) // one past its end, inside the region
	for name, to := range map[string]uint64{"before": base + 7, "region's start": base} {
		c.sub(name, func(c *conn) {
			a, b := c.pair()
			mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
			stag := b.bind(c, b.window(c), mr, 8, 16, iwarp.RemoteWrite)
			c.refuse(a, b, stag, mr.Base()+to-base, 1)
		})
	}
	c.sub("the region has no rights", func(c *conn) {
		a, b := c.pair()
		mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
		b.bind(c, b.window(c), mr, 0, 64, iwarp.RemoteWrite)
		c.refuse(a, b, mr.STag(), mr.Base(), 0)
	})
	c.sub("another right", func(c *conn) {
		a, b := c.pair()
		mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
		stag := b.bind(c, b.window(c), mr, 0, 64, iwarp.RemoteRead)
		c.refuse(a, b, stag, mr.Base(), 0)
	})
	if !bytes.Equal(memory, want) {
		c.Errorf("refused Writes have changed memory to %q", memory)
	}
}

func (c *conn) windowErrors() {
	c.needWindows()
	a, b := c.pair()
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	mr := b.Reg(c, make([]byte, 64), iwarp.LocalWrite, nil)
	readOnly := b.Reg(c, make([]byte, 64), 0, nil)
	foreign := other.Reg(c, make([]byte, 64), iwarp.LocalWrite, nil)
	mw := b.window(c)
	base := mr.Base()
	for name, bind := range map[string]*iwarp.BindMW{
		"nothing":          nil,
		"no window":        {MR: mr, Addr: base, Len: 8, Access: iwarp.RemoteWrite},
		"no region":        {MW: mw, Addr: base, Len: 8, Access: iwarp.RemoteWrite},
		"no right":         {MW: mw, MR: mr, Addr: base, Len: 8},
		"a local right":    {MW: mw, MR: mr, Addr: base, Len: 8, Access: iwarp.LocalWrite | iwarp.RemoteWrite},
		"past its end":     {MW: mw, MR: mr, Addr: base + 57, Len: 8, Access: iwarp.RemoteWrite},
		"before its start": {MW: mw, MR: mr, Addr: base - 1, Len: 8, Access: iwarp.RemoteWrite},
		"all there is":     {MW: mw, MR: mr, Addr: base, Len: 1<<64 - 1, Access: iwarp.RemoteWrite},
		"read-only region": {MW: mw, MR: readOnly, Addr: readOnly.Base(), Len: 8, Access: iwarp.RemoteWrite},
		"another's region": {MW: mw, MR: foreign, Addr: foreign.Base(), Len: 8, Access: iwarp.RemoteWrite},
		"another's window": {MW: other.window(c), MR: mr, Addr: base, Len: 8, Access: iwarp.RemoteWrite},
	} {
		if err := b.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpBindMW, Bind: bind}); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%s: %v", name, err)
		}
	}
	stag := b.bind(c, mw, mr, 0, 64, iwarp.RemoteWrite) // none of that did harm
	c.write(a, b, "ok", stag, base)
	// A window's STag is for the peer, not for our own requests.
	a.Recv(c, 1, 8)
	b.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Addr: base, Length: 8, LKey: stag}}})
	if wc := b.Wait(c); wc.ID != 2 || wc.Status != iwarp.StatusLocProtErr {
		c.Errorf("a send from a window: %+v", wc)
	}
}

// windowCloses covers RDMAP-27 and VRB-21: a window is closed by the peer that knows it, by its owner's
// request, by an empty bind, and by its end.
func (c *conn) windowCloses() {
	c.needWindows()
	for name, shut := range map[string]func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag){
		"by the peer": func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag) {
			b.Recv(c, 1, 8)
			a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSendInv, InvSTag: stag})
			a.WaitOK(c, 2)
			if wc := b.WaitOK(c, 1); !wc.Inv || wc.InvSTag != stag {
				c.Errorf("%+v does not name the STag", wc)
			}
			b.Recv(c, 3, 8)
			a.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpSendInv, InvSTag: stag}) // invalid already
			a.WaitOK(c, 4)
			b.WaitOK(c, 3)
		},
		"by a request": func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag) { b.localInv(c, stag) },
		"by a bind of nothing": func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag) {
			if s := b.bind(c, mw, mr, 0, 0, 0); s != 0 {
				c.Errorf("a closed window has STag %#x", s)
			}
		},
		"by its end": func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag) {
			if err := mw.Dealloc(); err != nil {
				c.Error(err)
			}
			if err := mw.Dealloc(); !errors.Is(err, iwarp.ErrInvalid) {
				c.Errorf("second Dealloc: %v", err)
			}
			if err := b.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpBindMW,
				Bind: &iwarp.BindMW{MW: mw, MR: mr, Addr: mr.Base(), Len: 1, Access: iwarp.RemoteRead}}); !errors.Is(err, iwarp.ErrInvalid) {
				c.Errorf("bind of a window that is gone: %v", err)
			}
		},
		"by its region's owner": func(c *conn, a, b *End, mw iwarp.MW, mr iwarp.MR, stag iwarp.STag) {
			if err := mr.Invalidate(); err != nil {
				c.Error(err)
			}
		},
	} {
		c.sub(name, func(c *conn) {
			a, b := c.pair()
			memory := make([]byte, 16)
			mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
			mw := b.window(c)
			stag := b.bind(c, mw, mr, 0, 16, iwarp.RemoteWrite)
			c.write(a, b, "good", stag, mr.Base())
			shut(c, a, b, mw, mr, stag)
			if err := mr.Dereg(); err != nil {
				c.Errorf("the region is still held: %v", err)
			}
			c.refuse(a, b, stag, mr.Base(), 0)
			if string(memory[:4]) != "good" {
				c.Errorf("memory is %q", memory)
			}
		})
	}
}

// windowRebinds covers VRB-21: the next bind has another STag, and the last one is dead.
func (c *conn) windowRebinds() {
	c.needWindows()
	a, b := c.pair()
	memory := make([]byte, 64)
	mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
	mw := b.window(c)
	seen := make(map[iwarp.STag]bool)
	var last, now iwarp.STag
	for i := range 100 {
		last, now = now, b.bind(c, mw, mr, i%8*8, 8, iwarp.RemoteWrite)
		if seen[now] {
			c.Fatalf("STag %#x came again at bind %d", now, i)
		}
		seen[now] = true
		c.write(a, b, "ok", now, mr.Base()+uint64(i%8*8))
	}
	c.refuse(a, b, last, mr.Base()+2*8, 0)
}

// windowHolds covers VRB-26: a region with windows is neither deregistered nor ended by requests.
func (c *conn) windowHolds() {
	c.needWindows()
	a, b := c.pair()
	mr := b.Reg(c, make([]byte, 16), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: b.QP})
	mw := b.window(c)
	stag := b.bind(c, mw, mr, 0, 16, iwarp.RemoteWrite)
	if err := mr.Dereg(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Dereg of a region with a window: %v", err)
	}
	c.write(a, b, "ok", stag, mr.Base())
	c.write(a, b, "ok", mr.STag(), mr.Base())
	b.Recv(c, 1, 8)
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpSendInv, InvSTag: mr.STag()})
	if wc := b.Wait(c); wc.Status != iwarp.StatusRemInvReqErr {
		c.Errorf("the peer ended a region with a window: %+v", wc)
	}
	c.wantTerminate(a, b, 0, 1, 9)
}

// windowReads: a window grants the right to read, or not, whatever its region has.
func (c *conn) windowReads() {
	c.needWindows()
	for name, w := range map[string]struct {
		access  iwarp.Access
		at, n   int
		refused bool
		code    uint8
	}{
		"all of it":        {iwarp.RemoteRead, 8, 16, false, 0},
		"one byte":         {iwarp.RemoteRead | iwarp.RemoteWrite, 23, 1, false, 0},
		"one byte more":    {iwarp.RemoteRead, 8, 17, true, 1},
		"the byte before":  {iwarp.RemoteRead, 7, 1, true, 1},
		"for writing only": {iwarp.RemoteWrite, 8, 8, true, 2},
	} {
		c.sub(name, func(c *conn) {
			a, b := c.readPair(2)
			memory := pattern(64, 3)
			mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteRead, nil)
			stag := b.bind(c, b.window(c), mr, 8, 16, w.access)
			sink := make([]byte, 64)
			sm := a.Reg(c, sink, sinkRights, nil)
			a.Post(c, read(1, sm, 0, w.n, stag, mr.Base()+uint64(w.at)))
			if !w.refused {
				if a.WaitOK(c, 1); !bytes.Equal(sink[:w.n], memory[w.at:w.at+w.n]) {
					c.Errorf("read %x, want %x", sink[:w.n], memory[w.at:w.at+w.n])
				}
				return
			}
			if wc := a.Wait(c); wc.Status != iwarp.StatusRemAccessErr {
				c.Errorf("a refused Read: %+v", wc)
			}
			c.wantTerminate(a, b, 0, 1, w.code)
			if !bytes.Equal(sink, make([]byte, 64)) {
				c.Errorf("read %x", sink)
			}
		})
	}
}
