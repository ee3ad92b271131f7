package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/rdistcc/rdistcc/internal/tcpaddr"
	"github.com/rdistcc/rdistcc/internal/telemetry/feed"
)

// NewRegistry returns a registry with the metrics of the Go runtime and the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// ServerOptions holds the options of a Server.
type ServerOptions struct {
	Addr     string       // ADDR:PORT; port 0 picks one
	Listener net.Listener // when set, used instead of opening Addr
	// AnyPort uses another port if that of Addr is in use: for a program that was not configured,
	// such as a manager that a wrapper started.
	AnyPort  bool
	Registry *prometheus.Registry
	Ready    func() error  // nil, or why the program takes no work now
	Note     func() string // what /readyz adds for a program that is ready; nil or "": nothing
	Page     func() Page   // the status page
	Live     *LiveOptions  // what it shows as it changes; nil: nothing
	Status   func() any    // the status as JSON, for programs
	Pprof    bool          // serve /debug/pprof
	Log      *slog.Logger
	// More are further pages by their patterns (http.ServeMux). An Unhurried one may take as long as it wants.
	More map[string]http.HandlerFunc
	// WriteTime is how long a reader may take for one answer; 0 = 10 s. A profile has its own limit.
	WriteTime time.Duration
}

// Server serves /metrics, /healthz, /readyz, the status page at / with its events at /live, and /status.json, and
// optionally /debug/pprof.
type Server struct {
	http *http.Server
	live *feed.Feed // nil: none
	addr net.Addr
	done chan struct{} // closed when the serving goroutine has ended
}

// maxConns bounds open connections, as each takes a descriptor that compiles could use.
const maxConns = 64

// Serve opens the address and serves it until Close. If the address is in use the error is
// syscall.EADDRINUSE (exit status 102).
func Serve(o ServerOptions) (*Server, error) {
	l := o.Listener
	if l == nil {
		var err error
		if l, err = Listen(o.Addr, o.AnyPort); err != nil {
			return nil, err
		}
	}
	if o.WriteTime == 0 {
		o.WriteTime = 10 * time.Second
	}
	live := o.feed()
	s := &Server{
		live: live,
		http: &http.Server{
			Handler: handler(&o, live),
			// Loopback does not mean friendly: a silent client must not hold a goroutine for ever.
			ReadHeaderTimeout: 5 * time.Second,
			IdleTimeout:       2 * time.Minute,
			// Nor may a scrape, of which only a few run at a time.
			WriteTimeout:   o.WriteTime,
			MaxHeaderBytes: 16 << 10,
			ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		},
		addr: l.Addr(),
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(netutil.LimitListener(l, maxConns)); err != nil && !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("http server ended", "addr", s.addr, "err", err)
		}
	}()
	o.Log.Info("http server listens", "addr", s.addr)
	if a, ok := s.addr.(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		o.Log.Warn("anyone who can reach this address can read metrics and the status page: hosts, loads and names of sources", "addr", s.addr)
	}
	return s, nil
}

// Listen listens on an address for a server, for programs that must know early whether it is available.
// With anyPort it uses another port if this one is in use. The listener belongs to the caller, or to the
// Server to whose Serve it is given. An error names the address.
func Listen(addr string, anyPort bool) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), tcpaddr.Network(addr), addr)
	if anyPort && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(addr) // it was valid for listening
		l, err = lc.Listen(context.Background(), tcpaddr.Network(addr), net.JoinHostPort(host, "0"))
	}
	if err != nil {
		var oe *net.OpError
		if errors.As(err, &oe) {
			err = oe.Err
		}
		return nil, fmt.Errorf("http %s: %w", addr, err)
	}
	return l, nil
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Close ends the server: requests in progress have until ctx ends, except those that watch the page, which have no end
// of their own.
func (s *Server) Close(ctx context.Context) error {
	if s.live != nil {
		s.live.Close()
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	<-s.done
	return err
}

// page returns the status page as it is now.
func (o *ServerOptions) page() Page {
	p := o.Page()
	p.live = o.Live != nil
	if err := o.Ready(); err != nil {
		p.notReady = err.Error()
	}
	return p
}

// feed returns the events of the status page, or nil if it has none.
func (o *ServerOptions) feed() *feed.Feed {
	if o.Live == nil {
		return nil
	}
	return feed.New(feed.Options{Open: func() feed.Source { return newSource(o) }, WriteTime: o.WriteTime})
}

func handler(o *ServerOptions, live *feed.Feed) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelError),
		Registry: o.Registry,
		// A scrape is cheap, but not free.
		MaxRequestsInFlight: 8,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text := "ready"
		if o.Note != nil {
			if note := o.Note(); note != "" {
				text += "; " + note
			}
		}
		plain(w, http.StatusOK, text)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { o.page().serve(w) })
	mux.HandleFunc("GET /page.css", Asset("text/css; charset=utf-8", pageStyle))
	if live != nil {
		mux.HandleFunc("GET /page.js", Asset("text/javascript; charset=utf-8", pageScript))
		mux.Handle("GET /live", live)
	}
	if o.Status != nil {
		mux.HandleFunc("GET /status.json", JSON(o.Status))
	}
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", Unhurried(pprof.Profile))
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", Unhurried(pprof.Trace))
	}
	for pattern, h := range o.More {
		mux.HandleFunc(pattern, h)
	}
	return mux
}

// Unhurried lets a handler take as long as its client requests.
func Unhurried(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it is a connection of this server
		h(w, r)
	}
}

func plain(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, line)
}
