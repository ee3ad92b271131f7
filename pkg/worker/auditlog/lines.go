package auditlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Peer is the other end of a connection.
type Peer struct {
	Tenant string // the tenant that it counts for
	Remote string // its address
	Proof  string // how it proves its identity
	Client uint64 // number of the connection
	Name   string // the name that it gives itself
}

// Job is a job that was answered.
type Job struct {
	Peer
	Asked    *job.Job
	Answer   *job.Result
	Written  int    // bytes of the result that went to the client's sink
	Compiler string // "" if the job ended before its compiler was found
	Language string
	Source   string // name of the source; the line omits directories
	Files    int    // number of files in the sources form; 0 for the text form
	Excess   string // the limit that it was ended for, or ""
}

// Connected writes the line for a connection whose client has introduced itself.
func (a *Log) Connected(p Peer) { a.line("client connected", p.attrs()...) }

// Refused writes the line for a connection that was rejected.
func (a *Log) Refused(tenant, remote string, why *job.Rejection) {
	a.line("client refused", slog.String("tenant", word(tenant)), slog.String("remote", remote),
		slog.String("cause", why.Cause.String()), slog.String("detail", word(why.Detail)))
}

// Gone writes the line for a connection that has ended: jobs is how many jobs it brought, after how long it
// lasted, why an error or nil.
func (a *Log) Gone(p Peer, jobs uint64, after time.Duration, why error) {
	attrs := append(p.attrs(), slog.Uint64("jobs", jobs), slog.Int64("after_ms", after.Milliseconds()))
	if why != nil {
		attrs = append(attrs, slog.String("err", word(why.Error())))
	}
	a.line("client gone", attrs...)
}

// Job writes the line for a job.
func (a *Log) Job(j *Job) {
	if a == nil {
		return
	}
	m, r := j.Asked, j.Answer
	form := "text"
	if j.Files > 0 {
		form = "sources"
	}
	sent := uint64(j.Written)
	if r.Window.Len > 0 {
		sent = r.Window.Len
	}
	attrs := append(j.attrs(),
		slog.Uint64("job", m.ID), slog.String("toolchain", fmt.Sprintf("%x", m.Toolchain[:8])), slog.String("compiler", j.Compiler),
		slog.String("language", word(j.Language)), slog.String("source", word(j.Source[strings.LastIndexByte(j.Source, '/')+1:])), slog.String("form", form),
		slog.String("result", result(r)), slog.Int("exit", int(r.Exit)),
		slog.Uint64("text", m.TextLen), slog.Uint64("sent", sent), slog.Int("files", j.Files),
		slog.Uint64("queue_us", uint64(r.Queue)), slog.Uint64("wall_us", uint64(r.Wall)), slog.Uint64("cpu_us", uint64(r.CPU)), slog.Uint64("rss", r.MaxRSS),
	)
	if r.Signal != 0 {
		attrs = append(attrs, slog.Int("signal", int(r.Signal)))
	}
	if r.Status != job.StatusRan {
		attrs = append(attrs, slog.String("cause", r.Cause.String()), slog.String("detail", word(r.Detail)))
	}
	if j.Excess != "" {
		attrs = append(attrs, slog.String("excess", j.Excess))
	}
	a.line("job", attrs...)
}

// line writes one line. It does nothing for a nil Log.
func (a *Log) line(what string, attrs ...slog.Attr) {
	if a != nil {
		a.log.LogAttrs(context.Background(), slog.LevelInfo, what, attrs...)
	}
}

func (p *Peer) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("tenant", word(p.Tenant)), slog.String("remote", p.Remote), slog.String("proof", p.Proof),
		slog.Uint64("client", p.Client), slog.String("name", word(p.Name)),
	}
}

// wordMost bounds a string from a peer in a line, in bytes.
const wordMost = 256

// word returns a string from a peer as it goes into a line: valid UTF-8 and not too long. The JSON encoder
// quotes everything else.
func word(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > wordMost {
		s = strings.ToValidUTF8(s[:wordMost], "") + "..."
	}
	return s
}

// result returns the word for what became of a job.
func result(r *job.Result) string {
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
