// Package discover finds the hosts that entries of a host list stand for: addresses of
// a DNS name, SRV records, announcements on the local network, a file.
//
// Only the first job that names a source waits for it, and for at most FirstWait. Each
// source has a goroutine of its own, which queries it repeatedly, with a time-out, while
// jobs name it. The last good answer stands until there is a newer one.
package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

// Options configures a Finder. A zero field takes the default in parentheses.
type Options struct {
	Interval   time.Duration // between two queries of a source (5 s); a file is checked every second
	Timeout    time.Duration // of one query (2 s)
	FirstWait  time.Duration // how long the first caller waits for an answer (1 s)
	Forget     time.Duration // how long after the last request a source is still queried (10 min)
	Resolver   *net.Resolver // (the system's, queried by Go itself)
	Interfaces []string      // for mDNS (all that are up and support multicast, except loopback)
	Log        *slog.Logger  // (none)
}

// Finder keeps the sources of all lists. It is safe for concurrent use.
type Finder struct {
	o    Options
	ctx  context.Context
	stop context.CancelFunc
	run  sync.WaitGroup

	mu      sync.Mutex
	watches map[string]*watch // by Source.Key
	change  uint64            // counts answers that differed
}

// maxWatches bounds the sources of all lists together.
const maxWatches = 64

// New returns a Finder. Close it when it is no longer needed.
func New(o Options) *Finder {
	o.Interval = cmp.Or(o.Interval, 5*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.FirstWait = cmp.Or(o.FirstWait, time.Second)
	o.Forget = cmp.Or(o.Forget, 10*time.Minute)
	if o.Resolver == nil {
		o.Resolver = &net.Resolver{PreferGo: true} // it obeys its context
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Finder{o: o, watches: make(map[string]*watch)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends all queries, and returns when they have ended.
func (f *Finder) Close() {
	f.stop()
	f.run.Wait()
}

// List returns l with the hosts that its sources stand for now. stamp changes when another call could return other
// hosts.
func (f *Finder) List(l hostlist.List) (list hostlist.List, stamp uint64) {
	if len(l.Sources) == 0 {
		return l, 0
	}
	f.await(l.Sources)
	f.mu.Lock()
	defer f.mu.Unlock()
	list = l.With(func(s *hostlist.Source) []hostlist.Host {
		w := f.watches[s.Key()]
		switch {
		case w == nil:
			s.Problem = fmt.Sprintf("more than %d places to look for hosts", maxWatches)
			return nil
		case w.err != nil:
			s.Problem = w.err.Error()
		case w.good.IsZero():
			s.Problem = "no answer yet"
		}
		return w.hosts
	})
	return list, f.change
}

// await starts watching sources, and waits for their first answers, unless another caller has already
// waited for them.
func (f *Finder) await(sources []hostlist.Source) {
	now := time.Now()
	var first []*watch
	f.mu.Lock()
	for i := range sources {
		s := &sources[i]
		w := f.watches[s.Key()]
		switch {
		case s.Down || f.ctx.Err() != nil || w == nil && len(f.watches) >= maxWatches:
			continue
		case w == nil:
			w = &watch{f: f, source: *s, since: now, answered: make(chan struct{})}
			f.watches[s.Key()] = w
			w.asked = now
			f.run.Go(w.run)
		}
		w.asked = now
		first = append(first, w)
	}
	f.mu.Unlock()
	for _, w := range first {
		left := f.o.FirstWait - now.Sub(w.since)
		if left <= 0 {
			continue
		}
		t := time.NewTimer(left)
		select {
		case <-w.answered:
		case <-t.C:
		}
		t.Stop()
	}
}

// watch is one source, which is queried while jobs ask for it.
type watch struct {
	f        *Finder
	source   hostlist.Source
	since    time.Time
	answered chan struct{} // closed at the first answer, good or bad

	// guarded by f.mu
	asked time.Time
	hosts []hostlist.Host // never changed in place, only replaced
	good  time.Time       // when hosts were confirmed
	err   error           // of the last query
	none  int             // queries in a row that found nothing
}

// errNone means that a source exists and names no host.
var errNone = errors.New("names no host")

// noneTwice is how many times in a row a source that had hosts must name none before they are gone: a name server
// that is being restarted may well do so once.
const noneTwice = 2

// set records the answer of a query.
func (w *watch) set(hosts []hostlist.Host, err error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) {
		f.o.Log.Warn("looking for hosts", "source", w.source.Key(), "err", err, "kept", len(w.hosts))
	}
	if (err == nil) != (w.err == nil) {
		f.change++
	}
	w.err = err
	if errors.Is(err, errNone) {
		if w.none++; w.none >= noneTwice {
			hosts, err = nil, nil
		}
	} else {
		w.none = 0
	}
	if err == nil {
		w.good = time.Now()
		if !slices.Equal(hosts, w.hosts) {
			f.o.Log.Info("hosts found", "source", w.source.Key(), "hosts", len(hosts), "before", len(w.hosts))
			w.hosts = hosts
			f.change++
		}
	}
	select {
	case <-w.answered:
	default:
		f.change++
		close(w.answered)
	}
}

// run queries the source repeatedly.
func (w *watch) run() {
	defer w.end()
	switch w.source.Kind {
	case hostlist.ByMDNS:
		w.browse()
	case hostlist.ByFile:
		w.repeat(time.Second, w.f.file())
	case hostlist.ByDNS:
		w.repeat(w.f.o.Interval, w.f.addresses)
	case hostlist.BySRV:
		t := &targets{resolver: w.f.o.Resolver}
		w.repeat(w.f.o.Interval, t.services)
	}
}

// repeat calls look at intervals, each time with a time-out.
func (w *watch) repeat(every time.Duration, look func(context.Context, string) ([]hostlist.Host, error)) {
	for {
		ctx, cancel := context.WithTimeout(w.f.ctx, w.f.o.Timeout)
		hosts, err := look(ctx, w.source.Name)
		cancel()
		if w.f.ctx.Err() != nil {
			return
		}
		w.set(hosts, err)
		if !w.sleep(every) {
			return
		}
	}
}

// sleep waits. It returns false when no job needs the source any more.
func (w *watch) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.f.ctx.Done():
		return false
	}
	return w.wanted()
}

func (w *watch) wanted() bool {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.f.ctx.Err() == nil && time.Since(w.asked) < w.f.o.Forget
}

// end forgets the source.
func (w *watch) end() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	delete(w.f.watches, w.source.Key())
}
