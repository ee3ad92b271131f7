package received

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Service takes toolchains by HTTP, on streams whose peers are known:
//
//	GET  /about                        the answer is a parcel.About in JSON
//	POST /offer                        an encoded parcel; the answer is a parcel.Offered in JSON
//	PUT  /content/ID/NAME?at=N         a content of a parcel from byte N on, compressed if Content-Encoding is zstd
//
// Errors are a parcel.Refusal in JSON.
type Service struct {
	s    *Store
	http *http.Server
	conn chan net.Conn
	gone chan struct{} // closed by Close
	once sync.Once
	done chan struct{} // closed when the serving goroutine has ended
}

type tenantKey struct{}

// sent is a connection whose peer is known.
type sent struct {
	net.Conn
	tenant string
}

// pieceTime bounds one request. A content of 100 MB that does not come within it goes on in another one.
const pieceTime = 10 * time.Minute

// NewService returns a Service for s. arrived is called when a tenant can use another toolchain.
func NewService(s *Store, log *slog.Logger, arrived func(tenant string)) *Service {
	v := &Service{s: s, conn: make(chan net.Conn), gone: make(chan struct{}), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /about", v.about)
	mux.HandleFunc("POST /offer", func(w http.ResponseWriter, r *http.Request) { v.offer(w, r, arrived) })
	mux.HandleFunc("PUT /content/{id}/{name}", func(w http.ResponseWriter, r *http.Request) { v.content(w, r, arrived) })
	v.http = &http.Server{
		Handler: mux,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, tenantKey{}, c.(sent).tenant)
		},
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: pieceTime, IdleTimeout: 2 * time.Minute, WriteTimeout: pieceTime, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(v.done)
		if err := v.http.Serve(listener{v}); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("the service for toolchains ended", "err", err)
		}
	}()
	return v
}

// Take serves c, which it closes at the end, for a tenant. It does not block.
func (v *Service) Take(c net.Conn, tenant string) {
	go func() {
		select {
		case v.conn <- sent{c, tenant}:
		case <-v.gone:
			_ = c.Close() // the peer is told by that
		}
	}()
}

// Close ends the service and its connections.
func (v *Service) Close() {
	v.once.Do(func() { close(v.gone) })
	_ = v.http.Close() // connections are being closed
	<-v.done
}

// listener accepts what Take is given.
type listener struct{ v *Service }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.v.conn:
		return c, nil
	case <-l.v.gone:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: "streams"} }

func tenantOf(r *http.Request) string {
	t, _ := r.Context().Value(tenantKey{}).(string) // ConnContext has set it
	return t
}

// about says what a toolchain must be like to be of use here.
func (v *Service) about(w http.ResponseWriter, r *http.Request) {
	a := parcel.About{Machine: machines[runtime.GOARCH], Room: v.s.Room(tenantOf(r))}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		a.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	answer(w, http.StatusOK, a)
}

// machines says which programs the sandbox of this daemon lets run, as uname -m would.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func (v *Service) offer(w http.ResponseWriter, r *http.Request, arrived func(string)) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, parcel.MaxEncoded))
	if err != nil {
		refuse(w, errors.Join(parcel.ErrMalformed, err))
		return
	}
	tenant := tenantOf(r)
	id, missing, err := v.s.Offer(tenant, b)
	if err != nil {
		refuse(w, err)
		return
	}
	a := parcel.Offered{ID: idName(id), Missing: []parcel.Wanted{}}
	for _, m := range missing {
		a.Missing = append(a.Missing, parcel.Wanted{Name: contentName(m.Entry), File: m.Entry.Name, Have: m.Have})
	}
	answer(w, http.StatusOK, a)
	if len(missing) == 0 {
		arrived(tenant)
	}
}

func (v *Service) content(w http.ResponseWriter, r *http.Request, arrived func(string)) {
	var id unit.ToolchainID
	n, err := hex.Decode(id[:], []byte(r.PathValue("id")[:min(len(r.PathValue("id")), 2*len(id))]))
	if err != nil || n != len(id) {
		refuse(w, ErrUnknown)
		return
	}
	at, err := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	if err != nil {
		refuse(w, errors.Join(ErrWrong, err))
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "zstd" {
		z, err := compress.Reader(r.Body)
		if err != nil {
			refuse(w, err)
			return
		}
		defer z.Close()
		body = z
	}
	done, err := v.s.Write(tenantOf(r), id, r.PathValue("name"), at, body)
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	for _, tenant := range done {
		arrived(tenant)
	}
}

// refuse answers with what err is.
func refuse(w http.ResponseWriter, err error) {
	status, f := http.StatusInternalServerError, parcel.Refusal{Cause: parcel.CauseDisk, Text: err.Error()}
	for _, x := range []struct {
		is     error
		status int
		cause  string
	}{
		{parcel.ErrMalformed, http.StatusBadRequest, parcel.CauseMalformed}, {ErrQuota, http.StatusInsufficientStorage, parcel.CauseQuota},
		{ErrUnknown, http.StatusNotFound, parcel.CauseUnknown}, {ErrWrong, http.StatusConflict, parcel.CauseWrong}, {ErrBusy, http.StatusLocked, parcel.CauseBusy},
	} {
		if errors.Is(err, x.is) {
			status, f.Cause = x.status, x.cause
			break
		}
	}
	answer(w, status, f)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer has gone
}
