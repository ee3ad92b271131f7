package outfit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// stubborn is a host that answers as a test wants, in a farm of which an Outfitter knows. It never lists a toolchain.
type stubborn struct {
	missing func() []parcel.Wanted
	put     http.HandlerFunc
	offers  atomic.Int64
	puts    atomic.Int64

	mu       sync.Mutex
	most     uint64
	progress time.Time // when the farm last heard of more than ever
}

func (h *stubborn) Lacking(unit.ToolchainID) []string { return []string{host} }
func (h *stubborn) Alias(_, _ unit.ToolchainID)       {}
func (h *stubborn) Unsendable(string, unit.ToolchainID) {
}

func (h *stubborn) Coming(_ string, _ unit.ToolchainID, done uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.progress.IsZero() || done > h.most {
		h.most, h.progress = done, time.Now()
	}
}

func (h *stubborn) Queued(string, unit.ToolchainID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = time.Now()
}

// single accepts one connection.
type single struct {
	conn chan net.Conn
	gone chan struct{}
	once sync.Once
}

func (s *single) Accept() (net.Conn, error) {
	select {
	case c := <-s.conn:
		return c, nil
	case <-s.gone:
		return nil, net.ErrClosed
	}
}

func (s *single) Close() error   { s.once.Do(func() { close(s.gone) }); return nil }
func (s *single) Addr() net.Addr { return &net.UnixAddr{} }

// serve starts the host. It ends with the bubble of the test, which calls the function that it returns.
func (h *stubborn) serve(t *testing.T) (x *Outfitter, end func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /about", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(parcel.About{}) })
	mux.HandleFunc("POST /offer", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.offers.Add(1)
		_ = json.NewEncoder(w).Encode(parcel.Offered{ID: "00", Missing: h.missing()})
	})
	mux.HandleFunc("PUT /content/{id}/{name}", func(w http.ResponseWriter, r *http.Request) {
		h.puts.Add(1)
		h.put(w, r)
	})
	l := &single{conn: make(chan net.Conn), gone: make(chan struct{})}
	server := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	x = New(Options{Farm: h, Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conn <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	return x, func() {
		x.Close()
		must(t, server.Close())
		<-served
	}
}

// busy answers that another client is sending the content.
func busy(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusLocked)
	_ = json.NewEncoder(w).Encode(parcel.Refusal{Cause: parcel.CauseBusy, Text: "busy"})
}

// swallow answers that the content has been taken.
func swallow(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}

// TestStubbornHosts: a delivery to a host that is never content ends, with what is wrong, and the farm is not told of progress that jobs
// could wait for.
func TestStubbornHosts(t *testing.T) {
	tc := program(t, "/bin/true")
	all := func(names ...string) func() []parcel.Wanted {
		var list []parcel.Wanted
		for _, n := range names {
			list = append(list, parcel.Wanted{Name: n, File: tc.Path})
		}
		return func() []parcel.Wanted { return list }
	}
	var n atomic.Int64
	for name, c := range map[string]struct {
		h    *stubborn
		why  string
		most int64 // contents that it is sent until that is known
	}{
		"it takes a file and wants it again": {&stubborn{missing: all("n"), put: swallow}, "has taken " + tc.Path + " 3 times and wants it again", 3},
		"by another name each time": {&stubborn{missing: func() []parcel.Wanted { return all(fmt.Sprint(n.Add(1)))() }, put: swallow},
			"has taken " + tc.Path + " 3 times and wants it again", 3},
		"another client sends it for ever":   {&stubborn{missing: all("n"), put: busy}, "another client is sending it, and has not ended in 3m0s", 181},
		"it wants more files than there are": {&stubborn{missing: all(strings.Split(strings.Repeat("n ", 1000), " ")...), put: swallow}, "the host wants 1001 files", 0},
		"it has all and does not list it":    {&stubborn{missing: func() []parcel.Wanted { return nil }}, "the host has all of it, and does not offer to run it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := c.h
				x, end := h.serve(t)
				defer end()
				began := time.Now()
				x.Use(tc, same(tc))
				state := func() string {
					for _, s := range x.States(host) {
						return s.Err
					}
					return ""
				}
				for state() == "" && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if why := state(); !strings.Contains(why, c.why) || h.puts.Load() > c.most {
					t.Errorf("after %v, %d offers and %d files: %q", time.Since(began), h.offers.Load(), h.puts.Load(), why)
				}
				offers := h.offers.Load()
				time.Sleep(time.Hour)
				h.mu.Lock()
				defer h.mu.Unlock()
				if waits := h.progress.Sub(began); waits > time.Minute {
					t.Errorf("the farm heard of progress after %v", waits)
				}
				if more := h.offers.Load() - offers; more == 0 || more > 1000 {
					t.Errorf("it was offered %d times in the hour after that", more)
				}
			})
		})
	}
}

// TestOthersGetOn: a host that waits for its turn is not given up while other hosts get on, and is if they do not.
func TestOthersGetOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t}
		x := &Outfitter{o: Options{Farm: s}, hosts: map[pair]*delivery{}}
		k := &kit{tc: toolchain.Toolchain{ID: unit.ToolchainID{1}}}
		var first *delivery
		for _, addr := range []string{"a", "b"} {
			first = &delivery{State: State{Running: true}}
			x.hosts[pair{addr, k.tc.ID}] = first
		}
		progress := x.progress(pair{"b", k.tc.ID}, first)
		var got []word
		for _, n := range []uint64{0, 10, 0} {
			if n > 0 {
				progress(n)
			}
			got = append(got, x.start("c", k, time.Now()))
			time.Sleep(3 * lookTime)
		}
		first.Done = 0 // what was sent is sent again
		progress(5)
		if got = append(got, x.start("c", k, time.Now())); !slices.Equal(got, []word{silent, queued, silent, silent}) {
			t.Errorf("%v", got)
		}
	})
}

// TestContentEnds: when a content has been answered, nothing reads its file any more.
func TestContentEnds(t *testing.T) {
	tc := program(t, "/bin/true")
	synctest.Test(t, func(t *testing.T) {
		h := &stubborn{missing: func() []parcel.Wanted { return []parcel.Wanted{{Name: "n", File: tc.Path}} }, put: busy}
		x, end := h.serve(t)
		defer end()
		k := &kit{tc: *tc, again: same(tc)}
		pack, err := x.pack(k)
		must(t, err)
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return x.o.Dial(ctx, host) }, ExpectContinueTimeout: time.Hour}
		defer tr.CloseIdleConnections()
		reading := make(chan struct{})
		s := &sender{x: x, http: &http.Client{Transport: tr}, packed: pack, taken: map[string]int{}, progress: func(uint64) { <-reading }}
		var ended atomic.Bool
		go func() {
			if err := s.content("00", h.missing()[0]); err != errBusy {
				t.Errorf("%v", err)
			}
			ended.Store(true)
		}()
		synctest.Wait() // the host has answered
		if h.puts.Load() != 1 || ended.Load() {
			t.Errorf("%d answers; it has ended: %v", h.puts.Load(), ended.Load())
		}
		close(reading)
		synctest.Wait()
		if !ended.Load() {
			t.Error("it has not ended")
		}
	})
}
