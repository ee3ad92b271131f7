package iwarptest

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var stateCases = []suiteCase{
	{"StateTable", (*conn).stateTable},
	{"ModifyToClosing", (*conn).modifyClosing},
	{"ModifyToTerminate", (*conn).modifyTerminate},
	{"ModifyToError", (*conn).modifyError},
	{"ReuseAfterError", (*conn).reuse},
	{"EventsTellHowItEnded", (*conn).endEvents},
	{"BadRequestStopsNothing", (*conn).badRequest},
	{"PDInUse", (*conn).pdInUse},
}

var allStates = []iwarp.QPState{iwarp.StateIdle, iwarp.StateRTR, iwarp.StateRTS, iwarp.StateClosing, iwarp.StateTerminate, iwarp.StateError}

// stateTable covers VRB-25: what Modify may do from IDLE, RTS and ERROR, and nothing else.
func (c *conn) stateTable() {
	idle := NewEnd(c, c.da, iwarp.QPInitAttr{})
	live, _ := c.pair()
	dead, peer := c.pair()
	dead.QP.Abort()
	dead.WaitDone(c)
	peer.WaitDone(c)
	for _, from := range []struct {
		qp  iwarp.QP
		may map[iwarp.QPState]bool
	}{
		{idle.QP, map[iwarp.QPState]bool{iwarp.StateError: true}},
		{live.QP, map[iwarp.QPState]bool{iwarp.StateClosing: true, iwarp.StateTerminate: true, iwarp.StateError: true}},
		{dead.QP, map[iwarp.QPState]bool{iwarp.StateIdle: true}},
	} {
		before := from.qp.State()
		for _, to := range allStates {
			if from.may[to] {
				continue
			}
			if err := from.qp.Modify(to); !errors.Is(err, iwarp.ErrState) {
				c.Errorf("%s to %s: %v", before, to, err)
			}
			if s := from.qp.State(); s != before {
				c.Fatalf("%s to %s was refused, and the state is %s", before, to, s)
			}
		}
	}
	if err := idle.QP.Modify(iwarp.StateError); err != nil {
		c.Errorf("IDLE to ERROR: %v", err)
	}
	if idle.WaitDone(c) == nil || idle.QP.State() != iwarp.StateError {
		c.Errorf("IDLE to ERROR: %s, %v", idle.QP.State(), idle.QP.Err())
	}
	if err := dead.QP.Modify(iwarp.StateIdle); err != nil {
		c.Errorf("ERROR to IDLE: %v", err)
	}
	if s := dead.QP.State(); s != iwarp.StateIdle {
		c.Errorf("ERROR to IDLE: %s", s)
	}
	if live.QP.State() != iwarp.StateRTS {
		c.Errorf("the live QP is in state %s", live.QP.State())
	}
}

func (c *conn) modifyClosing() {
	a, b := c.pair()
	b.Recv(c, 1, 8)
	a.send(c, "bye")
	if err := a.QP.Modify(iwarp.StateClosing); err != nil {
		c.Fatal(err)
	}
	if err := a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}); a.QP.State() == iwarp.StateClosing && !errors.Is(err, iwarp.ErrState) {
		c.Errorf("PostSend in CLOSING: %v", err)
	}
	if err := a.WaitDone(c); err != nil {
		c.Errorf("a graceful close: %v", err)
	}
	b.WaitOK(c, 1)
	if err := b.WaitDone(c); err != nil {
		c.Errorf("the peer of a graceful close: %v", err)
	}
	if s := a.QP.State(); s != iwarp.StateError {
		c.Errorf("state %s after the close, want ERROR", s)
	}
}

func (c *conn) modifyTerminate() {
	c.need("reason of an end", func(a iwarp.DeviceAttr) bool { return a.EndReason })
	a, b := c.pair()
	a.Recv(c, 1, 8)
	if err := a.QP.Modify(iwarp.StateTerminate); err != nil {
		c.Fatal(err)
	}
	c.wantTerminate(b, a, 0, 0, 0)
	if wc := a.Wait(c); wc.ID != 1 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("receive: %+v", wc)
	}
}

func (c *conn) modifyError() {
	a, b := c.pair()
	a.Recv(c, 1, 8)
	if err := a.QP.Modify(iwarp.StateError); err != nil {
		c.Fatal(err)
	}
	if a.WaitDone(c) == nil {
		c.Error("no reason for the end")
	}
	if wc := a.Wait(c); wc.ID != 1 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("receive: %+v", wc)
	}
	b.WaitDone(c)
}

// reuse covers VRB-25: a QP in ERROR can carry another stream once its completions are polled; what was
// bound to the last one stays shut.
func (c *conn) reuse() {
	a, b := c.pair()
	var old iwarp.MR
	for round := range 4 {
		done := b.QP.Done()
		b.Recv(c, 1, 16)
		b.Recv(c, 2, 16)
		text := fmt.Sprintf("round %d", round)
		a.send(c, text)
		if wc := b.WaitOK(c, 1); int(wc.ByteLen) != len(text) {
			c.Errorf("round %d: %+v", round, wc)
		}
		old = b.Reg(c, make([]byte, 16), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: b.QP})
		c.write2(a, b, 2, old)
		b.Recv(c, 3, 8)
		if round%2 == 0 {
			a.QP.Abort()
		} else if err := a.QP.Disconnect(Context(c)); err != nil {
			c.Error(err)
		}
		a.WaitDone(c)
		b.WaitDone(c)
		if err := b.QP.Modify(iwarp.StateIdle); !errors.Is(err, iwarp.ErrState) {
			c.Errorf("a QP was reset with a completion that was not polled: %v", err)
		}
		if wc := b.Wait(c); wc.ID != 3 || wc.Status != iwarp.StatusWRFlushErr {
			c.Errorf("%+v", wc)
		}
		for _, e := range []*End{a, b} {
			if err := e.QP.Modify(iwarp.StateIdle); err != nil {
				c.Fatal(err)
			}
			if e.QP.Err() != nil || e.QP.State() != iwarp.StateIdle {
				c.Errorf("after the reset: %s, %v", e.QP.State(), e.QP.Err())
			}
		}
		if b.QP.Done() == done {
			c.Error("Done is still the last connection's")
		}
		Connect(c, a, b, c.addr, nil, nil)
	}
	if c.db.Attr().BoundMR {
		c.refuse(a, b, old.STag(), old.Base(), 2)
	}
}

