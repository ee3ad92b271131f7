package iwarp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// chaosMessages is how many Sends each side of TestChaos sends.
const chaosMessages = 24

// TestChaos covers INT-12 and MPA-35: random pieces and delays change nothing, and
// wherever a FIN or a reset ends the connection, each side has got whole messages
// in order up to some point, each request completes once, and both sides end.
func TestChaos(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	x := iwarptest.Chaos{Seed: seed, MaxPiece: 1 + r.IntN(3000), MaxDelay: time.Duration(r.IntN(3)) * time.Millisecond}
	if x.Reset = r.IntN(2) == 0; seed%3 != 0 {
		x.EndAt = 1 + r.Int64N(150_000)
	}
	p := func() *iwarp.ConnParam {
		return &iwarp.ConnParam{Markers: r.IntN(2) == 0, CRC: iwarp.CRCMode(r.IntN(2)), MaxULPDU: 128 + r.IntN(3000)}
	}
	pa, pb := p(), p()
	pa.Rev = 1 + r.IntN(2)
	n := iwarptest.NewNetwork()
	a := iwarptest.NewEnd(t, iwarptest.Open(t, x.Dial(n.Config())), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	type traffic struct {
		e     *iwarptest.End
		in    [][]byte
		src   []byte
		sizes []int
	}
	var sides []*traffic
	for _, e := range []*iwarptest.End{a, b} {
		s := &traffic{e: e, src: make([]byte, 12_000)}
		for i := range s.src {
			s.src[i] = byte(i * 7)
		}
		for id := range uint64(chaosMessages) {
			s.in = append(s.in, e.Recv(t, id, 12_000))
			s.sizes = append(s.sizes, 8+r.IntN(11_000))
		}
		sides = append(sides, s)
	}
	l, err := b.Dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(t.Context())
		if err == nil {
			err = req.Accept(t.Context(), b.QP, pb)
		}
		accepted <- err
	}()
	_, err = a.Dev.Dial(t.Context(), l.Addr().String(), a.QP, pa)
	if err != nil && x.EndAt == 0 {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if err != nil {
		_ = l.Close() // its Accept ends
	}
	if aerr := <-accepted; err != nil || aerr != nil {
		a.QP.Abort()
		b.QP.Abort()
		<-a.QP.Done()
		<-b.QP.Done()
		if x.EndAt == 0 || x.EndAt > 1000 {
			t.Errorf("seed %d: start-up failed: %v, %v", seed, err, aerr)
		}
		return
	}
	_ = l.Close()
	// Each side sends its messages, and takes all that come, until all are through
	// or the connection has ended and everything is flushed.
	var wg sync.WaitGroup
	got := [2][]iwarp.WC{}
	for i, s := range sides {
		wg.Go(func() {
			mr, err := s.e.PD.RegMR(s.src, 0, nil)
			if err != nil {
				t.Error(err)
				return
			}
			posted := 0
			for id, size := range s.sizes {
				wr := &iwarp.SendWR{ID: uint64(100 + id), Op: iwarp.OpSend, SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(size), LKey: mr.STag()}}}
				if size%3 == 0 {
					wr.Flags, wr.SGL = iwarp.Inline, nil
					wr.Data = binary.BigEndian.AppendUint64(nil, uint64(id))
				}
				if err := s.e.QP.PostSend(wr); err != nil {
					if !errors.Is(err, iwarp.ErrState) {
						t.Errorf("seed %d: %v", seed, err)
					}
					break
				}
				posted++
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			for len(got[i]) < posted+chaosMessages {
				if err := s.e.CQ.Wait(ctx); err != nil {
					t.Errorf("seed %d, side %d: %d completions of %d: %v; QP %s, %v", seed, i, len(got[i]), posted+chaosMessages, err, s.e.QP.State(), s.e.QP.Err())
					return
				}
				wcs := make([]iwarp.WC, 16)
				got[i] = append(got[i], wcs[:s.e.CQ.Poll(wcs)]...)
			}
		})
	}
	wg.Wait()
	for i, s := range sides {
		seen := make(map[uint64]bool)
		next, flushed := uint64(0), false
		for _, wc := range got[i] {
			if seen[wc.ID] {
				t.Errorf("seed %d, side %d: request %d completed twice", seed, i, wc.ID)
			}
			seen[wc.ID] = true
			if wc.ID >= 100 {
				continue
			}
			if wc.ID != next {
				t.Errorf("seed %d, side %d: receive %d completed, want %d", seed, i, wc.ID, next)
			}
			next++
			if flushed = flushed || wc.Status != iwarp.StatusSuccess; flushed {
				continue
			}
			size := sides[1-i].sizes[wc.ID]
			want := s.src[:size]
			if size%3 == 0 {
				want = binary.BigEndian.AppendUint64(nil, wc.ID)
			}
			if int(wc.ByteLen) != len(want) || !bytes.Equal(s.in[wc.ID][:wc.ByteLen], want) {
				t.Errorf("seed %d, side %d: message %d of %d bytes arrived as %d, or changed", seed, i, wc.ID, len(want), wc.ByteLen)
			}
		}
		if x.EndAt == 0 && flushed {
			t.Errorf("seed %d, side %d: a message was lost: %v", seed, i, s.e.QP.Err())
		}
	}
	if x.EndAt == 0 {
		done := make(chan error, 1)
		go func() { done <- b.QP.Disconnect(t.Context()) }()
		if err := errors.Join(a.QP.Disconnect(t.Context()), <-done); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
