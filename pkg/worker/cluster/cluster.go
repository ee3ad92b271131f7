package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/secret"
)

// Options are the options of Open.
type Options struct {
	URL      string // grpc://HOST[:PORT], grpcs://HOST[:PORT] for TLS, or unix:///PATH
	Instance string // name of the server's instance; empty: the one without a name
	Header   string // in which the token is sent; empty: authorization
	// Token returns the token that requests carry. It is called again when the server does not take the last one, and once a
	// minute. nil: there is none.
	Token func() (secret.Secret, error)
	TLS   *tls.Config // for grpcs

	Platform map[string]string // properties that workers must have
	// Cached lets the server answer with a result that it has from an earlier execution.
	Cached bool
	// Lost is how long an execution whose worker or connection is lost is tried again. 0 = lostTime.
	Lost time.Duration
	Log  *slog.Logger
}

// Cluster runs commands on the workers of a server. It is safe for concurrent use.
type Cluster struct {
	o      Options
	server *cas.Client
	exec   repb.ExecutionClient
	ops    longrunningpb.OperationsClient
	bases  bases
	held   held
	traits knownTraits
	count  counts

	mu      sync.Mutex
	can     *abilities // nil: not known
	trouble error      // why the server is of no use at the moment; nil: it is
	rests   time.Time  // until when it is full
	soon    chan struct{}
}

type counts struct {
	sent, received, blobs, held atomic.Uint64
	ran, cached, failed         atomic.Uint64
}

// Stats are what has been done so far.
type Stats struct {
	Sent     uint64 `json:"sent_bytes"`     // bytes of blobs that the server lacked
	Received uint64 `json:"received_bytes"` // bytes of outputs
	Blobs    uint64 `json:"sent_blobs"`     // that the server lacked
	Held     uint64 `json:"held_blobs"`     // that it was asked for and had
	Ran      uint64 `json:"ran"`            // actions that a worker ran
	Cached   uint64 `json:"cached"`         // actions whose result the server had
	Failed   uint64 `json:"failed"`         // actions that gave no result
}

// Open returns a Cluster, without connecting.
func Open(o Options) (*Cluster, error) {
	var token secret.Secret
	if o.Token != nil {
		var err error
		if token, err = o.Token(); err != nil {
			return nil, err
		}
	}
	server, err := cas.Open(cas.Options{URL: o.URL, Instance: o.Instance, Header: o.Header, Token: token, TLS: o.TLS})
	if err != nil {
		return nil, err
	}
	if o.Lost == 0 {
		o.Lost = lostTime
	}
	return &Cluster{o: o, server: server, exec: repb.NewExecutionClient(server.Conn()), ops: longrunningpb.NewOperationsClient(server.Conn()), soon: make(chan struct{}, 1)}, nil
}

// Close ends the connection. No command may be running.
func (c *Cluster) Close() error { return c.server.Close() }

// Stats returns what has been done so far.
func (c *Cluster) Stats() Stats {
	k := &c.count
	return Stats{k.sent.Load(), k.received.Load(), k.blobs.Load(), k.held.Load(), k.ran.Load(), k.cached.Load(), k.failed.Load()}
}

// Trouble returns why no work is to be taken for the cluster now; nil: it is.
func (c *Cluster) Trouble() *job.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.trouble != nil:
		return job.Refuse(job.CauseFull, "the cluster: %v", c.trouble)
	case time.Now().Before(c.rests):
		return job.Refuse(job.CauseFull, "the cluster is full")
	}
	return nil
}

// away records that the server is of no use, until Watch finds otherwise.
func (c *Cluster) away(err error) {
	c.mu.Lock()
	c.trouble, c.can = err, nil
	c.mu.Unlock()
	select {
	case c.soon <- struct{}{}:
	default: // it is going to look anyway
	}
}

// full records that the server takes no work for a moment.
func (c *Cluster) full() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests = time.Now().Add(restTime)
}

const (
	// restTime is how long no work is taken after the server has said that it has no room.
	restTime = time.Second
	// watchTime is how often the server is asked what it can do, and againMost the longest pause between two tries while it is of no
	// use. The first pause is againLeast.
	watchTime  = time.Minute
	againLeast = time.Second
	againMost  = 15 * time.Second
	// askTime bounds one such question.
	askTime = 10 * time.Second
)

// Watch keeps looking whether the server is of use, until ctx ends.
func (c *Cluster) Watch(ctx context.Context) {
	pause := againLeast
	for ctx.Err() == nil {
		wait := watchTime
		if c.inTrouble() {
			wait = pause
			pause = min(2*pause, againMost)
		} else {
			pause = againLeast
		}
		t := time.NewTimer(wait)
		select {
		case <-c.soon:
			t.Stop()
			if c.inTrouble() { // the look below would come too early
				continue
			}
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		before := c.inTrouble()
		switch err := c.Check(ctx); {
		case ctx.Err() != nil:
		case err != nil && !before:
			c.o.Log.Error("the cluster is of no use", "err", err)
		case err == nil && before:
			c.o.Log.Info("the cluster can be used again")
		}
	}
}

func (c *Cluster) inTrouble() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble != nil
}

// call makes a request, once more if the server did not take the token and there is another one by now.
func (c *Cluster) call(ctx context.Context, request func(ctx context.Context) error) error {
	err := request(c.server.With(ctx))
	if status.Code(err) == codes.Unauthenticated && c.renew() {
		err = request(c.server.With(ctx))
	}
	return err
}

// renew reads the token again, and reports whether it is another one.
func (c *Cluster) renew() bool {
	if c.o.Token == nil {
		return false
	}
	token, err := c.o.Token()
	if err != nil {
		c.o.Log.Warn("the cluster's token", "err", err)
		return false
	}
	return c.server.Renew(token)
}

// plain returns what a server has said, in one line without what is secret.
func (c *Cluster) plain(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() != codes.DeadlineExceeded && st.Code() != codes.Canceled {
		err = errors.New(st.Message())
	}
	return c.server.Plain(err)
}

// Failed is a reason why a command that the server has taken gave no result.
type Failed struct{ *job.Refusal }

func (f *Failed) Unwrap() error { return f.Refusal }

func fail(cause job.Cause, format string, args ...any) error {
	return &Failed{job.Refuse(cause, format, args...)}
}

// explain returns what a request's error means for a job, and draws the conclusions.
func (c *Cluster) explain(ctx context.Context, err error) error {
	var no *job.Refusal
	switch {
	case err == nil || errors.As(err, &no):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	plain := c.plain(err)
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		c.away(fmt.Errorf("it refuses this daemon: %w; see cluster.token-file, cluster.cert and the server's rules", plain))
		return job.Refuse(job.CauseFull, "the cluster refuses this daemon: %v", plain)
	case codes.ResourceExhausted:
		c.full()
		return job.Refuse(job.CauseFull, "the cluster has no room or quota left: %v", plain)
	case codes.Unavailable:
		c.away(fmt.Errorf("it cannot be reached: %w", plain))
		return job.Refuse(job.CauseFull, "the cluster cannot be reached: %v", plain)
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		return job.Refuse(job.CauseTree, "the cluster does not take the job: %v", plain)
	case codes.DeadlineExceeded:
		return job.Refuse(job.CauseFull, "the cluster does not answer")
	}
	return fail(job.CauseInternal, "the cluster: %v", plain)
}
