package iwarptest

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Transport returns two devices that reach each other, and the address to listen on at the second
// one. The suite closes them.
type Transport func(t testing.TB) (initiator, responder iwarp.Device, addr string)

// Suite is the conformance suite of verbs: every provider and transport must pass it. Cases that
// need more than a device's attributes offer are skipped.
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

// suite lists all cases. Each file has a list of its own.
var suite = slices.Concat(connectCases, dataCases, queueCases, errorCases, readCases, readEndCases, extCases,
	srqCases, cqCases, waitCases, memoryCases, stateCases)

// conn holds the two devices of one case.
type conn struct {
	*testing.T
	da, db iwarp.Device
	addr   string
}

// pair connects a new pair of QPs with default parameters.
func (c *conn) pair() (a, b *End) {
	c.Helper()
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	Connect(c, a, b, c.addr, nil, nil)
	return a, b
}

// need skips the case unless both devices have the capability that it is about.
func (c *conn) need(what string, has func(iwarp.DeviceAttr) bool) {
	c.Helper()
	for _, d := range []iwarp.Device{c.da, c.db} {
		if a := d.Attr(); !has(a) {
			c.Skipf("a device of provider %s has no %s", a.Provider, what)
		}
	}
}

// base returns options that ask for a first TO, where that can be chosen.
func (c *conn) base(to uint64) *iwarp.MROptions {
	if !c.db.Attr().AnyBase {
		return nil
	}
	return &iwarp.MROptions{Base: to}
}

// kernelPlaces skips the case for devices whose driver may still be processing a segment when it
// has removed an STag: siw does not wait for it.
func (c *conn) kernelPlaces() {
	c.Helper()
	c.need("say over what its driver is doing", func(a iwarp.DeviceAttr) bool { return a.Provider != "ibverbs" })
}

// failed reports whether got, the status of a request of e, is the failure want, or any failure if
// the device does not report reasons.
func (c *conn) failed(got, want iwarp.Status, e *End) bool {
	return got == want || !e.Dev.Attr().EndReason && got != iwarp.StatusSuccess
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*31>>2) ^ byte(i>>9) ^ seed
	}
	return p
}
