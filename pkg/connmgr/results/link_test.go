package results

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// link is the way to a far store: a connection takes a round trip to be made, and then is used again; what is sent at the same time
// shares the rate.
type link struct {
	rate  int // bytes a second
	turn  chan struct{}
	mu    sync.Mutex
	idle  int // connections
	dials int
}

func newLink(rate int) *link { return &link{rate: rate, turn: make(chan struct{}, 1)} }

// piece is what is sent of one answer before another one has its turn, in bytes.
const piece = 16 << 10

func (l *link) connect() {
	l.mu.Lock()
	had := l.idle > 0
	if had {
		l.idle--
	} else {
		l.dials++
	}
	l.mu.Unlock()
	if !had {
		time.Sleep(rtt)
	}
}

func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle++
}

// Warm implements resultcache.Warmer.
func (f *far) Warm(context.Context) {
	if f.link == nil {
		return
	}
	var all sync.WaitGroup
	for range aheadConns {
		all.Go(func() {
			f.link.connect()
			f.link.leave()
		})
	}
	all.Wait()
}

func (l *link) send(ctx context.Context, n int) error {
	for ; n > 0 && ctx.Err() == nil; n -= piece {
		l.turn <- struct{}{}
		time.Sleep(time.Second * time.Duration(min(n, piece)) / time.Duration(l.rate))
		<-l.turn
	}
	return ctx.Err()
}

// TestAheadWall: a build of a client that is new in every respect takes little longer than one that has all results beside it, by a
// dozen requests, even if the link is so slow that all of it takes half of that time.
func TestAheadWall(t *testing.T) {
	for _, c := range []struct {
		n, size int // compiles, and bytes of each result
		work    time.Duration
		rate    int
	}{
		{40, 120 << 10, 100 * time.Millisecond, 100 << 20},
		{40, 120 << 10, 100 * time.Millisecond, 13 << 20},
		{142, 40 << 10, 60 * time.Millisecond, 4 << 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &far{memory: memory{slow: rtt}}
			one := newClient(t, store, 64<<20)
			one.more = c.size
			one.builds("x", c.n)
			one.close()
			store.link = newLink(c.rate)
			two := newClient(t, store, 64<<20)
			two.work = c.work
			began := time.Now()
			hits := two.builds("x", c.n)
			wall, near := time.Since(began), c.work*time.Duration((c.n+3)/4)
			if hits != c.n || store.requests() > 12 || wall > near*13/10 {
				t.Errorf("%+v: %d hits by %d requests in %v, beside it %v", c, hits, store.requests(), wall, near)
			}
			two.close()
		})
	}
}

// TestAheadWarm: a store is connected once a command has come, before there is anything to ask for, and not for each.
func TestAheadWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{link: newLink(1 << 20)}
		c := newClient(t, store, 64<<20)
		for i, want := range []int{aheadConns, aheadConns, 2 * aheadConns} {
			c.Comes()
			time.Sleep(2 * rtt)
			synctest.Wait()
			if store.link.dials != want {
				t.Errorf("command %d: %d connections, want %d", i, store.link.dials, want)
			}
			if i == 1 {
				time.Sleep(2 * coldTime)
				synctest.Wait()
				store.link.idle = 0 // the server has ended them
			}
		}
		c.close()
	})
}

// The compressor is made by its first use, which must be in no bubble.
func init() {
	if _, err := (&resultcache.Entry{Files: []resultcache.File{{Data: noise(1 << 20)}}}).Append(nil); err != nil {
		panic(err)
	}
}
