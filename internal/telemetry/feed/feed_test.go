package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds a test that hangs.
const patience = 2 * time.Minute

// counter is a source that counts, and is asked how often.
type counter struct {
	opened, looks atomic.Int64
	size          int // bytes that each event has besides
	fail          atomic.Bool

	mu sync.Mutex
	n  int
}

func (c *counter) Open() Source { c.opened.Add(1); return c }

func (c *counter) Next() ([]byte, error) {
	c.looks.Add(1)
	if c.fail.Load() {
		return nil, errors.New("broken")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return fmt.Appendf(nil, "change %d %s", c.n, strings.Repeat("x", c.size)), nil
}

func (c *counter) Whole() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Appendf(nil, "whole %d", c.n), nil
}

// serve starts a real server with a feed.
func serve(t *testing.T, o Options) (*Feed, *httptest.Server) {
	t.Helper()
	if o.Ahead == 0 {
		o.Ahead = 1 << 16 // a busy machine makes nobody slow
	}
	f := New(o)
	s := httptest.NewServer(f)
	t.Cleanup(func() {
		f.Close()
		s.Close() // it waits for all requests
	})
	return f, s
}

// reader is a browser.
type reader struct {
	t    *testing.T
	resp *http.Response
	r    *bufio.Reader
	end  context.CancelFunc
}

func watch(t *testing.T, s *httptest.Server) *reader {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(); resp.Body.Close() })
	return &reader{t, resp, bufio.NewReader(resp.Body), end}
}

// next returns the data of the next event; ok is false at the end.
func (r *reader) next() (data string, ok bool) {
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			return "", false
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSpace(data), true
		}
	}
}

// until waits for what another goroutine does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// TestEveryWatcherSeesEverything: whoever comes gets the whole and then each change, whenever that is. All share one
// collector.
func TestEveryWatcherSeesEverything(t *testing.T) {
	c := new(counter)
	f, s := serve(t, Options{Open: c.Open, Every: 20 * time.Millisecond})
	var work sync.WaitGroup
	for i := range 5 {
		r := watch(t, s)
		if ct := r.resp.Header.Get("Content-Type"); r.resp.StatusCode != 200 || ct != "text/event-stream" {
			t.Fatalf("status %d, %s", r.resp.StatusCode, ct)
		}
		data, _ := r.next()
		var n int
		if _, err := fmt.Sscanf(data, "whole %d", &n); err != nil {
			t.Fatalf("watcher %d gets %q first", i, data)
		}
		work.Go(func() {
			for range 10 {
				n++
				if data, ok := r.next(); !ok || data != fmt.Sprintf("change %d", n) {
					t.Errorf("watcher %d: %q, want change %d", i, data, n)
					return
				}
			}
		})
	}
	work.Wait()
	if n := c.opened.Load(); n != 1 {
		t.Errorf("%d collectors for 5 watchers", n)
	}
	if n := f.Watchers(); n != 5 {
		t.Errorf("%d watchers", n)
	}
}

// TestNobodyWatches: without watchers nothing looks at the program, before the first as after the last, and there is no
// goroutine for that; a browser that goes away is noticed.
func TestNobodyWatches(t *testing.T) {
	c := new(counter)
	f, s := serve(t, Options{Open: c.Open, Every: time.Millisecond})
	time.Sleep(20 * time.Millisecond)
	if n := c.looks.Load(); n != 0 {
		t.Fatalf("%d looks before anybody watches", n)
	}
	for round := range 3 {
		r := watch(t, s)
		r.next()
		r.end() // the browser goes away without a word
		until(t, "the collector has ended", func() bool { return f.Watchers() == 0 && !collects() })
		looks := c.looks.Load()
		time.Sleep(20 * time.Millisecond)
		if n := c.looks.Load(); n != looks {
			t.Errorf("round %d: %d looks after the last has gone", round, n-looks)
		}
	}
}

// collects reports whether there is a goroutine of a collector.
func collects() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "(*Feed).collect")
}

// TestTooMany: one watcher more than there may be is told so in a line, and finds room when another one leaves.
func TestTooMany(t *testing.T) {
	c := new(counter)
	f, s := serve(t, Options{Open: c.Open, Most: 2, Every: time.Millisecond})
	first, second := watch(t, s), watch(t, s)
	first.next()
	second.next()
	third := watch(t, s)
	line, _ := third.r.ReadString('\n')
	if third.resp.StatusCode != http.StatusServiceUnavailable || third.resp.Header.Get("Retry-After") == "" ||
		line != "2 browsers watch this page already: close one of them, or read /status.json\n" {
		t.Errorf("status %d, %q", third.resp.StatusCode, line)
	}
	first.end()
	until(t, "one has left", func() bool { return f.Watchers() == 1 })
	if r := watch(t, s); r.resp.StatusCode != 200 {
		t.Errorf("status %d with room", r.resp.StatusCode)
	}
}

// TestSlowWatcher: one that does not read is dropped while others get every change, and holds no more than a few events.
func TestSlowWatcher(t *testing.T) {
	c := &counter{size: 64 << 10} // more than sockets hold, after some
	f, s := serve(t, Options{Open: c.Open, Ahead: 200, Every: 5 * time.Millisecond, WriteTime: patience})
	slow, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(slow, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	until(t, "the slow one watches", func() bool { return f.Watchers() == 1 })
	until(t, "the slow one is dropped, though it may take long for one event", func() bool { return f.Watchers() == 0 })
	r := watch(t, s)
	if data, ok := r.next(); !ok || !strings.HasPrefix(data, "whole ") {
		t.Errorf("%q after a slow one", data)
	}
}

// TestClose: Close ends watchers, also one that does not read, and returns when no goroutine of the feed is left. Later
// ones are refused.
func TestClose(t *testing.T) {
	c := &counter{size: 1 << 20}
	f, s := serve(t, Options{Open: c.Open, Every: time.Hour, WriteTime: patience})
	r := watch(t, s)
	r.next()
	c.mu.Lock()
	c.n = 41
	c.mu.Unlock()
	f.Close()
	if _, ok := r.next(); ok {
		t.Error("an event after Close")
	}
	if collects() {
		t.Error("a collector is left")
	}
	late := watch(t, s)
	if line, _ := late.r.ReadString('\n'); late.resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(line, "is ending") {
		t.Errorf("status %d, %q after Close", late.resp.StatusCode, line)
	}
	f.Close() // again, which does no harm
}

// TestBrokenSource: if the program cannot be shown, all watchers end, and try again later.
func TestBrokenSource(t *testing.T) {
	c := new(counter)
	f, s := serve(t, Options{Open: c.Open, Every: time.Millisecond})
	c.fail.Store(true)
	if _, ok := watch(t, s).next(); ok {
		t.Error("an event of a broken source")
	}
	until(t, "nobody watches", func() bool { return f.Watchers() == 0 })
	c.fail.Store(false)
	if _, ok := watch(t, s).next(); !ok {
		t.Error("no event once it works again")
	}
}

// TestOtherOrigins: pages of others cannot take places of watchers.
func TestOtherOrigins(t *testing.T) {
	c := new(counter)
	_, s := serve(t, Options{Open: c.Open})
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", site)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", site, resp.StatusCode, want)
		}
		cancel()
	}
}
