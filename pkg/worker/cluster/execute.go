package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

const (
	// lostTime is how long executions whose worker is lost are tried again. Then another host is sooner.
	lostTime = 20 * time.Second
	// lostPause is the pause before the next try.
	lostPause = 100 * time.Millisecond
	// mostEvicted is how often one job uploads what the server has dropped meanwhile.
	mostEvicted = 4
)

// Run runs a command. An error is a *job.Refusal, within a *Failed if the server has taken the command; or the cause of ctx's end.
func (c *Cluster) Run(ctx context.Context, cmd *Command) (*Outcome, error) {
	o, err := c.run(ctx, cmd)
	if err == nil {
		return o, nil
	}
	if errors.Is(err, parcel.ErrChanged) {
		c.bases.forget(cmd.Compiler)
		return nil, job.Refuse(job.CauseToolchain, "%v", err)
	}
	c.count.failed.Add(1)
	return nil, c.explain(ctx, err)
}

func (c *Cluster) run(ctx context.Context, cmd *Command) (*Outcome, error) {
	if err := c.traits.hazard(cmd); err != nil {
		return nil, err
	}
	base, err := c.base(ctx, cmd.Compiler)
	if err != nil {
		return nil, err
	}
	return c.runOn(ctx, cmd, base)
}

// base returns the input root of a toolchain, which a worker has been shown to run.
func (c *Cluster) base(ctx context.Context, tc *toolchain.Toolchain) (*directory, error) {
	return c.bases.get(ctx, tc, func() (*directory, error) {
		base, err := baseOf(ctx, tc)
		if err == nil {
			err = c.prove(ctx, tc, base)
		}
		return base, err
	})
}

// runOn runs a command in an input root that begins with base.
func (c *Cluster) runOn(ctx context.Context, cmd *Command, base *directory) (*Outcome, error) {
	a, err := c.o.action(cmd, base)
	if err != nil {
		return nil, err
	}
	// By which the cluster's own tools find it.
	c.o.Log.Debug("action", "digest", a.digest.Hash, "size", a.digest.SizeBytes, "outputs", cmd.Outputs)
	var until time.Time // zero: nothing was lost yet
	cached := c.o.Cached
	for evicted := 0; ; {
		if err := c.provide(ctx, a.blobs); err != nil {
			return nil, err
		}
		r, err := c.execute(ctx, a, cached)
		code := status.Code(err)
		if lost(code) && until.IsZero() {
			until = time.Now().Add(c.o.Lost)
		}
		switch {
		case err == nil && r.GetCachedResult() && r.GetResult().GetExitCode() != 0 && cached:
			cached = false // some servers keep failures, whose reason may have gone
		case err == nil:
			return c.outcome(ctx, cmd, a, r)
		case ctx.Err() != nil:
			return nil, err
		case code == codes.FailedPrecondition && evicted < mostEvicted:
			evicted++
			c.held.forget(a.hashes())
		case lost(code) && time.Now().Before(until):
			if err := pause(ctx, lostPause); err != nil {
				return nil, err
			}
		case code == codes.FailedPrecondition:
			return nil, fail(job.CauseInternal, "the cluster drops inputs before it uses them: %v", c.plain(err))
		case code == codes.DeadlineExceeded:
			return nil, fail(job.CauseTimeout, "the cluster ended it at its time limit")
		case lost(code):
			return nil, fail(job.CauseInternal, "the cluster has lost it: %v", c.plain(err))
		default:
			return nil, err
		}
	}
}

