package iwarptest

import (
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// depths covers CM-07 to CM-09, CM-11, CM-12 and CM-28.
func (c *conn) depths() {
	c.startsUp()
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead && a.MaxIRD >= 16 && a.MaxORD >= 16 })
	maxORD, maxIRD := uint16(c.da.Attr().MaxORD), uint16(c.db.Attr().MaxIRD)
	const any = iwarp.DepthAny
	for _, x := range []struct {
		a, b             [2]uint16 // wishes: ORD, IRD
		ord, ird         uint16    // in force at a
		peerORD, peerIRD uint16    // what a was told
	}{
		{[2]uint16{4, 4}, [2]uint16{4, 4}, 4, 4, 4, 4},
		{[2]uint16{9, 2}, [2]uint16{9, 3}, 3, 2, 2, 3},
		{[2]uint16{0, 0}, [2]uint16{9, 9}, 0, 0, 0, 9},
		{[2]uint16{any, 5}, [2]uint16{1, 7}, maxORD, 5, 1, any},
		{[2]uint16{5, any}, [2]uint16{8, any}, 5, uint16(c.da.Attr().MaxIRD), any, maxIRD},
	} {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		seen, info := c.connect(a, b, &iwarp.ConnParam{ORD: x.a[0], IRD: x.a[1]}, &iwarp.ConnParam{ORD: x.b[0], IRD: x.b[1]})
		if seen.PeerORD != x.a[0] || seen.PeerIRD != x.a[1] {
			c.Errorf("%+v: the responder was told ORD %d, IRD %d", x, seen.PeerORD, seen.PeerIRD)
		}
		if info.ORD != x.ord || info.IRD != x.ird || info.PeerORD != x.peerORD || info.PeerIRD != x.peerIRD {
			c.Errorf("%+v: got ORD %d, IRD %d, the peer's %d, %d", x, info.ORD, info.IRD, info.PeerORD, info.PeerIRD)
		}
	}
}

// depthsOnRejection covers CM-11: a rejected initiator learns of the peer's depths too.
func (c *conn) depthsOnRejection() {
	c.startsUp()
	_, err := c.rejected(&iwarp.ConnParam{ORD: iwarp.DepthAny, IRD: iwarp.DepthAny}, func(r iwarp.ConnRequest, _ *End) error {
		if i := r.Info(); i.PeerORD != iwarp.DepthAny || i.PeerIRD != iwarp.DepthAny {
			c.Errorf("the responder was told ORD %d, IRD %d", i.PeerORD, i.PeerIRD)
		}
		return r.Reject(nil)
	})
	var re *iwarp.RejectedError
	if !errors.As(err, &re) || re.PeerORD != iwarp.DepthAny || re.PeerIRD != iwarp.DepthAny {
		c.Errorf("got %+v, %v", re, err)
	}
}

// minORD covers CM-14: a responder that needs more Reads than the initiator holds rejects it, and
// tells it how many.
func (c *conn) minORD() {
	c.soft()
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead && a.MaxIRD >= 8 && a.MaxORD >= 8 })
	_, err := c.rejected(&iwarp.ConnParam{IRD: 3}, func(r iwarp.ConnRequest, b *End) error {
		if err := r.Accept(Context(c), b.QP, &iwarp.ConnParam{ORD: 8, MinORD: 5, PrivateData: []byte("more")}); err == nil {
			c.Error("accepted an initiator that holds too few Reads")
		}
		if s := b.QP.State(); s != iwarp.StateIdle {
			c.Errorf("the QP was used up: state %s", s)
		}
		return nil
	})
	var re *iwarp.RejectedError
	if !errors.As(err, &re) || re.PeerORD != 5 || string(re.PrivateData) != "more" {
		c.Errorf("got %+v, %v; want a rejection that tells ORD 5", re, err)
	}
	// Exactly enough is accepted.
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	if _, info := c.connect(a, b, &iwarp.ConnParam{IRD: 5}, &iwarp.ConnParam{ORD: 8, MinORD: 5}); info.PeerORD != 5 {
		c.Errorf("agreed on %+v", info)
	}
}
