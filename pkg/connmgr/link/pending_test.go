package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestDialOfTheDeadIsSmall: hundreds of unreachable hosts of a long list may be dialled at the same time, so a
// dial does not allocate the memory of a connection.
func TestDialOfTheDeadIsSmall(t *testing.T) {
	const dials, most = 64, 12 << 10 // bytes each, besides the goroutine's stack
	dead := errors.New("nobody there")
	giveUp := make(chan struct{})
	var waiting sync.WaitGroup
	dev, err := iwarp.Open(iwarp.Config{Dial: func(context.Context, string) (net.Conn, error) {
		waiting.Done()
		<-giveUp
		return nil, dead
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Device: dev, PD: pd, Log: slog.New(slog.DiscardHandler), DialTimeout: time.Hour}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	waiting.Add(dials)
	for range dials {
		all.Go(func() {
			if _, err := Dial(t.Context(), c, nil, "dead:1", "dead:1"); !errors.Is(err, dead) {
				t.Errorf("a dial that failed: %v", err)
			}
		})
	}
	waiting.Wait()
	close(giveUp)
	all.Wait()
	runtime.ReadMemStats(&after)
	// All that was ever allocated counts, because a host that does not answer is dialled again and again.
	each := (after.TotalAlloc - before.TotalAlloc) / dials
	t.Logf("%d bytes a dial", each)
	if each > most {
		t.Errorf("a dial of a host that does not answer takes %d bytes, want at most %d", each, most)
	}
	if s := dev.Stats(); s.QPs != 0 || s.CQs != 0 || s.MRs != 0 {
		t.Errorf("failed dials leave %d QPs, %d CQs, %d MRs", s.QPs, s.CQs, s.MRs)
	}
}