// lost reports whether an execution's error says that a worker, or an operation, has gone.
func lost(code codes.Code) bool {
	return code == codes.Unavailable || code == codes.Aborted || code == codes.Canceled || code == codes.NotFound
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hashes returns those of all blobs of an action. A server that lacks some names those that it has come across, and may come across
// others next time: what it lacks, it is asked at once.
func (a *action) hashes() (all []string) {
	for i := range a.blobs {
		all = append(all, a.blobs[i].Digest.Hash)
	}
	return all
}

// operations is a stream of what becomes of an execution.
type operations interface {
	Recv() (*longrunningpb.Operation, error)
}

// execute has the action executed, and waits for its end. A connection that breaks is taken up again, as long as the server knows
// the execution. cached lets it answer by an earlier result. The error is one of gRPC's.
func (c *Cluster) execute(ctx context.Context, a *action, cached bool) (*repb.ExecuteResponse, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	name := ""
	defer func() {
		if ctx.Err() != nil && name != "" {
			c.cancel(name)
		}
	}()
	var s operations
	start := func(ctx context.Context) (err error) {
		s, err = c.exec.Execute(ctx, &repb.ExecuteRequest{
			InstanceName: c.server.Instance(), ActionDigest: a.digest, SkipCacheLookup: !cached, DigestFunction: repb.DigestFunction_SHA256,
			InlineStdout: true, InlineStderr: true,
		})
		return err
	}
	for tries := 0; ; tries++ {
		r, err := c.follow(inner, start, &s, &name)
		if err == nil {
			return r, status.FromProto(r.GetStatus()).Err()
		}
		if code := status.Code(err); ctx.Err() != nil || name == "" || tries >= mostResumed || code != codes.Unavailable && code != codes.Internal && code != codes.Unknown {
			return nil, err
		}
		if err := pause(ctx, lostPause); err != nil {
			return nil, err
		}
		start = func(ctx context.Context) (err error) {
			s, err = c.exec.WaitExecution(ctx, &repb.WaitExecutionRequest{Name: name})
			return err
		}
	}
}

// mostResumed is how often the wait for one execution is taken up again. What is lost then is begun anew.
const mostResumed = 5

// follow starts a stream and reads it to the end of the execution, whose name it sets.
func (c *Cluster) follow(ctx context.Context, start func(ctx context.Context) error, s *operations, name *string) (*repb.ExecuteResponse, error) {
	var op *longrunningpb.Operation
	err := c.call(ctx, func(ctx context.Context) error { // an error of a stream comes with the first message
		if err := start(ctx); err != nil {
			return err
		}
		var err error
		op, err = (*s).Recv()
		return err
	})
	for ; err == nil; op, err = (*s).Recv() {
		if op.GetName() != "" {
			*name = op.GetName()
		}
		if !op.GetDone() {
			continue
		}
		if e := op.GetError(); e != nil {
			return nil, status.FromProto(e).Err()
		}
		r := &repb.ExecuteResponse{}
		if err := op.GetResponse().UnmarshalTo(r); err != nil {
			return nil, status.Errorf(codes.DataLoss, "an operation ends with %s instead of an ExecuteResponse", op.GetResponse().GetTypeUrl())
		}
		return r, nil
	}
	if errors.Is(err, io.EOF) {
		return nil, status.Error(codes.Unavailable, "the stream of the operation ended before the operation")
	}
	return nil, err
}

// cancelTime bounds the attempt to end an execution that nobody waits for.
const cancelTime = 2 * time.Second

// cancel asks the server to end an execution. Not all can; most end it anyway when nobody waits for it.
func (c *Cluster) cancel(name string) {
	ctx, stop := context.WithTimeout(context.Background(), cancelTime)
	defer stop()
	_, _ = c.ops.CancelOperation(c.server.With(ctx), &longrunningpb.CancelOperationRequest{Name: name}) // best effort
}

// outcome reads the result of an execution.
func (c *Cluster) outcome(ctx context.Context, cmd *Command, a *action, r *repb.ExecuteResponse) (*Outcome, error) {
	res := r.GetResult()
	if res == nil {
		return nil, fail(job.CauseInternal, "the cluster has ended it without a result")
	}
	o := &Outcome{Exit: int(res.ExitCode), Cached: r.GetCachedResult(), Outputs: make([]*Output, len(a.names))}
	if m := res.GetExecutionMetadata(); m.GetExecutionStartTimestamp() != nil && m.GetExecutionCompletedTimestamp() != nil {
		o.Ran = max(0, m.ExecutionCompletedTimestamp.AsTime().Sub(m.ExecutionStartTimestamp.AsTime()))
	}
	if o.Exit < 0 || o.Exit >= startFailed {
		return nil, fail(job.CauseInternal, "a worker could not run the compiler, or it was killed there (exit status %d)", o.Exit)
	}
	for i, printed := range []struct {
		raw []byte
		d   *repb.Digest
	}{{res.StdoutRaw, res.StdoutDigest}, {res.StderrRaw, res.StderrDigest}} {
		b := printed.raw
		if len(b) == 0 && printed.d.GetSizeBytes() > 0 {
			var err error
			if b, err = c.fetch(ctx, printed.d, mostPrinted, "what the compiler printed"); err != nil {
				return nil, err
			}
		}
		o.Printed[i] = b[:min(int64(len(b)), cmd.MaxPrinted+1)]
	}
	if err := c.outputs(ctx, cmd, a, res, o); err != nil {
		return nil, err
	}
	if o.Cached {
		c.count.cached.Add(1)
	} else {
		c.count.ran.Add(1)
	}
	return o, nil
}

const (
	// startFailed is the least exit status that says something else than what became of the compile: shells and runners say 126 and 127 of
	// a program that cannot be started, and add the number of a signal to 128.
	startFailed = 126
	// mostPrinted is the most that is read of what a compiler has printed, in bytes.
	mostPrinted = 64 << 20
)

// outputs reads the files that an action has made.
func (c *Cluster) outputs(ctx context.Context, cmd *Command, a *action, res *repb.ActionResult, o *Outcome) error {
	made := make(map[string]*repb.OutputFile, len(res.OutputFiles))
	for _, f := range res.OutputFiles {
		made[f.GetPath()] = f
	}
	for i, name := range a.names {
		f := made[name]
		if f == nil {
			for _, l := range res.OutputSymlinks {
				if l.GetPath() == name {
					return fail(job.CauseUndeclared, "%s is a link on the cluster", cmd.Outputs[i])
				}
			}
			continue
		}
		out := &Output{Exec: f.IsExecutable}
		var err error
		if int64(len(f.Contents)) == f.GetDigest().GetSizeBytes() && len(f.Contents) > 0 {
			out.Content, err = f.Contents, check(f.Contents, f.Digest, cmd.Outputs[i])
		} else {
			out.Content, err = c.fetch(ctx, f.GetDigest(), cmd.MaxFile, cmd.Outputs[i])
		}
		if err != nil {
			return err
		}
		o.Outputs[i] = out
	}
	return nil
}

// fetch reads a blob of at most most bytes and checks it.
func (c *Cluster) fetch(ctx context.Context, d *repb.Digest, most int64, what string) ([]byte, error) {
	switch n := d.GetSizeBytes(); {
	case d == nil || n < 0 || len(d.Hash) != 2*sha256.Size:
		return nil, fail(job.CauseInternal, "the cluster names %s by a digest that is none", what)
	case n > most:
		return nil, fail(job.CauseTooBig, "%s has %d bytes, more than %d", what, n, most)
	case n == 0:
		return nil, check(nil, d, what)
	}
	can, err := c.abilities(ctx)
	if err != nil {
		return nil, err
	}
	var b []byte
	err = c.call(ctx, func(ctx context.Context) (err error) {
		b, err = c.server.Read(ctx, can.batch, d, nil)
		return err
	})
	if status.Code(err) == codes.NotFound {
		return nil, fail(job.CauseInternal, "the cluster has lost %s", what)
	}
	if err != nil {
		return nil, err
	}
	c.count.received.Add(uint64(len(b)))
	return b, check(b, d, what)
}

// check compares a content with its digest.
func check(b []byte, d *repb.Digest, what string) error {
	sum := sha256.Sum256(b)
	if int64(len(b)) != d.GetSizeBytes() || hex.EncodeToString(sum[:]) != d.GetHash() {
		return fail(job.CauseInternal, "%s is not what the cluster says that it is", what)
	}
	return nil
}
