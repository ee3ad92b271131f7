package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/sandbox"
)

// Audit is a log of who had what compiled here: a JSON object a line for each job that
// was answered and each connection that came, was refused or went. It has no text of
// sources, no command line and no environment.
//
// It never holds a job up: lines are written by a goroutine of its own, and lost where
// that cannot keep up or the disk is full, which Lost counts and the ordinary log says
// once each time it begins. A nil *Audit writes nothing. It is safe for concurrent use.
type Audit struct {
	path string
	log  *slog.Logger // of lines
	tell *slog.Logger // of trouble

	lines chan []byte
	ended chan struct{}

	mu     sync.Mutex
	f      *os.File // guarded by mu
	torn   bool     // the last line was not written whole; guarded by mu
	lost   uint64   // guarded by mu
	silent bool     // lines are being lost, and that was said; guarded by mu
	closed bool     // guarded by mu
}

// auditQueue is how many lines may wait to be written: some seconds of a busy host.
const auditQueue = 4096

// auditWord bounds a word of a peer's in a line, in bytes.
const auditWord = 256

// OpenAudit opens the log, a regular file for its owner alone, and appends to it. tell is
// where trouble with it is said.
func OpenAudit(path string, tell *slog.Logger) (*Audit, error) {
	a := &Audit{path: path, tell: tell, lines: make(chan []byte, auditQueue), ended: make(chan struct{})}
	if err := a.Reopen(); err != nil {
		return nil, err
	}
	a.log = slog.New(slog.NewJSONHandler(queue{a}, nil))
	go a.write() // until Close
	return a, nil
}

// Reopen opens the file anew, after somebody has moved it away. On an error the old one
// stays in use.
func (a *Audit) Reopen() error {
	if a == nil {
		return nil
	}
	// Not through a link, and not waiting for a reader of a pipe.
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	st, err := f.Stat()
	switch {
	case err == nil && !st.Mode().IsRegular():
		err = errors.New("no regular file")
	case err == nil && st.Mode().Perm()&0o022 != 0:
		err = errors.New("others can write to it (chmod go-w)")
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("audit log %s: %w", a.path, err)
	}
	a.mu.Lock()
	old := a.f
	a.f, a.torn = f, false
	a.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

// Close writes what waits and closes the file.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	was := a.closed
	a.closed = true
	a.mu.Unlock()
	if was {
		return nil
	}
	close(a.lines)
	<-a.ended
	return a.f.Close()
}

// Lost is how many lines could not be written.
func (a *Audit) Lost() uint64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost
}

// queue is where the handler's lines go, each with one Write.
type queue struct{ a *Audit }

func (q queue) Write(p []byte) (int, error) {
	a := q.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		select {
		case a.lines <- append([]byte(nil), p...):
		default:
			a.loseLocked(errors.New("it is written too slowly"))
		}
	}
	return len(p), nil
}

func (a *Audit) loseLocked(err error) {
	a.lost++
	if !a.silent {
		a.silent = true
		a.tell.Error("audit log: lines are lost", "file", a.path, "err", err)
	}
}

func (a *Audit) write() {
	defer close(a.ended)
	for line := range a.lines {
		a.mu.Lock()
		f, torn := a.f, a.torn
		a.mu.Unlock()
		if torn {
			line = append([]byte{'\n'}, line...)
		}
		n, err := f.Write(line)
		a.mu.Lock()
		if err == nil {
			if a.torn = false; a.silent {
				a.silent = false
				a.tell.Warn("audit log: written again", "file", a.path, "lost", a.lost)
			}
		} else if f == a.f { // else it was exchanged meanwhile
			a.torn = torn || n > 0
			a.loseLocked(err)
		}
		a.mu.Unlock()
	}
}

// word is a peer's word in a line: valid text, and not long. JSON quotes the rest.
func word(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > auditWord {
		s = strings.ToValidUTF8(s[:auditWord], "") + "..."
	}
	return s
}

// who are the fields that name a connection's peer.
func (c *conn) who() []slog.Attr {
	return []slog.Attr{
		slog.String("tenant", word(c.tenant.name)), slog.String("remote", c.remote.String()), slog.String("proof", c.proof),
		slog.Uint64("client", c.id), slog.String("name", word(c.name)),
	}
}

// event writes a line about a connection.
func (a *Audit) event(what string, attrs ...slog.Attr) {
	if a != nil {
		a.log.LogAttrs(context.Background(), slog.LevelInfo, what, attrs...)
	}
}

// job writes the line of a job that was answered; n is how many bytes of result were
// written.
func (a *Audit) job(t *task, r *job.Result, n int) {
	if a == nil {
		return
	}
	form := "text"
	if t.files > 0 {
		form = "sources"
	}
	sent := uint64(n)
	if r.Window.Len > 0 {
		sent = r.Window.Len
	}
	name := t.source
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	attrs := append(t.c.who(),
		slog.Uint64("job", t.m.ID), slog.String("toolchain", fmt.Sprintf("%x", t.m.Toolchain[:8])), slog.String("compiler", compilerName(t)),
		slog.String("language", word(t.language)), slog.String("source", word(name)), slog.String("form", form),
		slog.String("result", resultWord(r)), slog.Int("exit", int(r.Exit)),
		slog.Uint64("text", t.m.TextLen), slog.Uint64("sent", sent), slog.Int("files", t.files),
		slog.Uint64("queue_us", uint64(r.Queue)), slog.Uint64("wall_us", uint64(r.Wall)), slog.Uint64("cpu_us", uint64(r.CPU)), slog.Uint64("rss", r.MaxRSS),
	)
	if r.Signal != 0 {
		attrs = append(attrs, slog.Int("signal", int(r.Signal)))
	}
	if r.Status != job.StatusRan {
		attrs = append(attrs, slog.String("cause", r.Cause.String()), slog.String("detail", word(r.Detail)))
	}
	if t.excess != sandbox.ExcessNone {
		attrs = append(attrs, slog.String("excess", t.excess.String()))
	}
	a.log.LogAttrs(context.Background(), slog.LevelInfo, "job", attrs...)
}

// compilerName says which one it was, where the job got as far as to have one.
func compilerName(t *task) string {
	if t.tc.Family == "" {
		return ""
	}
	return t.tc.Family + "-" + t.tc.Version
}

// resultWord is what became of a job.
func resultWord(r *job.Result) string {
	switch {
	case r.Status == job.StatusRefused:
		return "refused"
	case r.Status == job.StatusFailed:
		return "void"
	case r.Signal != 0:
		return "signal"
	case r.Exit != 0:
		return "failed"
	}
	return "ok"
}

// gone writes the line of a connection that has ended.
func (c *conn) gone(why error) {
	attrs := append(c.who(), slog.Uint64("jobs", c.jobs), slog.Int64("after_ms", time.Since(c.since).Milliseconds()))
	if why != nil {
		attrs = append(attrs, slog.String("err", word(why.Error())))
	}
	c.s.o.Audit.event("client gone", attrs...)
}
