package distcc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/proto"
)

// Bounds of a command. Linux limits one to 2 MiB.
const (
	maxWords = 1 << 16
	maxText  = 2 << 20
	maxFiles = 1 << 16
)

// errGone ends what was begun for a client that is no longer there.
var errGone = errors.New("the client has gone")

// serve does what a client asks for: one job.
func (s *Server) serve(c net.Conn, at netip.AddrPort) {
	q, free, err := s.read(c)
	defer free()
	log := s.o.Log.With("remote", at.String(), "via", "distcc", "protocol", q.Version)
	if err != nil {
		if q.Version == 0 && errors.Is(err, io.EOF) {
			return // a look whether anybody listens, as lsdistcc and monitoring do
		}
		s.o.Metrics.count(resultOf(err))
		log.Warn("distcc: request not taken", "err", err)
		return
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	// Nothing follows a request, so whatever comes means that nobody waits for the answer. A client that only shuts its own
	// direction cannot be told from one that was killed; distcc's does not.
	watched := make(chan struct{})
	_ = c.SetReadDeadline(time.Time{})
	go func() {
		defer close(watched)
		_, _ = c.Read(make([]byte, 1))
		cancel(errGone)
	}()
	defer func() {
		_ = c.SetReadDeadline(time.Now())
		<-watched
	}()
	reply, source, err := s.compile(ctx, q, at)
	if err == nil {
		err = s.write(c, reply, q.Version)
	}
	if err != nil && ctx.Err() != nil && s.ctx.Err() == nil {
		err = errGone
	}
	s.o.Metrics.count(resultOf(err))
	if err == nil {
		return // the worker has logged the job
	}
	level := slog.LevelWarn
	if errors.Is(err, errGone) {
		level = slog.LevelInfo
	}
	log.Log(context.Background(), level, "distcc: no answer; the client compiles elsewhere", "compiler", q.Args[0], "source", source, "err", err)
}

// read reads a request. The caller calls free when nothing of it is used any more.
func (s *Server) read(c net.Conn) (q *proto.Request, free func(), err error) {
	taken := 0
	free = func() { s.give(taken) }
	q, err = proto.Read(&patient{c, time.Now().Add(requestTime)}, proto.Limits{
		Words: maxWords, Text: maxText, Files: maxFiles, Source: s.o.Source,
		Take: func(n int) error {
			err := s.take(n)
			if err == nil {
				taken += n
			}
			return err
		},
	})
	if err != nil && resultOf(err) == failed {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	if err == nil && q.Version == proto.Sources && !s.o.Trees {
		err = job.Refuse(job.CauseTree, "pump mode takes private trees, which this host does not show")
	}
	return q, free, err
}

// patient reads from a connection, and waits for each piece and for all of them as long as a client may take.
type patient struct {
	c     net.Conn
	until time.Time
}

func (p *patient) Read(b []byte) (int, error) {
	by := time.Now().Add(idleTime)
	if by.After(p.until) {
		by = p.until
	}
	if err := p.c.SetReadDeadline(by); err != nil {
		return 0, err
	}
	return p.c.Read(b)
}

// compile has the worker do what a request asks for.
func (s *Server) compile(ctx context.Context, q *proto.Request, at netip.AddrPort) (reply *proto.Reply, source string, err error) {
	tc, err := s.compiler(ctx, q.Args[0])
	if err != nil {
		return nil, "", err
	}
	j, err := s.jobOf(q, tc)
	if err != nil {
		return nil, "", err
	}
	source, j.Body.Env = j.Body.Name, s.o.Env
	w, err := s.o.Inside.Dial(ctx, at, s.boot)
	if err != nil {
		return nil, source, fmt.Errorf("reach the worker: %w", err)
	}
	defer w.Close() // ends the compile if it still runs
	r, err := w.Run(ctx, j)
	if err != nil {
		return nil, source, err
	}
	if r.Status != job.StatusRan {
		return nil, source, &job.Refusal{Cause: r.Cause, Detail: fmt.Sprintf("%v: %s", r.Cause, r.Detail)}
	}
	reply = &proto.Reply{Status: int(r.Exit) << 8, Stderr: r.Segment(r.Stderr), Stdout: r.Segment(r.Stdout)}
	if r.Signal != 0 {
		reply.Status = int(r.Signal)
	}
	for _, f := range r.Files {
		switch j.Body.Outputs[f.Index].Kind {
		case unit.OutputDependency:
			reply.Deps = r.Segment(f.Segment)
		default:
			if f.Index == 0 {
				reply.Object = r.Segment(f.Segment)
			}
		}
	}
	if reply.Status == 0 && reply.Object == nil {
		return nil, source, job.Refuse(job.CauseUndeclared, "the compiler made no object")
	}
	return reply, source, nil
}

// jobOf returns the job that a request stands for.
func (s *Server) jobOf(q *proto.Request, tc *toolchain.Toolchain) (*rawjob.Job, error) {
	j := &rawjob.Job{Toolchain: tc.ID, Text: q.Source}
	var err error
	if q.Version == proto.Sources {
		j.Body, j.Text, err = sourcesBody(q, tc, s.o.Headers())
	} else {
		j.Body, err = textBody(q, tc)
	}
	if err != nil {
		return nil, err
	}
	if n := len(j.Body.Append(nil)); n > job.MaxBodyLen {
		return nil, job.Refuse(job.CauseTooBig, "a command and names of %d bytes", n)
	}
	j.Sink = sinkSize(len(j.Text))
	return j, nil
}

// Bounds of the memory for a result.
const (
	minSink = 8 << 20
	maxSink = 64 << 20
)

// sinkSize returns the memory for the result of a source, in bytes: an object with debug information is rarely longer than what
// the preprocessor wrote. A longer one is not sent back.
func sinkSize(source int) int { return min(max(minSink, 4*source), maxSink) }

// write sends the answer.
func (s *Server) write(c net.Conn, reply *proto.Reply, version int) error {
	b := reply.Append(nil, version)
	until := time.Now().Add(answerTime)
	for len(b) > 0 {
		by := time.Now().Add(idleTime)
		if by.After(until) {
			by = until
		}
		if err := c.SetWriteDeadline(by); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		n, err := c.Write(b[:min(len(b), 1<<20)])
		if err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		b = b[n:]
	}
	return nil
}
