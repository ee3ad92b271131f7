package iwarp

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestSTagsAreSparse covers SEC-08: STags are spread over all 32 bits, never 0,
// and rest before they come again.
func TestSTagsAreSparse(t *testing.T) {
	e := newEnd(t)
	const n = 20_000
	buf := make([]byte, 1)
	seen := make(map[STag]bool, n)
	var octets [4][256]int
	var last STag
	steps := make(map[STag]int)
	for range n {
		mr, err := e.pd.RegMR(buf, LocalWrite, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := mr.STag()
		if s == 0 || seen[s] {
			t.Fatalf("STag %#x is zero, or came twice", s)
		}
		seen[s] = true
		for i := range octets {
			octets[i][byte(s>>(8*i))]++
		}
		steps[s-last]++
		last = s
		if err := mr.Dereg(); err != nil { // at once: the STag must rest
			t.Fatal(err)
		}
	}
	if len(steps) < n-100 {
		t.Errorf("%d different distances between %d STags: they can be guessed", len(steps), n)
	}
	for i := range octets {
		chi := 0.0
		for _, k := range octets[i] {
			d := float64(k) - n/256.0
			chi += d * d / (n / 256.0)
		}
		// 255 degrees of freedom: 255 +- 8 standard deviations of 22.6.
		if chi < 75 || chi > 435 {
			t.Errorf("octet %d: chi square %.0f", i, chi)
		}
	}
	if s := e.dev.Stats(); s.MRs != 0 || s.RegisteredBytes != 0 {
		t.Errorf("after deregistration: %d regions, %d bytes", s.MRs, s.RegisteredBytes)
	}
}

func TestRegistrationErrors(t *testing.T) {
	e, other := newEnd(t), newEnd(t)
	buf := make([]byte, 16)
	for name, f := range map[string]func() (MR, error){
		"empty":           func() (MR, error) { return e.pd.RegMR(nil, 0, nil) },
		"remote only":     func() (MR, error) { return e.pd.RegMR(buf, RemoteWrite, nil) },
		"base wraps":      func() (MR, error) { return e.pd.RegMR(buf, 0, &MROptions{Base: 1<<64 - 15}) },
		"another PD's QP": func() (MR, error) { return e.pd.RegMR(buf, 0, &MROptions{QP: other.qp}) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if mr, err := e.pd.RegMR(buf, 0, nil); err != nil || mr.Base() != 0 { // covers SEC-20
		t.Errorf("region by default: base %#x, %v; want 0, which is no address", mr.Base(), err)
	} else if err := mr.Dereg(); err != nil {
		t.Error(err)
	}
	mr, err := e.pd.RegMR(buf, 0, &MROptions{Base: 1<<64 - 16}) // the last TO is 2^64-1
	if err != nil {
		t.Fatal(err)
	}
	if err := e.pd.Dealloc(); !errors.Is(err, ErrInvalid) {
		t.Errorf("Dealloc of a PD in use: %v", err)
	}
	if err := mr.Dereg(); err != nil {
		t.Error(err)
	}
	if err := mr.Dereg(); !errors.Is(err, ErrInvalid) {
		t.Errorf("second Dereg: %v", err)
	}
}

func TestDeviceLimits(t *testing.T) {
	dev, err := Open(Config{MaxQP: 1, MaxCQ: 2, MaxMR: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	var cqs [2]CQ
	for i := range cqs {
		if cqs[i], err = dev.CreateCQ(8); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dev.CreateCQ(8); !errors.Is(err, ErrLimit) {
		t.Errorf("third CQ: %v", err)
	}
	a := QPInitAttr{SendCQ: cqs[0], RecvCQ: cqs[0], MaxSend: 4, MaxRecv: 5}
	if _, err := pd.CreateQP(a); !errors.Is(err, ErrLimit) {
		t.Errorf("QP that could overflow its CQ: %v", err)
	}
	a.MaxRecv = 4
	qp, err := pd.CreateQP(a)
	if err != nil {
		t.Fatal(err)
	}
	a.SendCQ, a.RecvCQ = cqs[1], cqs[1]
	if _, err := pd.CreateQP(a); !errors.Is(err, ErrLimit) {
		t.Errorf("second QP: %v", err)
	}
	if err := cqs[1].Close(); err != nil {
		t.Errorf("a QP that was refused still holds its CQ: %v", err)
	}
	if _, err := pd.RegMR(make([]byte, 1), 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := pd.RegMR(make([]byte, 1), 0, nil); !errors.Is(err, ErrLimit) {
		t.Errorf("second region: %v", err)
	}
	if err := qp.Destroy(); err != nil {
		t.Error(err)
	}
	if err := qp.Destroy(); err != nil {
		t.Errorf("second Destroy: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dev.CreateCQ(1); !errors.Is(err, ErrClosed) {
		t.Errorf("CreateCQ on a closed device: %v", err)
	}
	if s := dev.Stats(); s.MRs != 0 || s.QPs != 0 {
		t.Errorf("left after Close: %+v", s)
	}
}

// TestGateWaits: shutting a region's gate returns when the last user has left, and no user enters after that.
func TestGateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if first, second := g.enter(), g.enter(); !first || !second {
			t.Fatal("an open gate refuses")
		}
		shut := make(chan struct{}, 2)
		for range 2 {
			go func() { g.close(); shut <- struct{}{} }()
		}
		synctest.Wait()
		if len(shut) != 0 || g.enter() {
			t.Error("the gate shut with users inside, or let another in")
		}
		g.leave()
		synctest.Wait()
		if len(shut) != 0 {
			t.Error("the gate shut with a user inside")
		}
		g.leave()
		synctest.Wait()
		if len(shut) != 2 {
			t.Error("the gate does not shut when empty")
		}
	})
}
