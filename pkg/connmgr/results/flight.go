package results

import (
	"context"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// flights are the compiles under way that others may join.
type flights struct {
	mu  sync.Mutex
	all map[resultcache.Key]*Flight
}

// Flight is a compile that equal jobs wait for. The job that has made it ends it, whatever comes of it.
type Flight struct {
	key   resultcache.Key
	in    *flights
	done  chan struct{} // closed at its end
	kept  resultcache.Key
	entry []byte // set by then, if it has a result; see Wait
}

// Join returns the flight for key. If there was none, leads is set: the caller compiles, and calls End.
func (f *flights) Join(key resultcache.Key) (_ *Flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.all[key]; x != nil {
		return x, false
	}
	if f.all == nil {
		f.all = make(map[resultcache.Key]*Flight)
	}
	x := &Flight{key: key, in: f, done: make(chan struct{})}
	f.all[key] = x
	return x, true
}

// End ends a flight. entry is its result as it is kept, and key its name there; nil if it has none. It must not
// change after that.
func (x *Flight) End(key resultcache.Key, entry []byte) {
	x.in.mu.Lock()
	delete(x.in.all, x.key)
	x.in.mu.Unlock()
	x.kept, x.entry = key, entry
	close(x.done)
}

// Wait waits for the end of a flight, and returns its result as it is kept, with its name there; nil if it has
// none or ctx has ended. The slice must not be changed.
func (x *Flight) Wait(ctx context.Context) (key resultcache.Key, entry []byte) {
	select {
	case <-x.done:
		return x.kept, x.entry
	case <-ctx.Done():
		return key, nil
	}
}
