package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// mixedMB is how much moves in each of the runs below, in MiB.
func mixedMB() int { return pick(1024, 32) }

// mixedLimit is more than that can take in a guest without KVM.
const mixedLimit = 20 * time.Minute

// Everything at once, in random order and sizes, every byte compared: asked for by
// us, then by siw. About half of it goes either way in each.
func TestMixed(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		g := Boot(t)
		note := row(t, "siw-peer -s", fmt.Sprintf("%d MiB of mixed operations, our client, CRC", mixedMB()))
		p := newPeer(t, open(t, iwarp.Config{}))
		port, addr := g.Port()
		g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d", GuestAddr, port), port, mixedLimit)
		ctx, cancel := context.WithTimeout(t.Context(), mixedLimit)
		defer cancel()
		if err := p.dial(ctx, addr, iwarp.ConnParam{}); err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		count, moved, err := p.mixed(ctx, int64(mixedMB())<<20, 1)
		if err != nil {
			t.Error(err)
		}
		*note = traffic(p, count, moved, time.Since(t0))
		if err := p.close(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("siw's", func(t *testing.T) {
		g := Boot(t)
		note := row(t, "siw-peer -c", fmt.Sprintf("%d MiB of mixed operations, our server, CRC", mixedMB()))
		p := newPeer(t, open(t, iwarp.Config{}))
		l, port := listen(t, p.dev)
		ctx, cancel := context.WithTimeout(t.Context(), mixedLimit)
		defer cancel()
		j := g.Start(t, fmt.Sprintf("siw-peer -c %s -p %d mixed:%d:1", HostAddr, port, mixedMB()), mixedLimit)
		if err := p.accept(ctx, acceptOne(t, l), iwarp.ConnParam{}); err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		if err := p.serve(ctx); err != nil {
			p.qp.Abort() // siw-peer need not wait
			t.Error(err)
		}
		took := time.Since(t0)
		out, status := j.Wait(t)
		if status != 0 || !strings.Contains(out, "all done") {
			t.Errorf("siw-peer: exit status %d", status)
		}
		var count int
		var moved int64
		for _, line := range strings.Split(out, "\n") {
			if _, what, ok := strings.Cut(line, ": ok, "); ok {
				_, _ = fmt.Sscanf(what, "%d operations, %d bytes", &count, &moved) // 0 fails below
			}
		}
		if moved < int64(mixedMB())<<20 {
			t.Errorf("%d bytes moved", moved)
		}
		*note = traffic(p, count, moved, took)
	})
}

// traffic says what went through p.
func traffic(p *peer, count int, moved int64, took time.Duration) string {
	s := p.qp.Stats()
	return fmt.Sprintf("%d operations, %d bytes checked, %.1f MB/s; FPDUs %d out, %d in", count, moved,
		float64(moved)/1e6/took.Seconds(), s.FPDUsSent, s.FPDUsReceived)
}

// Private data as long as siw takes it, and one byte more, on which it hangs up
// (INT-06).
func TestPrivateData(t *testing.T) {
	for _, c := range []struct {
		n  int
		ok bool
	}{{252, true}, {253, false}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			g := Boot(t)
			what := map[bool]string{true: "taken", false: "siw hangs up"}[c.ok]
			row(t, "siw-peer -s", fmt.Sprintf("%d bytes of private data: %s", c.n, what))
			p := newPeer(t, open(t, iwarp.Config{}))
			port, addr := g.Port()
			g.Listen(t, fmt.Sprintf("siw-peer -s %s -p %d", GuestAddr, port), port, time.Minute)
			param := p.param(iwarp.ConnParam{})
			param.PrivateData = append(param.PrivateData, make([]byte, c.n-len(param.PrivateData))...)
			info, err := p.dev.Dial(t.Context(), addr, p.qp, param)
			if (err == nil) != c.ok {
				t.Fatalf("got %v", err)
			}
			if !c.ok {
				return
			}
			if err := p.learn(info.PrivateData); err != nil {
				t.Fatal(err)
			}
			if err := p.do(t.Context(), "swrite", 1000, 3); err != nil {
				t.Error(err) // siw-peer has not understood the beginning
			}
			if err := p.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
