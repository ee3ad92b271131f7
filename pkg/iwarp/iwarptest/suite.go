package iwarptest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Transport makes two devices that reach each other, and the address to listen on
// at the second one. They are closed by the suite.
type Transport func(t testing.TB) (initiator, responder iwarp.Device, addr string)

// Suite is the conformance suite of verbs: every provider and transport passes
// it. What a device lacks by its attributes is skipped.
func Suite(t *testing.T, tr Transport) {
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			CheckGoroutines(t)
			da, db, addr := tr(t)
			t.Cleanup(func() { Close(t, da); Close(t, db) })
			c.run(&conn{T: t, da: da, db: db, addr: addr})
		})
	}
}

// suiteCase is one case. It skips what the devices lack with conn.need.
type suiteCase struct {
	name string
	run  func(c *conn)
}

// suite is every case there is. Each file has a list of its own.
var suite = slices.Concat(connectCases, dataCases, queueCases, errorCases, readCases)

var connectCases = []suiteCase{
	{"PrivateDataBothWays", (*conn).privateData},
	{"Reject", (*conn).reject},
	{"Revision1", (*conn).revision1},
	{"ClientServer", (*conn).clientServer},
	{"WithoutCRC", (*conn).withoutCRC},
	{"NobodyListens", (*conn).nobodyListens},
}

// conn is one case's two devices.
type conn struct {
	*testing.T
	da, db iwarp.Device
	addr   string
}

// pair connects a new pair of QPs with default wishes.
func (c *conn) pair() (a, b *End) {
	c.Helper()
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	Connect(c, a, b, c.addr, nil, nil)
	return a, b
}

// need skips the case unless both devices have what it is about.
func (c *conn) need(what string, has func(iwarp.DeviceAttr) bool) {
	c.Helper()
	for _, d := range []iwarp.Device{c.da, c.db} {
		if a := d.Attr(); !has(a) {
			c.Skipf("a device of provider %s has no %s", a.Provider, what)
		}
	}
}

// base asks for a TO to begin with, where that can be chosen.
func (c *conn) base(to uint64) *iwarp.MROptions {
	if !c.db.Attr().AnyBase {
		return nil
	}
	return &iwarp.MROptions{Base: to}
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*31>>2) ^ byte(i>>9) ^ seed
	}
	return p
}

func (c *conn) privateData() {
	sizes := []int{0, 1, 252, 508}
	if !c.da.Attr().StartUp || !c.db.Attr().StartUp {
		sizes = []int{0, 1, 200} // siw keeps the length, four bytes of its own included, in one byte
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
