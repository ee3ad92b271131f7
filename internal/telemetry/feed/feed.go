// Package feed sends what changes in a program to the browsers that watch it, as server-sent events.
//
// All watchers share one collector. It runs while somebody watches, and only then: without watchers a Feed has no
// goroutine and asks the program nothing.
package feed

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Bounds of a Feed.
const (
	// MaxWatchers bounds the watchers of a feed. It is a part of the connections that a server takes, so that scrapes
	// always find room.
	MaxWatchers = 16

	// ahead is how many events may wait for a watcher. One that is further behind is dropped: it reconnects and gets
	// the whole again, which costs less than all that it has missed.
	ahead = 4

	// retryMS is after how many milliseconds a browser that lost its connection tries again.
	retryMS = 2000

	// retryFull is after how many seconds it may try again when there were too many.
	retryFull = 10
)

// Source has what is shown. Its methods are called by one goroutine.
type Source interface {
	// Next looks at the program and returns what has changed since the last call, as one line without a line break.
	Next() ([]byte, error)
	// Whole returns all that was ever returned and still counts, in the form of Next, for a new watcher.
	Whole() ([]byte, error)
}

// Options are the options of a Feed.
type Options struct {
	Open  func() Source // called when somebody begins to watch and nobody did
	Every time.Duration // between two events; 0 = 1 s
	Most  int           // watchers at a time; 0 = MaxWatchers
	Ahead int           // events that may wait for a watcher; 0 = a few
	// WriteTime is how long a watcher may take for one event; 0 = 10 s.
	WriteTime time.Duration
}

// Feed is a source with its watchers. It is an http.Handler.
type Feed struct {
	o    Options
	work sync.WaitGroup // the collector and the handlers of watchers
	wake chan struct{}  // of the collector: a watcher has come or gone

	// guarded by mu
	mu         sync.Mutex
	watchers   map[*watcher]bool // true: it has been sent the whole
	collecting bool
	closed     bool
}

// New returns a feed without watchers.
func New(o Options) *Feed {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Most == 0 {
		o.Most = MaxWatchers
	}
	if o.Ahead == 0 {
		o.Ahead = ahead
	}
	if o.WriteTime == 0 {
		o.WriteTime = 10 * time.Second
	}
	return &Feed{o: o, wake: make(chan struct{}, 1), watchers: make(map[*watcher]bool)}
}

// watcher is one connection.
type watcher struct {
	events chan []byte
	gone   chan struct{} // closed by drop
	conn   *http.ResponseController

	mu      sync.Mutex
	dropped bool // guarded by mu
	writing bool // guarded by mu
}

// drop ends w, also in the middle of a write that its reader delays.
func (w *watcher) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dropped {
		w.dropped = true
		close(w.gone)
		if w.writing {
			_ = w.conn.SetWriteDeadline(time.Unix(1, 0)) // without deadlines the write ends with its connection
		}
	}
}

// write sends b to the reader within limit.
func (w *watcher) write(to http.ResponseWriter, b []byte, limit time.Duration) error {
	w.mu.Lock()
	if w.dropped {
		w.mu.Unlock()
		return errDropped
	}
	_ = w.conn.SetWriteDeadline(time.Now().Add(limit)) // as in drop
	w.writing = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.writing = false
		w.mu.Unlock()
	}()
	if _, err := to.Write(b); err != nil {
		return err
	}
	return w.conn.Flush()
}

var (
	errDropped = errors.New("dropped")
	errClosed  = errors.New("this program is ending")
)

// ServeHTTP sends events until the reader goes away, is too slow, or the feed is closed.
func (f *Feed) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	// A page of another origin cannot read the events, but could take the places of those who may.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		http.Error(to, "this is for the status page of the same address", http.StatusForbidden)
		return
	}
	w := &watcher{events: make(chan []byte, f.o.Ahead), gone: make(chan struct{}), conn: http.NewResponseController(to)}
	if err := f.add(w); err != nil {
		to.Header().Set("Retry-After", strconv.Itoa(retryFull))
		http.Error(to, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer f.work.Done()
	defer f.remove(w)
	h := to.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // a proxy must not hold events back
	if w.write(to, fmt.Appendf(nil, "retry: %d\n\n", retryMS), f.o.WriteTime) != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-w.gone:
			return
		case e := <-w.events:
			if w.write(to, e, f.o.WriteTime) != nil {
				return
			}
		}
	}
}

// Watchers returns how many watch now.
func (f *Feed) Watchers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

// Close ends all watchers and returns when the last goroutine of the feed has ended. Later watchers are refused.
func (f *Feed) Close() {
	f.mu.Lock()
	f.closed = true
	for w := range f.watchers {
		w.drop()
	}
	clear(f.watchers)
	f.mu.Unlock()
	f.stir()
	f.work.Wait()
}

// add adds a watcher, and starts the collector with the first. Its handler then counts as work of the feed.
func (f *Feed) add(w *watcher) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errClosed
	case len(f.watchers) >= f.o.Most:
		return fmt.Errorf("%d browsers watch this page already: close one of them, or read /status.json", f.o.Most)
	}
	f.watchers[w] = false
	f.work.Add(1)
	if !f.collecting {
		f.collecting = true
		f.work.Go(f.collect)
	}
	f.stir()
	return nil
}

func (f *Feed) remove(w *watcher) {
	f.mu.Lock()
	delete(f.watchers, w)
	f.mu.Unlock()
	f.stir()
}

// stir wakes the collector, if there is one.
func (f *Feed) stir() {
	select {
	case f.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// collect looks at the source and sends what it finds, until nobody watches.
func (f *Feed) collect() {
	s := f.o.Open()
	tick := time.NewTicker(f.o.Every)
	defer tick.Stop()
	change, err := s.Next()
	for f.send(s, change, err) {
		select {
		case <-f.wake: // new watchers get the whole; others have had this change
			change = nil
		case <-tick.C:
			change, err = s.Next()
		}
	}
}

// send sends a change to those who have had the whole, and the whole to the others. It returns false if the collector
// ends: nobody watches, or the source has failed, which ends all watchers.
func (f *Feed) send(s Source, change []byte, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var whole []byte
	if len(change) > 0 {
		change = frame(change)
	}
	for w, had := range f.watchers {
		if !had && whole == nil && err == nil {
			if whole, err = s.Whole(); err == nil {
				whole = frame(whole)
			}
		}
		switch {
		case err != nil:
			w.drop()
			delete(f.watchers, w)
		case !had:
			f.watchers[w] = true
			w.events <- whole // its first event, so there is room
		case len(change) > 0:
			select {
			case w.events <- change:
			default: // too slow; its handler removes it
				w.drop()
			}
		}
	}
	f.collecting = len(f.watchers) > 0
	return f.collecting
}

func frame(line []byte) []byte { return fmt.Appendf(nil, "data: %s\n\n", line) }
