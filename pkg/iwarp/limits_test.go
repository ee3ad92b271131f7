package iwarp

import (
	"errors"
	"strings"
	"testing"
)

// TestEveryLimitIsEnforced: a device keeps to each limit of its Config, shows it in its attributes, and
// names it in the error.
func TestEveryLimitIsEnforced(t *testing.T) {
	buf := make([]byte, 64)
	type bench struct {
		dev Device
		pd  PD
		cq  CQ
	}
	for name, l := range map[string]struct {
		cfg   Config
		attr  func(DeviceAttr) int
		allow func(b *bench) error // as often as the limit says
		n     int
	}{
		"MaxPD": {Config{MaxPD: 3}, func(a DeviceAttr) int { return a.MaxPD },
			func(b *bench) error { _, err := b.dev.AllocPD(); return err }, 2}, // one is the bench's
		"MaxQP": {Config{MaxQP: 3}, func(a DeviceAttr) int { return a.MaxQP },
			func(b *bench) error {
				_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, MaxSend: 1, MaxRecv: 1})
				return err
			}, 3},
		"MaxCQ": {Config{MaxCQ: 3}, func(a DeviceAttr) int { return a.MaxCQ },
			func(b *bench) error { _, err := b.dev.CreateCQ(1); return err }, 2},
		"MaxMR": {Config{MaxMR: 4}, func(a DeviceAttr) int { return a.MaxMR },
			func(b *bench) error {
				if _, err := b.pd.AllocMR(8); err != nil {
					return err
				}
				_, err := b.pd.RegMR(buf, 0, nil)
				return err
			}, 2},
		"MaxMW": {Config{MaxMW: 3}, func(a DeviceAttr) int { return a.MaxMW },
			func(b *bench) error { _, err := b.pd.AllocMW(); return err }, 3},
		"MaxSRQ": {Config{MaxSRQ: 3}, func(a DeviceAttr) int { return a.MaxSRQ },
			func(b *bench) error { _, err := b.pd.CreateSRQ(SRQInitAttr{}); return err }, 3},
		"MaxRegistered": {Config{MaxRegistered: 200}, nil,
			func(b *bench) error { _, err := b.pd.RegMR(buf, 0, nil); return err }, 3},
		"MaxMRSize": {Config{MaxMRSize: 63}, func(a DeviceAttr) int { return int(a.MaxMRSize) },
			func(b *bench) error { _, err := b.pd.RegMR(buf, 0, nil); return err }, 0},
		"MaxCQE": {Config{MaxCQE: 64}, func(a DeviceAttr) int { return a.MaxCQE },
			func(b *bench) error { _, err := b.dev.CreateCQ(65); return err }, 0},
		"MaxQPWR": {Config{MaxQPWR: 5}, func(a DeviceAttr) int { return a.MaxQPWR },
			func(b *bench) error {
				_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, MaxSend: 6, MaxRecv: 1})
				return err
			}, 0},
		"MaxSGE": {Config{MaxSGE: 5}, func(a DeviceAttr) int { return a.MaxSGE },
			func(b *bench) error {
				_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, MaxSGE: 6})
				return err
			}, 0},
		"MaxSRQWR": {Config{MaxSRQWR: 5}, func(a DeviceAttr) int { return a.MaxSRQWR },
			func(b *bench) error { _, err := b.pd.CreateSRQ(SRQInitAttr{MaxRecv: 6}); return err }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dev, err := Open(l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			b := &bench{dev: dev}
			if b.pd, err = dev.AllocPD(); err != nil {
				t.Fatal(err)
			}
			if b.cq, err = dev.CreateCQ(64); err != nil {
				t.Fatal(err)
			}
			for i := range l.n {
				if err := l.allow(b); err != nil {
					t.Fatalf("%d of %d: %v", i+1, l.n, err)
				}
			}
			before := dev.Stats()
			if err := l.allow(b); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), name) {
				t.Errorf("past the limit: %v", err)
			}
			after := dev.Stats()
			if before.PDs != after.PDs || before.QPs != after.QPs || before.CQs != after.CQs || before.SRQs != after.SRQs ||
				before.MWs != after.MWs || name != "MaxMR" && before.MRs != after.MRs || before.RegisteredBytes > after.RegisteredBytes {
				t.Errorf("what was refused counts: %+v, then %+v", before, after)
			}
			if l.attr != nil && l.attr(dev.Attr()) == 0 {
				t.Error("the attributes do not have it")
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]Config{
		"negative":            {MaxSRQ: -1},
		"too many WRs":        {MaxQPWR: maxQPWR + 1},
		"too many indices":    {MaxMR: maxIndices, MaxMW: 1},
		"negative size":       {MaxMRSize: -1},
		"negative registered": {MaxRegistered: -1},
		"negative time":       {StallTimeout: -1},
	} {
		if _, err := Open(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInlineLimit: MaxInline is the device's, whatever its value.
func TestInlineLimit(t *testing.T) {
	dev, err := Open(Config{MaxInline: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		t.Fatal(err)
	}
	wr := &SendWR{Op: OpSend, Flags: Inline, Data: make([]byte, 8)}
	if err := qp.PostSend(wr); !errors.Is(err, ErrInvalid) {
		t.Errorf("8 bytes: %v", err)
	}
	wr.Data = wr.Data[:7]
	if err := qp.PostSend(wr); !errors.Is(err, ErrState) { // the size is right, the state is not
		t.Errorf("7 bytes: %v", err)
	}
}

// covers DeviceStats: each object counts while it is there.
func TestDeviceStatsCount(t *testing.T) {
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, _ := dev.CreateCQ(128)
	srq, err := pd.CreateSRQ(SRQInitAttr{})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq})
	if err != nil {
		t.Fatal(err)
	}
	mr, _ := pd.RegMR(make([]byte, 10), 0, nil)
	fast, _ := pd.AllocMR(100)
	mw, err := pd.AllocMW()
	if err != nil {
		t.Fatal(err)
	}
	if s := dev.Stats(); s.PDs != 1 || s.CQs != 1 || s.SRQs != 1 || s.QPs != 1 || s.MRs != 2 || s.MWs != 1 || s.RegisteredBytes != 110 {
		t.Errorf("%+v", s)
	}
	for _, end := range []func() error{qp.Destroy, srq.Destroy, mr.Dereg, fast.Dereg, mw.Dealloc, pd.Dealloc, cq.Close} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if s := dev.Stats(); s.PDs+s.CQs+s.SRQs+s.QPs+s.MRs+s.MWs != 0 || s.RegisteredBytes != 0 {
		t.Errorf("all is gone, and there is %+v", s)
	}
	if _, err := pd.RegMR(make([]byte, 1), 0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("RegMR in a PD that is deallocated: %v", err)
	}
	if err := pd.Dealloc(); err != nil {
		t.Errorf("second Dealloc: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := <-dev.Events(); ok {
		t.Error("Events is not closed, or not empty")
	}
}

// covers EventsLost: a full channel loses the newest, and counts them.
func TestEventsAreLostAndCounted(t *testing.T) {
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := dev.(*soft)
	for range eventsCap + 7 {
		d.emit(AsyncEvent{Kind: EventSRQLimit})
	}
	if n := dev.Stats().EventsLost; n != 7 {
		t.Errorf("%d events lost, want 7", n)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	d.emit(AsyncEvent{}) // after Close: nothing, and no panic
	n := 0
	for range dev.Events() {
		n++
	}
	if n != eventsCap {
		t.Errorf("%d events, want %d", n, eventsCap)
	}
}
