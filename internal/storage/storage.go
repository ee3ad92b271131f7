// Package storage is the program ccache-storage-rdistcc, a storage helper of ccache's: it passes what ccache keeps and
// asks for to this user's connection manager, whose cache of results is a farm's.
//
//	storage  the program: what it is told, its socket, its end
//	manager  requests to the manager
//	start    starts a manager where none runs
//
// ccache waits ten seconds, with each of its compiles, for a helper that does not listen. So this one listens whatever
// is wrong, and says it in its answers, which ccache logs.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// Name is the program's name, by which ccache looks for it: its last part is the scheme of its URL.
const Name = "ccache-storage-rdistcc"

const usage = `ccache starts ` + Name + ` by itself. In ccache's configuration, or in CCACHE_REMOTE_STORAGE:

  remote_storage = rdistcc:           what ccache keeps goes to this user's rdistcc-cm, and to its farm
  remote_storage = rdistcc:/PATH      the same with the rdistcc-cm that serves the socket PATH
  remote_storage = rdistcc: @start=no the same if it runs: none is started

It takes no arguments. See "For users of ccache" in docs/cache.md.
`

// Run runs the program with its arguments, and returns its exit status.
func Run(args []string, version string, getenv func(string) string, out, errs io.Writer) int {
	switch told, err := crsh.ReadStarted(getenv); {
	case len(args) == 1 && args[0] == "--version":
		fmt.Fprintf(out, "%s %s\n", Name, version)
		return 0
	case len(args) == 1 && args[0] == "--help":
		fmt.Fprint(out, usage)
		return 0
	case len(args) > 0:
		fmt.Fprintf(errs, "%s: takes no arguments: ccache starts it; --help says how\n", Name)
		return reason.ExitArguments
	case told.Endpoint == "":
		fmt.Fprintf(errs, "%s: CRSH_IPC_ENDPOINT is not set: ccache starts this program; --help says how\n", Name)
		return reason.ExitArguments
	default:
		h := &helper{idle: told.Idle, ended: make(chan struct{}), changed: make(chan struct{}, 1)}
		h.server = crsh.Server{Identity: Name + " " + version, Patience: patience, Stop: h.stop}
		m, wrong := open(&told, getenv)
		if err = errors.Join(err, wrong); err != nil {
			h.server.Values = broken{err}
			h.server.Notes = []string{err.Error()}
			fmt.Fprintf(errs, "%s: %v\n", Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			h.server.Values = m
		}
		if err := h.run(told.Endpoint); err != nil {
			fmt.Fprintf(errs, "%s: %v\n", Name, err)
			return reason.ExitGeneral
		}
		return 0
	}
}

// patience is how long ccache may take for the next bytes.
const patience = 10 * time.Second

// open returns what answers requests by what the helper is told.
func open(told *crsh.Started, getenv func(string) string) (*manager, error) {
	m := &manager{path: ipc.SocketPath(getenv), hosts: getenv("RDISTCC_HOSTS"), starts: true, getenv: getenv}
	u, err := url.Parse(told.URL)
	switch {
	case err != nil || u.Scheme != "rdistcc":
		return nil, errors.New("its URL does not begin with rdistcc: (remote_storage in ccache's configuration)")
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("its URL is neither rdistcc: nor rdistcc:/PATH of a connection manager's socket (remote_storage in ccache's configuration)")
	case strings.Trim(u.Path, "/") != "":
		m.path, m.starts = filepath.Clean(u.Path), false
	}
	for _, a := range told.Attributes {
		switch {
		case a.Name == "start" && (a.Value == "no" || a.Value == "false"):
			m.starts = false
		case a.Name == "start" && (a.Value == "yes" || a.Value == "true"):
		default:
			return nil, fmt.Errorf("there is no attribute @%.40s=%.40s: only @start=no (remote_storage in ccache's configuration)", a.Name, a.Value)
		}
	}
	return m, nil
}

// broken answers all requests with an error.
type broken struct{ err error }

func (b broken) Get(context.Context, []byte, func(uint64, io.Reader) error) error { return b.err }
func (b broken) Put(context.Context, []byte, io.Reader, uint64, bool) (bool, error) {
	return false, b.err
}
func (b broken) Remove(context.Context, []byte) (bool, error) { return false, b.err }
func (b broken) Exists(context.Context, []byte) (bool, error) { return false, b.err }

// helper is the running program.
type helper struct {
	server  crsh.Server
	idle    time.Duration // it ends after so long without a connection; 0: never
	ended   chan struct{} // closed by stop
	once    sync.Once
	changed chan struct{} // capacity 1: a connection has begun or ended

	mu    sync.Mutex
	conns int
	since time.Time // when the last one ended
}

// maxConns bounds how many compiles are served at a time; others wait to be accepted.
const maxConns = 1000

func (h *helper) stop() { h.once.Do(func() { close(h.ended) }) }

// run serves the socket until the program is told to end, or has been idle for long enough.
func (h *helper) run(path string) error {
	unix.Umask(0o077)
	l, err := listen(path)
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	defer l.Close() // and the socket goes with it
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	h.since = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go h.accept(ctx, l) // ends with the program
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		left, wait := h.left(time.Now())
		if wait && left <= 0 {
			return nil
		}
		if t.Stop(); wait {
			t.Reset(left)
		}
		select {
		case <-h.ended:
			return nil
		case <-signals:
			return nil
		case <-h.changed:
		case <-t.C:
		}
	}
}

// left returns how long the program goes on if nothing happens. wait is false if there is no such time.
func (h *helper) left(now time.Time) (d time.Duration, wait bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since.Add(h.idle).Sub(now), h.idle > 0 && h.conns == 0
}

func (h *helper) accept(ctx context.Context, l net.Listener) {
	places := make(chan struct{}, maxConns)
	for {
		places <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptors, say
			<-places
			continue
		}
		h.note(1)
		go func() {
			h.server.Serve(ctx, conn)
			h.note(-1)
			<-places
		}()
	}
}

// note notes that a connection has begun, or ended.
func (h *helper) note(n int) {
	h.mu.Lock()
	h.conns += n
	h.since = time.Now()
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// listen opens the socket, in place of one that a killed helper has left.
func listen(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, errors.New("another helper serves it")
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, errors.New("something else than a socket has that name")
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}
