package inproc

import (
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestLimits: a device has what its attributes say, and no more.
func TestLimits(t *testing.T) {
	a := Defaults()
	a.MaxPD, a.MaxQP, a.MaxCQ, a.MaxMR, a.MaxMW, a.MaxSRQ = 1, 1, 1, 1, 1, 1
	a.MaxCQE, a.MaxQPWR, a.MaxSRQWR, a.MaxSGE, a.MaxMRSize = 16, 8, 8, 3, 64
	d := NewNetwork().Open(a)
	defer iwarptest.Close(t, d)
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.CreateCQ(17); !errors.Is(err, iwarp.ErrInvalid) {
		t.Errorf("CQ of more than MaxCQE: %v", err)
	}
	cq, err := d.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	attr := iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8, MaxSGE: 3}
	for name, change := range map[string]func(*iwarp.QPInitAttr){
		"sends":    func(a *iwarp.QPInitAttr) { a.MaxSend = 9 },
		"receives": func(a *iwarp.QPInitAttr) { a.MaxRecv = 9 },
		"SGEs":     func(a *iwarp.QPInitAttr) { a.MaxSGE = 4 },
	} {
		x := attr
		change(&x)
		if _, err := pd.CreateQP(x); !errors.Is(err, iwarp.ErrLimit) {
			t.Errorf("QP with too many %s: %v", name, err)
		}
	}
	create := map[string]func() error{
		"PDs":      func() error { _, err := d.AllocPD(); return err },
		"CQs":      func() error { _, err := d.CreateCQ(1); return err },
		"QPs":      func() error { _, err := pd.CreateQP(attr); return err },
		"regions":  func() error { _, err := pd.RegMR(make([]byte, 64), 0, nil); return err },
		"AllocMRs": func() error { _, err := pd.AllocMR(64); return err },
		"windows":  func() error { _, err := pd.AllocMW(); return err },
		"SRQs":     func() error { _, err := pd.CreateSRQ(iwarp.SRQInitAttr{MaxRecv: 8, MaxSGE: 3}); return err },
	}
	for _, name := range []string{"QPs", "regions", "windows", "SRQs"} {
		if err := create[name](); err != nil {
			t.Errorf("first of the %s: %v", name, err)
		}
	}
	for name, f := range create {
		if err := f(); !errors.Is(err, iwarp.ErrLimit) {
			t.Errorf("one more of the %s: %v", name, err)
		}
	}
	if s := d.Stats(); s.PDs != 1 || s.CQs != 1 || s.QPs != 1 || s.MRs != 1 || s.MWs != 1 || s.SRQs != 1 || s.RegisteredBytes != 64 {
		t.Errorf("stats: %+v", s)
	}
}

// TestLacks: what a device lacks by its attributes is refused.
func TestLacks(t *testing.T) {
	n := NewNetwork()
	a := Defaults()
	a.RDMARead, a.Atomics, a.Immediate, a.MemoryWindow, a.FastReg, a.LocalInv, a.SolicitedOnly = false, false, false, false, false, false, false
	a.MaxSRQ = 0
	poor, rich := n.Open(a), n.Open(Defaults())
	defer iwarptest.Close(t, poor)
	defer iwarptest.Close(t, rich)
	x, y := iwarptest.NewEnd(t, poor, iwarp.QPInitAttr{}), iwarptest.NewEnd(t, rich, iwarp.QPInitAttr{})
	iwarptest.Connect(t, x, y, "y", nil, nil)
	for _, op := range []iwarp.Opcode{iwarp.OpRead, iwarp.OpLocalInv, iwarp.OpImmediate, iwarp.OpWriteImm,
		iwarp.OpCmpSwap, iwarp.OpFetchAdd, iwarp.OpFastReg, iwarp.OpBindMW} {
		if err := x.QP.PostSend(&iwarp.SendWR{Op: op}); !errors.Is(err, iwarp.ErrUnsupported) {
			t.Errorf("opcode %d: %v", op, err)
		}
	}
	_, merr := x.PD.AllocMR(1)
	_, werr := x.PD.AllocMW()
	_, serr := x.PD.CreateSRQ(iwarp.SRQInitAttr{})
	for what, err := range map[string]error{"AllocMR": merr, "AllocMW": werr, "CreateSRQ": serr, "ReqNotify": x.CQ.ReqNotify(true)} {
		if !errors.Is(err, iwarp.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
