package iwarp

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestGateShutsForAll: with users coming and going, no user is inside once close has returned, to whichever
// of several closers.
func TestGateShutsForAll(t *testing.T) {
	for range 300 {
		var g gate
		var inside, shut atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					inside.Add(1)
					if shut.Load() != 0 {
						t.Error("somebody got in after the gate had shut")
					}
					inside.Add(-1)
					g.leave()
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				g.close()
				if inside.Load() != 0 {
					t.Error("the gate shut with a user inside")
				}
				shut.Store(1)
			})
		}
		wg.Wait()
		if g.enter() || !g.isShut() {
			t.Fatal("the gate is open")
		}
		g.close() // again: at once
	}
}

// TestMemoryUnderFire registers, opens, looks up and ends from several goroutines on
// the same objects: what is found is what was asked for, each end happens once, and
// nothing is left.
func TestMemoryUnderFire(t *testing.T) {
	e := newEnd(t)
	q := e.qp.(*qp)
	d := q.dev
	region, err := e.pd.RegMR(make([]byte, 4096), LocalWrite, nil)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := e.pd.AllocMR(64)
	if err != nil {
		t.Fatal(err)
	}
	windows := make([]MW, 3)
	for i := range windows {
		if windows[i], err = e.pd.AllocMW(); err != nil {
			t.Fatal(err)
		}
	}
	use := func(s STag) {
		m := d.mrs.lookup(s)
		if m == nil {
			return
		}
		if m.stag != s {
			t.Errorf("STag %#x finds that of %#x", s, m.stag)
		}
		if _, f := m.remoteSpan(q, remoteRights, m.base, uint64(len(m.buf))); f == 0 {
			m.remote.leave()
		}
	}
	var ended atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for range 3000 {
				switch w := windows[rng.IntN(len(windows))]; rng.IntN(7) {
				case 0:
					b := &BindMW{MW: w, MR: region, Addr: rng.Uint64N(64), Len: 1 + rng.Uint64N(64), Access: RemoteRead}
					if m, err := q.prepareBind(b); err != nil || !w.(*mw).bind(m, b) {
						t.Errorf("bind: %v", err)
					}
				case 1:
					if m, err := q.prepareReg(&FastReg{MR: fast, Buf: make([]byte, 8), Access: RemoteRead}); err != nil {
						t.Error(err)
					} else {
						m.of.(*fastMR).register(m) // refused if another one was quicker
					}
				case 2:
					q.localInvalidate(fast.STag())
				case 3:
					q.remoteInvalidate(w.STag())
				case 4:
					use(w.STag())
					use(fast.STag())
				case 5:
					m, err := e.pd.RegMR(make([]byte, 8), LocalWrite|RemoteRead, nil)
					if err != nil {
						t.Error(err)
						break
					}
					use(m.STag())
					var twice sync.WaitGroup
					for range 2 {
						twice.Go(func() {
							if err := m.Dereg(); err == nil {
								ended.Add(1)
							} else if !errors.Is(err, ErrInvalid) {
								t.Error(err)
							}
						})
					}
					twice.Wait()
					if d.mrs.lookup(m.STag()) != nil {
						t.Error("a region is found after its end")
					}
				case 6:
					if err := fast.Invalidate(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if ended.Load() == 0 {
		t.Error("nothing was ended")
	}
	for _, w := range windows {
		if err := w.Dealloc(); err != nil {
			t.Error(err)
		}
	}
	for _, m := range []MR{region, fast} {
		if err := m.Dereg(); err != nil {
			t.Errorf("with all windows gone: %v", err)
		}
	}
	if s := d.Stats(); s.MRs != 0 || s.MWs != 0 || s.RegisteredBytes != 0 {
		t.Errorf("left: %+v", s)
	}
}
