package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/telemetry/feed"
)

// Streams serves what a Server serves, and the log, on connections that others have accepted and whose peers are
// known.
type Streams struct {
	http *http.Server
	live *feed.Feed // nil: none
	conn chan net.Conn
	gone chan struct{} // closed by Close
	once sync.Once
	done chan struct{} // closed when the serving goroutine has ended
}

// everyone lists the pages that say nothing of a single client.
var everyone = map[string]bool{"/metrics": true, "/healthz": true, "/readyz": true}

// Reader says what a peer may read.
type Reader uint8

const (
	ReadMetrics Reader = iota // metrics, and whether the program is well
	ReadPages                 // all that a Server shows
	ReadAll                   // and the log
)

// mayRead reports whether r may read the page at path.
func (r Reader) mayRead(path string) bool {
	return r == ReadAll || r == ReadPages && path != "/log" || everyone[path]
}

// arrival is a connection whose peer is known.
type arrival struct {
	net.Conn
	reader Reader
}

type readerKey struct{}

// NewStreams returns a Streams with the pages of o; its addresses are not used. denied is the line for a peer that may not read a page.
func NewStreams(o ServerOptions, log *Log, denied string) *Streams {
	live := o.feed()
	pages := handler(&o, live)
	pages.Handle("GET /log", &log.out.tail)
	s := &Streams{live: live, conn: make(chan net.Conn), gone: make(chan struct{}), done: make(chan struct{})}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if reader, _ := r.Context().Value(readerKey{}).(Reader); !reader.mayRead(r.URL.Path) {
				plain(w, http.StatusForbidden, denied)
				return
			}
			pages.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, readerKey{}, c.(arrival).reader)
		},
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(arrivals{s}); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			o.Log.Error("http server for streams ended", "err", err)
		}
	}()
	return s
}

// Take serves c, which it closes at the end, for a peer that may read so much. It does not block.
func (s *Streams) Take(c net.Conn, r Reader) {
	go func() {
		select {
		case s.conn <- arrival{c, r}:
		case <-s.gone:
			_ = c.Close() // the peer is told by that
		}
	}()
}

// Close ends the server and its connections.
func (s *Streams) Close() {
	s.once.Do(func() { close(s.gone) })
	if s.live != nil {
		s.live.Close()
	}
	_ = s.http.Close() // it closes connections of others, which say no more
	<-s.done
}

// arrivals is the net.Listener of a Streams.
type arrivals struct{ s *Streams }

func (a arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.s.conn:
		return c, nil
	case <-a.s.gone:
		return nil, net.ErrClosed
	}
}

func (a arrivals) Close() error { a.s.once.Do(func() { close(a.s.gone) }); return nil }

func (a arrivals) Addr() net.Addr { return &net.UnixAddr{Net: "rdma"} }