// write2 writes to mr and completes receive id after it.
func (c *conn) write2(a, b *End, id uint64, mr iwarp.MR) {
	c.Helper()
	a.Post(c, &iwarp.SendWR{ID: 65, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("x"), STag: mr.STag(), TO: mr.Base()})
	a.send2(c, 65)
	b.WaitOK(c, id)
}

// endEvents covers VRB-27: one event says how a stream ended, unless the program ended it itself.
func (c *conn) endEvents() {
	c.need("reason of an end", func(a iwarp.DeviceAttr) bool { return a.EndReason })
	write := func(stag iwarp.STag) func(a, b *End) {
		return func(a, b *End) {
			a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("x"), STag: stag})
		}
	}
	none := iwarp.EventKind(255)
	for _, w := range []struct {
		name       string
		end        func(a, b *End)
		atA, atB   iwarp.EventKind
		errA, errB bool
	}{
		{name: "graceful", end: func(a, b *End) { _ = a.QP.Disconnect(Context(c)) }, atA: none, atB: iwarp.EventPeerClosed},
		{name: "abort", end: func(a, b *End) { a.QP.Abort() }, atA: none, atB: iwarp.EventQPFatal, errB: true},
		{name: "bad STag", end: write(1), atA: iwarp.EventQPAccess, atB: iwarp.EventQPAccess, errA: true, errB: true},
		{name: "no receive", end: func(a, b *End) { a.Post(c, &iwarp.SendWR{Op: iwarp.OpSend}) },
			atA: iwarp.EventQPReqErr, atB: iwarp.EventQPReqErr, errA: true, errB: true},
		{name: "bad local memory", end: func(a, b *End) {
			a.Post(c, &iwarp.SendWR{Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 1, LKey: 1}}})
		}, atA: iwarp.EventQPFatal, atB: iwarp.EventQPFatal, errA: true, errB: true},
		{name: "by the program", end: func(a, b *End) { _ = a.QP.Modify(iwarp.StateTerminate) },
			atA: none, atB: iwarp.EventQPFatal, errB: true},
	} {
		c.sub(w.name, func(c *conn) {
			a, b := c.pair()
			w.end(a, b)
			a.WaitDone(c)
			b.WaitDone(c)
			for _, e := range []*End{a, b} {
				if err := e.QP.Destroy(); err != nil { // after that all of its events are there
					c.Error(err)
				}
			}
			events := append(drain(c.da), drain(c.db)...) // both may be one device
			for i, e := range []*End{a, b} {
				want, wantErr := []iwarp.EventKind{w.atA, w.atB}[i], []bool{w.errA, w.errB}[i]
				var got []iwarp.AsyncEvent
				for _, ev := range events {
					if ev.QP == e.QP {
						got = append(got, ev)
					}
				}
				switch {
				case want == none && len(got) > 0:
					c.Errorf("side %d: events %v, want none", i, got)
				case want == none:
				case len(got) != 1 || got[0].Kind != want || (got[0].Err != nil) != wantErr:
					c.Errorf("side %d: events %v, want one: %s", i, got, want)
				case wantErr && got[0].Err != e.QP.Err():
					c.Errorf("side %d: the event says %v, the QP %v", i, got[0].Err, e.QP.Err())
				}
			}
		})
	}
}

// badRequest covers VRB-04: a rejected request changes nothing for those before and after it.
func (c *conn) badRequest() {
	a, b := c.pair()
	for i := range uint64(3) {
		b.Recv(c, i, 8)
	}
	send := func(id uint64) *iwarp.SendWR {
		return &iwarp.SendWR{ID: id, Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.More, Data: []byte("good")}
	}
	bad := &iwarp.SendWR{ID: 9, Op: iwarp.OpSend, SGL: make([]iwarp.SGE, 5)}
	a.Post(c, send(0))
	if err := a.QP.PostSend(bad); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("the bad request: %v", err)
	}
	a.Post(c, send(1))
	if err := a.QP.PostSend(bad); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("the bad request: %v", err)
	}
	last := send(2)
	last.Flags &^= iwarp.More
	a.Post(c, last)
	for i := range uint64(3) {
		a.WaitOK(c, i)
		b.WaitOK(c, i)
	}
}

// pdInUse covers VRB-26.
func (c *conn) pdInUse() {
	e := NewEnd(c, c.da, iwarp.QPInitAttr{})
	if err := e.PD.Dealloc(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Dealloc of a PD with a QP: %v", err)
	}
	if err := e.QP.Destroy(); err != nil {
		c.Error(err)
	}
	mr := e.Reg(c, make([]byte, 8), 0, nil)
	if err := e.PD.Dealloc(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Dealloc of a PD with a region: %v", err)
	}
	if err := mr.Dereg(); err != nil {
		c.Error(err)
	}
	if err := e.PD.Dealloc(); err != nil {
		c.Error(err)
	}
}
