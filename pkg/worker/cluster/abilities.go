package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/bazelbuild/remote-apis/build/bazel/semver"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/job"
)

// abilities are what a server has said that it can do.
type abilities struct {
	batch int // bytes of blobs that one request or answer may have in all
}

// ErrUnfit is wrapped by errors about a server that will not do, whenever it is asked.
var ErrUnfit = errors.New("the server will not do")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}

// Check asks the server what it can do. The error, one line, says why it is of no use; it wraps ErrUnfit if another try would end
// in the same way.
func (c *Cluster) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c.renew()
	can, err := c.ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.can, c.trouble = can, err
	return err
}

// abilities returns what the server can do. It is asked if that is not known.
func (c *Cluster) abilities(ctx context.Context) (*abilities, error) {
	c.mu.Lock()
	can := c.can
	c.mu.Unlock()
	if can != nil {
		return can, nil
	}
	can, err := c.ask(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		c.away(err)
		return nil, job.Refuse(job.CauseFull, "the cluster: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.can = can
	return can, nil
}

func (c *Cluster) ask(ctx context.Context) (*abilities, error) {
	var says *repb.ServerCapabilities
	err := c.call(ctx, func(ctx context.Context) (err error) {
		says, err = c.server.Capabilities(ctx)
		return err
	})
	switch status.Code(err) {
	case codes.OK:
		return readAbilities(says, c.server.Instance())
	case codes.Unimplemented:
		return nil, unfit("it does not speak the Remote Execution API")
	case codes.Unauthenticated, codes.PermissionDenied:
		return nil, unfit("it refuses this daemon: %v; see cluster.token-file, cluster.cert and its own rules", c.plain(err))
	case codes.InvalidArgument, codes.NotFound:
		return nil, unfit("it has no instance %q: %v", c.server.Instance(), c.plain(err))
	case codes.DeadlineExceeded:
		return nil, fmt.Errorf("it does not answer within %v", askTime)
	}
	return nil, fmt.Errorf("it cannot be reached: %w", c.plain(err))
}

// The version of the API that this package speaks: output_paths are of 2.1.
var (
	leastVersion = &semver.SemVer{Major: 2, Minor: 1}
	ownVersion   = &semver.SemVer{Major: 2, Minor: 3}
)

func readAbilities(says *repb.ServerCapabilities, instance string) (*abilities, error) {
	if high := says.GetHighApiVersion(); high.GetMajor() != 0 && older(high, leastVersion) {
		return nil, unfit("it speaks version %s of the Remote Execution API at most, and %s is needed", version(high), version(leastVersion))
	}
	if low := says.GetLowApiVersion(); low.GetMajor() != 0 && older(ownVersion, low) {
		return nil, unfit("it speaks version %s of the Remote Execution API at least, and this is %s", version(low), version(ownVersion))
	}
	batch, err := cas.Batch(says.GetCacheCapabilities())
	if err != nil {
		return nil, unfit("%v", err)
	}
	x := says.GetExecutionCapabilities()
	functions := x.GetDigestFunctions()
	if len(functions) == 0 {
		functions = []repb.DigestFunction_Value{x.GetDigestFunction()}
	}
	switch {
	case !x.GetExecEnabled():
		return nil, unfit("its instance %q runs no actions (exec_enabled): it is a cache, which cache.reapi is for", instance)
	case !slices.Contains(functions, repb.DigestFunction_SHA256):
		return nil, unfit("it does not know SHA256 as a digest function of actions")
	}
	return &abilities{batch: batch}, nil
}

func older(v, w *semver.SemVer) bool {
	return v.GetMajor() < w.GetMajor() || v.GetMajor() == w.GetMajor() && v.GetMinor() < w.GetMinor()
}

func version(v *semver.SemVer) string { return fmt.Sprintf("%d.%d", v.GetMajor(), v.GetMinor()) }
